//! The errors of calls: NCCL gets a number, its log the text.

use std::io;

use weft_nccl_abi::{ncclResult_t, result};

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    code: ncclResult_t,
    text: String,
    /// `true` if the log has it already.
    logged: bool,
}

impl Failure {
    fn new(code: ncclResult_t, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), logged: false }
    }

    /// An error of the operating system or of the device.
    pub(crate) fn system(doing: &str, error: &io::Error) -> Self {
        Self::new(result::SYSTEM_ERROR, format!("{doing}: {error}"))
    }

    /// An argument that NCCL should not have passed.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(result::INVALID_ARGUMENT, text)
    }

    /// The end of a peer or of the network to it.
    pub(crate) fn remote(text: impl Into<String>) -> Self {
        Self::new(result::REMOTE_ERROR, text)
    }

    /// A mistake of this library.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self::new(result::INTERNAL_ERROR, text)
    }

    /// Returns NCCL's number of the error.
    pub(crate) const fn code(&self) -> ncclResult_t {
        self.code
    }

    /// Returns the text if no line of the log has it yet.
    pub(crate) fn unlogged(&self) -> Option<&str> {
        (!self.logged).then_some(&*self.text)
    }

    /// Returns the same error for later calls, which do not log it again.
    pub(crate) fn again(&self) -> Self {
        Self { logged: true, ..self.clone() }
    }
}
