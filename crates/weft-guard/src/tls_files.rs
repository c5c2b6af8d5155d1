//! The TLS files of a server, as configurations and command lines name them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The PEM files with which a server uses TLS: `tls = { certificate = "…", key = "…", clients = "…" }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// The certificate's private key. Only the file's owner may read it.
    pub key: PathBuf,
    /// The certificates of the authorities whose clients may send commands. If absent, no client certificate is asked
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<PathBuf>,
}
