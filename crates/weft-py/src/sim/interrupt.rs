//! Long calls that a signal, such as that of Ctrl-C, ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use super::Cancel;

/// Maximum delay before a signal is handled.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `work` on a thread of its own, without the interpreter's lock. If the handler of a signal raises an exception
/// meanwhile, cancels the work and returns the exception.
///
/// # Panics
/// Panics if `work` does.
pub(super) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Cancel) -> T + Send,
) -> PyResult<T> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let cancel = Cancel::when(move || flag.load(Ordering::Relaxed));
    let wait = || {
        thread::scope(|scope| {
            let (done, is_done) = channel();
            let worker = scope.spawn(move || {
                // The thread keeps its state of the interpreter, which calls of Python would make each time.
                let result = Python::attach(|py| py.detach(|| work(cancel)));
                let _ = done.send(());
                result
            });
            let mut raised = None;
            while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(SIGNAL_CHECK_INTERVAL) {
                let signal = Python::attach(|py| py.check_signals());
                if let (Err(error), None) = (signal, &raised) {
                    cancelled.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            let result = worker.join();
            raised.map_or_else(|| Ok(result), Err)
        })
    };
    match py.detach(wait)? {
        Ok(result) => Ok(result),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
