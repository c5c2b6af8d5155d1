//! Errors as the specification has them: a code, a message, details.

use std::fmt;

use serde_json::{Value, json};

use crate::version::Version;

/// Codes of errors: those of the specification below 100, and the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The version of the configuration is not supported, or has no such verb.
    IncompatibleVersion,
    /// A key of the configuration asks for a function that the plugin does not have.
    UnsupportedField,
    /// There is no such container.
    UnknownContainer,
    /// A variable of the environment is missing or wrong.
    InvalidEnvironment,
    /// The system refused an operation.
    Io,
    /// The configuration is no JSON of the expected form.
    Decode,
    /// A value of the configuration is wrong.
    InvalidConfig,
    /// The overlay's daemon does not answer: the runtime may try again later.
    TryAgainLater,
    /// The plugin cannot serve ADD.
    NotAvailable,
    /// The plugin cannot serve ADD, and present containers are cut off.
    NotConnected,
    /// The overlay's daemon refused a request.
    Refused,
    /// The interface exists already.
    InterfaceExists,
    /// The container's network is not what ADD has made.
    Differs,
    /// A code of another plugin, which this one has called.
    Delegated(u64),
}

impl Code {
    /// Returns its number.
    pub fn number(self) -> u64 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnsupportedField => 2,
            Self::UnknownContainer => 3,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Decode => 6,
            Self::InvalidConfig => 7,
            Self::TryAgainLater => 11,
            Self::NotAvailable => 50,
            Self::NotConnected => 51,
            Self::Refused => 100,
            Self::InterfaceExists => 101,
            Self::Differs => 102,
            Self::Delegated(number) => number,
        }
    }
}

/// An error of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its code.
    pub code: Code,
    /// Its cause.
    pub message: String,
    /// The remedy, or more about the cause.
    pub details: String,
}

impl Failure {
    /// Returns an error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Returns the error with details.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    /// Returns the error as the object on standard output.
    pub fn to_json(&self, version: Version) -> Value {
        let mut object = json!({
            "cniVersion": version.number(), "code": self.code.number(), "msg": self.message,
        });
        if !self.details.is_empty() {
            object["details"] = self.details.clone().into();
        }
        object
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.message, self.code.number())
    }
}

impl std::error::Error for Failure {}
