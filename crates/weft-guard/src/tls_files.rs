//! The files of a server's TLS, as configurations and command lines name them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// PEM files with which a server speaks TLS: `tls = { certificate = "…", key = "…", clients = "…" }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate, and behind it those of intermediate authorities.
    pub certificate: PathBuf,
    /// The certificate's private key. Only the file's owner may read it.
    pub key: PathBuf,
    /// Certificates of the authorities whose clients may give orders. None if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<PathBuf>,
}
