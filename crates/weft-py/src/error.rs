//! Converts errors to the exceptions of `weft.errors`.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use weft_comm::CommError;
use weft_msg::{CloseReason, ConfigError, DeviceError, SendError, SwitchError};
use weft_xrdma::NodeError;

/// Returns an exception of `weft.errors`.
pub(crate) fn exception(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = py
        .import("weft.errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| class.call1((text,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for memory that Python or the device still uses.
pub(crate) fn in_use(text: &str) -> PyErr {
    PyBufferError::new_err(text.to_owned())
}

/// An error that has a class in `weft.errors`.
pub(crate) trait Raise: core::fmt::Display {
    /// Returns the name of the class.
    fn class(&self) -> &'static str;

    /// Returns the exception.
    fn raise(&self, py: Python<'_>) -> PyErr {
        exception(py, self.class(), &self.to_string())
    }
}

impl Raise for NodeError {
    fn class(&self) -> &'static str {
        match self {
            Self::Verbs(_) => "DeviceError",
            Self::Config(_) => "OptionError",
            Self::Offer(_) | Self::Socket { .. } | Self::Peer { .. } => "ConnectError",
            _ => "Error",
        }
    }
}

impl Raise for CommError {
    fn class(&self) -> &'static str {
        match self {
            Self::Node(error) => error.class(),
            Self::Rank { .. }
            | Self::Options(_)
            | Self::Call(_)
            | Self::Token(_)
            | Self::NoToken { .. } => "OptionError",
            Self::TimedOut { .. } => "Timeout",
            Self::Group(_) => "Closed",
            _ => "ConnectError",
        }
    }
}

impl Raise for ConfigError {
    fn class(&self) -> &'static str {
        "OptionError"
    }
}

impl Raise for SendError {
    fn class(&self) -> &'static str {
        match self {
            Self::Closed => "Closed",
            Self::Full { .. } => "Full",
            Self::TooLong { .. } => "TooLong",
            Self::Memory(refused) => refused.class(),
            Self::NoRequest { .. } => "NoRequest",
            _ => "Error",
        }
    }
}

impl Raise for SwitchError {
    fn class(&self) -> &'static str {
        match self {
            Self::NotOpen => "Closed",
            _ => "Error",
        }
    }
}

impl Raise for DeviceError {
    fn class(&self) -> &'static str {
        "OutOfMemory"
    }
}

impl Raise for CloseReason {
    fn class(&self) -> &'static str {
        "Closed"
    }
}
