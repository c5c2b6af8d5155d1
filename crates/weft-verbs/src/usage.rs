//! The use that this process makes of the device, as far as a warning at its end needs it.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The process that requested the list of devices last, 0 if none did: a child of `fork` has not requested its parent's.
static LISTED_BY: AtomicU32 = AtomicU32::new(0);

/// Set with the first queue pair, without which a program sends nothing over the device.
static HAD_QUEUE_PAIRS: AtomicBool = AtomicBool::new(false);

pub(crate) fn on_list() {
    LISTED_BY.store(process::id(), Ordering::Relaxed);
}

pub(crate) fn on_queue_pair() {
    HAD_QUEUE_PAIRS.store(true, Ordering::Relaxed);
}

/// Returns `true` if this process requested the list of devices and made no queue pair.
pub(crate) fn is_unused() -> bool {
    LISTED_BY.load(Ordering::Relaxed) == process::id() && !HAD_QUEUE_PAIRS.load(Ordering::Relaxed)
}
