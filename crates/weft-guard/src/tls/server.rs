//! The server side of TLS: handshakes, and reload of renewed files.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weft_events::{KeysRotated, KeysUnusable};

use super::{PROTOCOL, TlsError, VERSIONS, pem, provider};
use crate::TlsFiles;

/// The timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a refused client has to read the reason.
const LINGER: Duration = Duration::from_secs(1);
/// The first byte of a TLS connection: a record of type handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The requirement that clients have a certificate of `TlsFiles::clients`, if that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// A client without a certificate is refused in the handshake.
    MustCertify,
    /// A client without a certificate is accepted, and must authenticate by other means.
    MayCertify,
}

/// An acceptor of TLS connections.
#[derive(Debug)]
pub struct Acceptor {
    files: TlsFiles,
    clients: Clients,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// The stamps of the files from which `config` was loaded, or of the latest that failed to load.
    stamps: Vec<Stamp>,
}

/// A file's inode, modification time in seconds and nanoseconds, and length in bytes; `None` if it does not exist.
type Stamp = Option<(u64, i64, i64, u64)>;

/// The reason for which a connection was not accepted. If possible, the client has received the reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The client sent HTTP without TLS. The caller may answer it, best with a hint to use https.
    #[error("the client does not use TLS")]
    Clear(TcpStream),
    /// The client did not complete its handshake in 5 s.
    #[error("the client took too long for its handshake")]
    Slow,
    /// The handshake or the connection failed.
    #[error("the handshake failed: {0}")]
    Failed(io::Error),
}

impl Acceptor {
    /// Reads the files. They are reloaded when they change; if that fails, the error is logged and the old files stay
    /// in use.
    ///
    /// # Errors
    /// Returns every variant except `Name` and `Refused`, with the file.
    pub fn new(files: TlsFiles, clients: Clients) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let loaded = Mutex::new(Loaded { config: load(&files, clients)?, stamps });
        Ok(Self { files, clients, loaded })
    }

    /// Performs the handshake of a connection. A refused client has up to 1 s to read the reason.
    ///
    /// # Errors
    /// Returns `Clear`, `Slow` after 5 s, or `Failed`.
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, AcceptError> {
        let handshake = async {
            let mut first = [0];
            stream.peek(&mut first).await.map_err(AcceptError::Failed)?;
            if first[0] != HANDSHAKE_RECORD && first[0].is_ascii_uppercase() {
                return Err(AcceptError::Clear(stream));
            }
            let acceptor = TlsAcceptor::from(self.config());
            Ok(acceptor.accept(stream).into_fallible().await)
        };
        match timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(Ok(Ok(stream))) => Ok(stream),
            Ok(Ok(Err((error, stream)))) => {
                lingering_close(stream).await;
                Err(AcceptError::Failed(error))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AcceptError::Slow),
        }
    }

    /// Returns `true` if the client proved that it owns a certificate of `TlsFiles::clients`.
    pub fn is_certified(stream: &TlsStream<TcpStream>) -> bool {
        stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty())
    }

    /// Returns the configuration of the current files, or of the latest valid ones.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if loaded.stamps != stamps {
            loaded.stamps = stamps;
            match load(&self.files, self.clients) {
                Ok(config) => {
                    KeysRotated { keys: "certificate", source: self.source() }.emit();
                    loaded.config = config;
                }
                Err(error) => {
                    let (source, error) = (self.source(), error.to_string());
                    KeysUnusable { keys: "certificate", source, error }.emit();
                }
            }
        }
        Arc::clone(&loaded.config)
    }

    fn source(&self) -> String {
        self.files.certificate.display().to_string()
    }
}

/// Closes a connection so that the client can read the data sent before: closing a socket that has unread bytes resets
/// its connection, and the client would lose the reason. It takes up to 1 s.
pub async fn lingering_close(mut stream: TcpStream) {
    let drained = async {
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that takes longer may lose the reason.
    let _ = timeout(LINGER, drained).await;
}

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let file = path.metadata().ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec(), file.size()))
    };
    [&files.certificate, &files.key].into_iter().chain(&files.clients).map(stamp).collect()
}

fn load(files: &TlsFiles, clients: Clients) -> Result<Arc<ServerConfig>, TlsError> {
    let TlsFiles { certificate, key, clients: authorities } = files;
    let pair = |error: rustls::Error| TlsError::Pair {
        certificate: certificate.clone(),
        key: key.clone(),
        reason: error.to_string(),
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(pair)?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(pem::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match clients {
                Clients::MustCertify => verifier,
                Clients::MayCertify => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| {
                TlsError::Malformed {
                    what: "authorities",
                    path: path.clone(),
                    reason: error.to_string(),
                }
            })?)
        }
    };
    let mut config =
        builder.with_single_cert(pem::chain(certificate)?, pem::key(key)?).map_err(pair)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Each connection verifies its certificate: a resumed session could outlive the certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
