//! A server's side: handshakes, and files that are read again once they are renewed.

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

use super::{PROTOCOL, TlsError, VERSIONS, pem, provider};
use crate::TlsFiles;

/// How long a client may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a refused client may take to read why.
const LINGER: Duration = Duration::from_secs(1);
/// The first byte of a TLS connection: a record of type handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// Whether clients must have a certificate of `TlsFiles::clients`, where that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Others are refused in the handshake.
    MustCertify,
    /// Others are let in, and must show something else.
    MayCertify,
}

/// Accepts TLS connections.
#[derive(Debug)]
pub struct Acceptor {
    files: TlsFiles,
    clients: Clients,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// The files from which `config` was made, or with which that failed.
    stamps: Vec<Stamp>,
}

/// A file's inode, modification time in seconds and nanoseconds, and length; `None` if it is not there.
type Stamp = Option<(u64, i64, i64, u64)>;

/// Why a connection was not accepted. The client was told where it can be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The client speaks HTTP without TLS. It may be answered, and is best told to use https.
    #[error("the client speaks no TLS")]
    Clear(TcpStream),
    /// The client did not end its handshake in 5 s.
    #[error("the client took too long for its handshake")]
    Slow,
    /// The handshake failed, or the connection did.
    #[error("the handshake failed: {0}")]
    Failed(io::Error),
}

impl Acceptor {
    /// Reads the files. They are read again when they change; what is wrong with them then is logged, and the old ones
    /// stay in use.
    ///
    /// # Errors
    /// Every variant but `Name` and `Refused`, with the file.
    pub fn new(files: TlsFiles, clients: Clients) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let loaded = Mutex::new(Loaded { config: load(&files, clients)?, stamps });
        Ok(Self { files, clients, loaded })
    }

    /// Makes the handshake of a connection. A client that is refused has up to 1 s to read the reason.
    ///
    /// # Errors
    /// `Clear`, `Slow` after 5 s, `Failed`.
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
                hang_up(stream).await;
                Err(AcceptError::Failed(error))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AcceptError::Slow),
        }
    }

    /// Returns `true` if the client of a connection proved that it has a certificate of `TlsFiles::clients`.
    pub fn is_certified(stream: &TlsStream<TcpStream>) -> bool {
        stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty())
    }

    /// Returns the configuration that the files have now, or had when they were last right.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if loaded.stamps != stamps {
            loaded.stamps = stamps;
            match load(&self.files, self.clients) {
                Ok(config) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "certificate read again");
                    loaded.config = config;
                }
                Err(error) => {
                    tracing::warn!(%error, "the certificate that was read before stays in use")
                }
            }
        }
        Arc::clone(&loaded.config)
    }
}

/// Ends a connection so that the client reads what was written: a socket that is closed while it has unread bytes resets
/// its connection, and the client would lose the reason.
/// It takes up to 1 s.
pub async fn hang_up(mut stream: TcpStream) {
    let drained = async {
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // Whoever takes longer does without.
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
    // Each connection proves its certificate anew: a resumed one would outlive it.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
