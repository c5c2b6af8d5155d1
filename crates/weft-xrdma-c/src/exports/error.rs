//! Errors in words.

use core::ffi::c_char;

use crate::failure::last_text;

/// Says in words why the last call of this thread that failed did so. The text stays until the next that fails.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_last_error() -> *const c_char {
    last_text()
}
