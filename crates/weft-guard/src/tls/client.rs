//! The client side of TLS: handshakes, and error messages that name the cause and the fix.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{PROTOCOL, TlsError, VERSIONS, pem, provider};

/// The PEM files with which a client uses TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsClientFiles {
    /// The certificates of the authorities that a server's certificate must chain to.
    pub authorities: PathBuf,
    /// The client's certificate and its key, for servers that require one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A factory of TLS connections.
#[derive(Debug)]
pub struct Connector {
    files: TlsClientFiles,
    config: Arc<ClientConfig>,
}

impl Connector {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns every variant except `Name` and `Refused`, with the file.
    pub fn new(files: TlsClientFiles) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| TlsError::Refused(error.to_string()))?
            .with_root_certificates(pem::authorities(&files.authorities)?);
        let mut config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(pem::chain(certificate)?, pem::key(key)?)
                .map_err(|error| TlsError::Pair {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    reason: error.to_string(),
                })?,
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { files, config: Arc::new(config) })
    }

    /// Offers another application protocol in the handshake (ALPN) than HTTP/1.1, such as `h2`.
    #[must_use]
    pub fn with_protocol(mut self, protocol: &[u8]) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![protocol.to_vec()];
        self
    }

    /// Performs the handshake with the server `name`, a host name or an address that its certificate must contain. It
    /// has no timeout.
    ///
    /// # Errors
    /// Returns `Name`, or `Refused` with the reason and the fix.
    pub async fn connect(
        &self,
        name: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let server =
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(server, stream).await.map_err(|error| {
            self.explain(name, &error).unwrap_or_else(|| {
                TlsError::Refused(format!("{name} broke off the TLS handshake: {error}"))
            })
        })
    }

    /// Returns the TLS cause of an error on a connection to the server `name`; `None` if TLS is not the cause. A server
    /// refuses a client's certificate only after the client's side of the handshake has ended, so a later read or write
    /// may fail with that error.
    pub fn explain(&self, name: &str, error: &(dyn Error + 'static)) -> Option<TlsError> {
        let words = match cause(error)? {
            rustls::Error::InvalidCertificate(error) => self.rejection(name, error),
            rustls::Error::AlertReceived(alert) => self.refusal(name, *alert),
            rustls::Error::InvalidMessage(_) => format!(
                "{name} speaks no TLS there: use http://, or start it with --tls-certificate and --tls-key"
            ),
            other => format!("{name} and this client find no common TLS: {other}"),
        };
        Some(TlsError::Refused(words))
    }

    /// Returns the reason for which a server's certificate was rejected.
    fn rejection(&self, name: &str, error: &CertificateError) -> String {
        use CertificateError as It;
        let authorities = self.files.authorities.display();
        match error {
            It::UnknownIssuer | It::BadSignature => format!(
                "the certificate of {name} was not issued by an authority in {authorities}: give --ca the one that issued \
                 it"
            ),
            It::Expired | It::ExpiredContext { .. } => {
                format!("the certificate of {name} has expired: renew it there")
            }
            It::NotValidYet | It::NotValidYetContext { .. } => {
                format!(
                    "the certificate of {name} is not valid yet: compare the clocks of both hosts"
                )
            }
            It::NotValidForName | It::NotValidForNameContext { .. } => format!(
                "the certificate of {name} is for other names ({error}): reach it by one of them, or have another issued"
            ),
            _ => format!("the certificate of {name} cannot be trusted: {error}"),
        }
    }

    /// Returns the reason for which a server refused this client.
    fn refusal(&self, name: &str, alert: AlertDescription) -> String {
        use AlertDescription as It;
        let shown = self.files.identity.as_ref().map(|(certificate, _)| certificate.display());
        match (alert, shown) {
            (It::CertificateRequired, _) | (_, None) => format!(
                "{name} wants a client's certificate ({alert:?}): give --certificate and --key"
            ),
            (It::UnknownCA | It::DecryptError, Some(shown)) => format!(
                "{name} does not know the authority that issued {shown}: have the certificate issued by one of its \
                 --tls-clients"
            ),
            (It::CertificateExpired, Some(shown)) => {
                format!("{name} refuses {shown}, which has expired: renew it")
            }
            (_, Some(shown)) => format!("{name} refuses {shown}: {alert:?}"),
        }
    }
}

/// Returns the rustls error behind an error. The error that an `io::Error` wraps is not among its sources.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}
