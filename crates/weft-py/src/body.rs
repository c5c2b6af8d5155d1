//! The body of a message from Python: any object with bytes, which are copied, or registered
//! memory, which is lent.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use weft_msg::{Payload, Slice};

use crate::memory::Memory;
use crate::shared::Shared;

/// The body of a message.
#[derive(Debug)]
pub(crate) enum Body {
    Bytes(PyBuffer<u8>),
    Lent(Slice),
}

impl Body {
    /// Returns the body that a Python object has.
    ///
    /// # Errors
    /// The object has no contiguous buffer, or it is registered memory that was released or is another node's.
    pub(crate) fn of(shared: &Shared, from: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(memory) = from.cast::<Memory>() {
            return Ok(Self::Lent(memory.get().lend(from.py(), shared)?));
        }
        let bytes = PyBuffer::get(from)?;
        if !bytes.is_c_contiguous() {
            return Err(PyBufferError::new_err("the body's bytes do not lie one after the other"));
        }
        Ok(Self::Bytes(bytes))
    }

    /// Returns the body for a node. The caller holds the interpreter's lock, so that no thread writes to the bytes.
    pub(crate) fn payload(&self, _: Python<'_>) -> Payload<'_> {
        match self {
            Self::Lent(slice) => Payload::Lent(*slice),
            Self::Bytes(bytes) if bytes.len_bytes() == 0 => Payload::Copy(&[]),
            Self::Bytes(bytes) => {
                let (start, len) = (bytes.buf_ptr().cast::<u8>(), bytes.len_bytes());
                // SAFETY: the buffer is of that many bytes, lives as long as `self`, and is not written to.
                Payload::Copy(unsafe { core::slice::from_raw_parts(start, len) })
            }
        }
    }
}
