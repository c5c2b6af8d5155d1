//! The text of errors.

use core::ffi::c_char;

use crate::failure::last_text;

/// Returns the reason of this thread's last failed call as text, which is valid until the next failed call.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_last_error() -> *const c_char {
    last_text()
}
