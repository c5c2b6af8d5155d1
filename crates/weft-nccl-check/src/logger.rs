//! The logger that the plugin gets: NCCL's is a variadic function of C.

use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_nccl_abi::{level, ncclDebugLogger_t};

static SHOWN: AtomicBool = AtomicBool::new(false);
/// The last line of the level WARN.
static LAST_WARNING: Mutex<String> = Mutex::new(String::new());

/// Selects whether lines are shown on standard error.
pub(crate) fn set_shown(shown: bool) {
    SHOWN.store(shown, Ordering::Relaxed);
}

/// Returns the last warning, and forgets it.
pub(crate) fn take_warning() -> String {
    LAST_WARNING.lock().map(|mut line| core::mem::take(&mut *line)).unwrap_or_default()
}

/// The function behind NCCL's pointer. Stable Rust defines no variadic functions; this one has the arguments that a call leaves in
/// registers and in the first words of the stack, as the C ABIs of Linux on x86-64 and arm64 place integers and pointers.
/// Floating-point numbers in a line are shown wrongly.
unsafe extern "C" fn log(
    of_level: c_int,
    _subsystems: c_ulong,
    _file: *const c_char,
    _line: c_int,
    format: *const c_char,
    a: *const c_void,
    b: *const c_void,
    c: *const c_void,
    d: *const c_void,
    e: *const c_void,
    f: *const c_void,
) {
    let mut text = [0 as c_char; 1_024];
    // SAFETY: the plugin passes a format with its arguments, of which this function has the first six; `text` has room.
    let line = unsafe {
        libc::snprintf(text.as_mut_ptr(), text.len(), format, a, b, c, d, e, f);
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    };
    if SHOWN.load(Ordering::Relaxed) {
        eprintln!("plugin: {line}");
    }
    if of_level == level::WARN
        && let Ok(mut last) = LAST_WARNING.lock()
    {
        *last = line;
    }
}

/// Returns the logger for `init`.
pub(crate) fn logger() -> ncclDebugLogger_t {
    type Fixed = unsafe extern "C" fn(
        c_int,
        c_ulong,
        *const c_char,
        c_int,
        *const c_char,
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
    );
    type Variadic = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);
    // SAFETY: both are pointers to functions of C, which place the first arguments alike (see `log`).
    Some(unsafe { core::mem::transmute::<Fixed, Variadic>(log) })
}
