//! The first exception of a run's path policies and congestion controls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

/// The first exception of a run's algorithms.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure(Arc<Raised>);

#[derive(Debug, Default)]
struct Raised {
    is_raised: AtomicBool,
    error: Mutex<Option<PyErr>>,
}

impl Failure {
    /// Records an exception, unless there is an earlier one.
    pub(super) fn record(&self, error: PyErr) {
        let mut first = self.0.error.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.0.is_raised.swap(true, Ordering::Relaxed) {
            *first = Some(error);
        }
    }

    /// Returns `true` after an exception.
    pub(super) fn is_raised(&self) -> bool {
        self.0.is_raised.load(Ordering::Relaxed)
    }

    /// Returns the exception once.
    pub(super) fn take(&self) -> Option<PyErr> {
        self.0.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
