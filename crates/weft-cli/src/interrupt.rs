//! The handler of an interrupt (Ctrl-C), which ends a command in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// Returns a flag that becomes `true` when the user interrupts the program.
///
/// # Errors
/// Returns an error if there is already a handler.
pub(crate) fn until_interrupted() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot listen for an interrupt")?;
    Ok(stop)
}
