//! TLS 1.3 for sockets that accept commands, by rustls with ring: [`Acceptor`] for servers, [`Connector`] for clients.
//! It owns certificates and keys. Daemons and commands that use HTTP call it; it never knows the content of their
//! messages.
//!
//! | what | where |
//! | --- | --- |
//! | certificates, keys and authorities from PEM files | `pem.rs` |
//! | handshakes of a server, and reload of renewed files | `server.rs` |
//! | handshakes of a client, and explanations of its errors | `client.rs` |

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
pub use server::{AcceptError, Acceptor, Clients, lingering_close};

/// The application protocol that both sides offer in the handshake (ALPN).
const PROTOCOL: &[u8] = b"http/1.1";
/// The only supported protocol version.
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// An error of certificates, keys or a handshake.
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
    /// A file does not have the expected content.
    #[error("{} has no {what}: {reason}", path.display())]
    Malformed {
        /// The missing content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason, with the PEM section that is expected.
        reason: String,
    },
    /// The certificate and the key do not match.
    #[error("the certificate in {} and the key in {} are no pair that TLS can use: {reason}", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// rustls' reason.
        reason: String,
    },
    /// The name of a server is one that no certificate can contain.
    #[error(
        "{0:?} is neither a host name nor an address, so no certificate can be checked against it"
    )]
    Name(String),
    /// The handshake failed, or the server closed the connection with a TLS alert.
    #[error("{0}")]
    Refused(String),
}
