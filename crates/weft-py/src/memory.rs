//! Registered memory, to send from without a copy. Its buffer is writable.

use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use weft_msg::{Block, Slice};

use crate::error::{exception, in_use};
use crate::shared::Shared;

/// Registered memory.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Debug)]
pub(crate) struct Memory {
    shared: Arc<Shared>,
    block: Mutex<Option<Block>>,
    len: u32,
    exports: AtomicUsize,
}

impl Memory {
    pub(crate) const fn new(shared: Arc<Shared>, block: Block, len: u32) -> Self {
        Self { shared, block: Mutex::new(Some(block)), len, exports: AtomicUsize::new(0) }
    }

    fn block(&self) -> MutexGuard<'_, Option<Block>> {
        self.block.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the memory's slice, if it belongs to node `to`.
    pub(crate) fn lend(&self, py: Python<'_>, to: &Shared) -> PyResult<Slice> {
        if !core::ptr::eq(&raw const *self.shared, to) {
            return Err(exception(py, "Error", "the memory is another node's"));
        }
        self.slice()
    }

    fn slice(&self) -> PyResult<Slice> {
        let block = self.block();
        let block = block.as_ref().filter(|_| self.shared.is_open());
        let gone = || PyValueError::new_err("the memory was released, or its node is closed");
        Ok(Slice { len: self.len, ..block.ok_or_else(gone)?.slice() })
    }
}

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.len as usize
    }

    /// Releases the memory now, instead of when its last reference is gone.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.exports.load(Ordering::Relaxed) > 0 {
            return Err(in_use("memoryviews of the memory exist"));
        }
        let Ok(slice) = self.slice() else { return Ok(()) };
        if self.shared.with(py, |state| state.lending.is_lent(slice))? {
            return Err(in_use("the memory is lent to a message that is not delivered yet"));
        }
        if let Some(block) = self.block().take() {
            self.shared.drop_block(block);
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
        let slice = this.slice()?;
        let address = usize::try_from(slice.address).expect("a pointer's bits");
        let start = core::ptr::with_exposed_provenance_mut::<c_void>(address);
        let len = ffi::Py_ssize_t::try_from(slice.len).expect("a length");
        // SAFETY: the memory is this object's until no buffer of it is left; `view` is the protocol's. The device
        // may read it meanwhile, as the device of any host may.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 0, flags) };
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

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(block) = self.block().take() {
            self.shared.drop_block(block);
        }
    }
}
