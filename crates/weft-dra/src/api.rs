//! Requests to the API server, as the service account of this pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use weft_guard::tls::{Connector, TlsClientFiles};

/// The time limit for a request, its connection included.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer: etcd's limit for an object is 1.5 MiB.
const MAX_ANSWER: usize = 4 << 20;

/// An API server.
#[derive(Debug)]
pub(crate) struct Api {
    host: String,
    port: u16,
    connector: Connector,
    /// Kubelet replaces its content before it expires.
    token: PathBuf,
}

impl Api {
    /// Reads the certificate of the server's authority. `account` is the folder of the service account.
    ///
    /// # Errors
    /// It is missing, or no certificate.
    pub(crate) fn new(host: String, port: u16, account: &Path) -> Result<Self> {
        let files = TlsClientFiles { authorities: account.join("ca.crt"), identity: None };
        let connector = Connector::new(files)?;
        Ok(Self { host, port, connector, token: account.join("token") })
    }

    /// Returns an object; `None` if there is none.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        self.call(Method::GET, path, None).await
    }

    /// Creates or replaces an object.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub(crate) async fn write(&self, method: Method, path: &str, object: &Value) -> Result<()> {
        let answer = self.call(method, path, Some(object.to_string())).await?;
        answer.map(drop).with_context(|| format!("the API server has no {path}"))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Option<Value>> {
        let what = format!("{method} {path} at {}:{}", self.host, self.port);
        let exchange = timeout(LIMIT, self.exchange(method, path, body));
        let (status, answer) =
            exchange.await.map_err(|_| anyhow!("{what}: no answer"))?.context(what.clone())?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                Ok(Some(serde_json::from_slice(&answer).context(what)?))
            }
            status => bail!("{what}: {status}: {}", String::from_utf8_lossy(&answer).trim()),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes)> {
        let token = fs::read_to_string(&self.token).context("cannot read the token")?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let stream = self.connector.connect(&self.host, stream).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|error| anyhow!("{error}"))?.to_bytes()))
    }
}
