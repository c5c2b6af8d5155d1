//! A received message. Its buffer is the memory to which the device wrote; the message owns it until the last view of
//! it is gone.

use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use weft_msg::{CallRole, ChannelId, Decomposition, Message as Received};

use crate::error::in_use;
use crate::shared::Shared;

/// A received message.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Debug)]
pub(crate) struct Message {
    shared: Arc<Shared>,
    channel: ChannelId,
    received: Mutex<Option<Received>>,
    call: CallRole,
    address: usize,
    len: usize,
    trace: Option<Decomposition>,
    exports: AtomicUsize,
}

impl Message {
    pub(crate) fn new(
        shared: Arc<Shared>,
        channel: ChannelId,
        received: Received,
        trace: Option<Decomposition>,
    ) -> Self {
        let body = received.body();
        Self {
            shared,
            channel,
            call: received.call,
            address: usize::try_from(body.address).expect("a pointer's bits"),
            len: body.len as usize,
            received: Mutex::new(Some(received)),
            trace,
            exports: AtomicUsize::new(0),
        }
    }

    fn take(&self) -> Option<Received> {
        self.received.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    fn is_held(&self) -> bool {
        self.received.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some()
    }
}

#[pymethods]
impl Message {
    /// "one-way", "request" or "response".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.call {
            CallRole::OneWay => "one-way",
            CallRole::Request(_) => "request",
            CallRole::Response(_) => "response",
        }
    }

    /// The request's number; 0 for one-way messages.
    #[getter]
    fn number(&self) -> u64 {
        match self.call {
            CallRole::OneWay => 0,
            CallRole::Request(id) | CallRole::Response(id) => id,
        }
    }

    /// The times of the call, ns: request, peer, response, and the offset of the peer's clock.
    #[getter]
    fn trace(&self) -> Option<(u64, u64, u64, i64)> {
        self.trace.map(|time| {
            let [request, peer, response] =
                [time.request, time.peer, time.response].map(|time| time.as_nanos());
            (request, peer, response, time.offset)
        })
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// Releases the message's memory now, instead of when its last reference is gone.
    fn release(&self) -> PyResult<()> {
        if self.exports.load(Ordering::Relaxed) > 0 {
            return Err(in_use("memoryviews of the message's body exist"));
        }
        if let Some(received) = self.take() {
            self.shared.drop_message(received);
        }
        Ok(())
    }

    /// # Safety
    /// The caller follows the buffer protocol.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        if !this.is_held() || !this.shared.is_open() {
            return Err(PyValueError::new_err("the message was released, or its node is closed"));
        }
        let start = core::ptr::with_exposed_provenance_mut::<c_void>(this.address);
        let len = ffi::Py_ssize_t::try_from(this.len).expect("a body's length");
        // SAFETY: the memory is the message's until no buffer of it is left; `view` is the protocol's.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if filled < 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        this.exports.fetch_add(1, Ordering::Relaxed);
        this.shared.export();
        Ok(())
    }

    /// # Safety
    /// The caller follows the buffer protocol.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
        self.shared.release_export();
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let CallRole::Request(request) = self.call {
            self.shared.drop_request(self.channel, request);
        }
        if let Some(received) = self.take() {
            self.shared.drop_message(received);
        }
    }
}
