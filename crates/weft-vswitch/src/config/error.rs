//! The errors of a configuration: the file, the line, the key, and the valid values.

use std::path::{Path, PathBuf};

use weft_units::unknown_name;
use weft_vpc::{AclError, PoliciesError};

use super::line::{index_of, line_of, line_of_key};

/// The reason that a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The file is no TOML, or has keys or values that a configuration does not have.
    #[error("{}: {cause}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The mistake and its place.
        cause: toml::de::Error,
    },
    /// A table of the file has a key that does not exist.
    #[error("{}", unknown_name("key", key, &known.iter().map(String::as_str).collect::<Vec<_>>()))]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that exist there.
        known: Vec<String>,
    },
    /// A value of the file is refused.
    #[error("{}{}: {cause}", file.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
    InFile {
        /// The file.
        file: PathBuf,
        /// The line of the value, from 1, if it is known.
        line: Option<usize>,
        /// The mistake.
        cause: Box<Self>,
    },
    /// A policy is wrong.
    #[error(transparent)]
    Policies(#[from] PoliciesError),
    /// The policies of a port are wrong, or name others that do not exist.
    #[error("port {name}: {cause}")]
    PortPolicies {
        /// The port's name.
        name: String,
        /// The mistake.
        cause: Box<PoliciesError>,
    },
    /// A setting of the encryption, or a file with its keys, is wrong.
    #[error("host.encryption.{key} = {got}: {reason}")]
    Encryption {
        /// The key.
        key: String,
        /// Its value.
        got: String,
        /// The reason that it is refused.
        reason: weft_udp::SettingFault,
    },
    /// The file has the table of an earlier version.
    #[error(
        "{}: [host.seal] was removed, as hosts agree on keys by themselves: write [host.encryption] with \
         mode = \"required\" instead, and preshared-key = FILE, which may be the file of the secret", file.display()
    )]
    OldSeal {
        /// The file.
        file: PathBuf,
    },
    /// A value is invalid.
    #[error("{key} = {got}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// The index of its table, from 0, where the file has several.
        index: Option<usize>,
        /// Its value.
        got: String,
        /// The valid values.
        expected: String,
    },
}

/// Returns the error of a value that is not valid.
pub(crate) fn value(
    key: impl Into<String>,
    got: impl ToString,
    expected: impl Into<String>,
) -> ConfigError {
    let (key, got, expected) = (key.into(), got.to_string(), expected.into());
    ConfigError::Value { key, index: None, got, expected }
}

impl ConfigError {
    /// Returns the error of a value with the index of its table.
    pub(super) fn in_table(self, table: usize) -> Self {
        match self {
            Self::Value { key, got, expected, .. } => {
                Self::Value { key, index: Some(table), got, expected }
            }
            other => other,
        }
    }

    /// Returns the error with the file, and with the line of the value in the file's text.
    pub(super) fn in_file(self, file: &Path, text: &str) -> Self {
        Self::InFile { file: file.into(), line: self.line(text), cause: Box::new(self) }
    }

    fn line(&self, text: &str) -> Option<usize> {
        let named = |key, name: &str| line_of(text, key, Some(index_of(text, key, "name", name)?));
        match self {
            Self::Value { key, index, .. } => line_of(text, key, *index),
            Self::UnknownKey { key, .. } => line_of_key(text, key),
            Self::Encryption { key, .. } => line_of(text, &format!("host.encryption.{key}"), None),
            Self::PortPolicies { name, .. } => named("port", name),
            Self::Policies(PoliciesError::Twice { name, .. }) => {
                named("acl", name).or_else(|| named("security-group", name))
            }
            Self::Policies(PoliciesError::Rules(error)) => {
                let list = match error {
                    AclError::Rule { list, .. }
                    | AclError::UnknownSet { list, .. }
                    | AclError::TooMany { list } => list,
                };
                named("acl", list).or_else(|| named("security-group", list))
            }
            _ => None,
        }
    }
}
