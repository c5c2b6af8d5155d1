//! Asking a server.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use weft_guard::Token;

/// Bytes of an agent's answer: a host with tens of thousands of channels.
const MAX_ANSWER: usize = 256 << 20;

/// Somebody who serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    /// `host:port`.
    pub(crate) host: &'a str,
    /// The command that serves there, for errors.
    pub(crate) command: &'static str,
    /// Time limit of an answer.
    pub(crate) patience: Duration,
}

impl<'a> Server<'a> {
    /// A host's `weft monitor agent`.
    pub(crate) const fn agent(host: &'a str) -> Self {
        Self { host, command: "weft monitor agent", patience: Duration::from_secs(5) }
    }

    /// Gets `path`, or posts `body` there.
    ///
    /// # Errors
    /// Nobody answers in time, or with something else than success: then with its words.
    pub(crate) async fn fetch(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        token: Option<&Token>,
    ) -> Result<Vec<u8>> {
        let patience = self.patience;
        let exchanged = tokio::time::timeout(patience, self.exchange(path, body, token)).await;
        exchanged.map_err(|_| anyhow!("no answer of {} in {patience:?}", self.host))?
    }

    async fn exchange(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        token: Option<&Token>,
    ) -> Result<Vec<u8>> {
        let Self { host, command, .. } = self;
        let reach = || format!("cannot reach {host}: is `{command}` running there?");
        let stream = TcpStream::connect(host).await.with_context(reach)?;
        // A server answers to its address, whatever name it was found by.
        let at = stream.peer_addr().with_context(reach)?.to_string();
        let broke = || {
            format!("{host} hung up before it had answered: is `{command}` still running there?")
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(broke)?;
        tokio::spawn(connection);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = hyper::Request::builder().method(method).uri(path).header(HOST, at);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let response = sender.send_request(request.body(body)?).await.with_context(broke)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body =
            body.map_err(|error| anyhow!("{error}")).with_context(broke)?.to_bytes().to_vec();
        if !status.is_success() {
            bail!("{status}: {}", String::from_utf8_lossy(&body).trim());
        }
        Ok(body)
    }
}
