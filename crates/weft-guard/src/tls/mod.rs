//! TLS 1.3 for sockets that take orders, by rustls with ring: [`Acceptor`] for servers, [`Connector`] for clients. It owns
//! certificates and keys; daemons and commands that speak HTTP call it, and it never knows what they say.
//!
//! | what | where |
//! | --- | --- |
//! | certificates, keys and authorities from PEM files | `pem.rs` |
//! | handshakes of a server, and files that are renewed while it runs | `server.rs` |
//! | handshakes of a client, and what its errors mean | `client.rs` |

mod client;
mod pem;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

pub use client::{Connector, TlsClientFiles};
pub use server::{AcceptError, Acceptor, Clients, hang_up};

/// The application protocol that both sides name in the handshake (ALPN).
const PROTOCOL: &[u8] = b"http/1.1";
/// The one version that is spoken.
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} in {}: {source}", path.display())]
    Io {
        /// The file's content: "certificate", "key" or "authorities".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users may read or replace the key.
    #[error(
        "{} has mode {mode:04o}, so that other users may read the key or replace it: chmod 600 {}, and make another \
         key if somebody may have read this one",
        path.display(), path.display()
    )]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file does not have what it is named for.
    #[error("{} has no {what}: {reason}", path.display())]
    Malformed {
        /// What is missing.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason, with the PEM section that is expected.
        reason: String,
    },
    /// The certificate and the key cannot be used together.
    #[error("the certificate in {} and the key in {} are no pair that TLS can use: {reason}", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// rustls' reason.
        reason: String,
    },
    /// A host is named in a way that no certificate can have.
    #[error(
        "{0:?} is no host name and no address, so that no certificate can be checked against it"
    )]
    Name(String),
    /// The handshake failed, or the server ended the connection for a reason of TLS.
    #[error("{0}")]
    Refused(String),
}
