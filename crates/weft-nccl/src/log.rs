//! Lines in NCCL's log.

use core::ffi::{c_int, c_ulong};
use std::ffi::CString;
use std::sync::Mutex;

use weft_nccl_abi::{level, ncclDebugLogger_t, subsystem};

/// NCCL's logger, since the first `init`.
static LOGGER: Mutex<ncclDebugLogger_t> = Mutex::new(None);

/// Sets the logger.
pub(crate) fn set_logger(logger: ncclDebugLogger_t) {
    if let Ok(mut current) = LOGGER.lock() {
        *current = logger;
    }
}

/// Logs an error.
pub(crate) fn warn(text: &str) {
    line(level::WARN, subsystem::NET, &format!("NET/Weft: {text}"));
}

/// Logs a change of state.
pub(crate) fn info(text: &str) {
    line(level::INFO, subsystem::NET, &format!("NET/Weft: {text}"));
}

/// Logs an error of the tuner.
pub(crate) fn tuning_warn(text: &str) {
    line(level::WARN, subsystem::TUNING, &format!("TUNER/Weft: {text}"));
}

/// Logs what the tuner found.
pub(crate) fn tuning_info(text: &str) {
    line(level::INFO, subsystem::TUNING, &format!("TUNER/Weft: {text}"));
}

fn line(level: c_int, of: c_ulong, text: &str) {
    let logger = LOGGER.lock().ok().and_then(|logger| *logger);
    let (Some(logger), Ok(line)) = (logger, CString::new(text)) else {
        // A program without a logger, or a text that C cannot hold.
        // `eprintln!` would panic where standard error is closed.
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
        return;
    };
    let (file, format) = (c"weft-nccl".as_ptr(), c"%s".as_ptr());
    // SAFETY: NCCL's logger takes a format of printf and its arguments, which live until it returns.
    unsafe { logger(level, subsystem::INIT | of, file, 0, format, line.as_ptr()) };
}
