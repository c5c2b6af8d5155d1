//! HTTP client, over TLS if the URL or an authority's file requires it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::Method;
use hyper::body::{Body, Bytes};
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use weft_guard::Token;
use weft_guard::tls::{Connector, TlsClientFiles};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest response, bytes: enough for an agent of a host with tens of thousands of channels.
const MAX_ANSWER: usize = 256 << 20;

/// Command-line options of an HTTP client.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClientOptions {
    /// A file with the token that the server was given
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Speak HTTPS with servers whose certificate was issued by these authorities, a PEM file
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show to servers that were started with --tls-clients, a PEM file
    #[arg(long, value_name = "FILE", global = true, requires = "key", requires = "ca")]
    pub(crate) certificate: Option<PathBuf>,
    /// The certificate's private key, a PEM file of mode 0600
    #[arg(long, value_name = "FILE", global = true, requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
}

/// The credentials that a client shows to servers, and the authorities that it trusts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    token: Option<Token>,
    tls: Option<Arc<Connector>>,
}

impl ClientOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error if one of the files cannot be read, has the wrong contents, or is open to other users.
    pub(crate) fn read(&self) -> Result<Credentials> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        let identity = self.certificate.clone().zip(self.key.clone());
        let files = self.ca.clone().map(|authorities| TlsClientFiles { authorities, identity });
        let tls = files.map(Connector::new).transpose()?.map(Arc::new);
        Ok(Credentials { token, tls })
    }

    /// Returns `true` if no option was given.
    pub(crate) const fn is_empty(&self) -> bool {
        self.token_file.is_none()
            && self.ca.is_none()
            && self.certificate.is_none()
            && self.key.is_none()
    }
}

/// A server to send requests to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    /// `host:port`, `http://host:port` or `https://host:port`.
    pub(crate) host: &'a str,
    /// The command that serves there, for errors.
    pub(crate) command: &'static str,
    /// The time limit for a response.
    pub(crate) timeout: Duration,
}

impl<'a> Server<'a> {
    /// Returns a host's `weft monitor agent`.
    pub(crate) const fn agent(host: &'a str) -> Self {
        Self { host, command: "weft monitor agent", timeout: Duration::from_secs(5) }
    }

    /// Sends a GET request for `path`, or a POST request with `body`, and returns the body of the response.
    ///
    /// # Errors
    /// Returns an error if there is no response in time, or if its status is not success: then the error has its text.
    /// Nothing is sent if the URL and the credentials contradict each other, or if the server does not authenticate.
    pub(crate) async fn fetch(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        credentials: &Credentials,
    ) -> Result<Vec<u8>> {
        let timeout = self.timeout;
        let exchanged = self.exchange(path, body, credentials);
        let exchanged = tokio::time::timeout(timeout, exchanged).await;
        exchanged.map_err(|_| anyhow!("no answer of {} in {timeout:?}", self.host))?
    }

    async fn exchange(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        credentials: &Credentials,
    ) -> Result<Vec<u8>> {
        let Self { host, command, .. } = self;
        let (at, tls) = destination(host, credentials.tls.as_deref())?;
        let reach = || format!("cannot reach {host}: is `{command}` running there?");
        let stream = TcpStream::connect(at).await.with_context(reach)?;
        // The Host header is the server's address, which the server accepts whatever name resolved to it.
        let address = stream.peer_addr().with_context(reach)?.to_string();
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = hyper::Request::builder().method(method).uri(path).header(HOST, address);
        if let Some(token) = &credentials.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        let Some(connector) = tls else { return self.ask(stream, request, |_| None).await };
        let name = name(at);
        let stream = connector.connect(name, stream).await?;
        self.ask(stream, request, |error| connector.explain(name, error).map(Error::from)).await
    }

    /// Sends a request over a connection, encrypted or not, and returns the body of a successful response. `explain`
    /// returns the TLS cause of an error of the connection.
    async fn ask(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: hyper::Request<Full<Bytes>>,
        explain: impl Fn(&(dyn std::error::Error + 'static)) -> Option<Error>,
    ) -> Result<Vec<u8>> {
        let Self { host, command, .. } = self;
        let broke = |error: &(dyn std::error::Error + 'static)| {
            explain(error).unwrap_or_else(|| {
                anyhow!("{error}").context(format!(
                    "{host} hung up before it had answered: is `{command}` still running there?"
                ))
            })
        };
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| broke(&error))?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| broke(&error))?;
        let status = response.status();
        let body = self.collect(response.into_body(), broke).await?.to_bytes().to_vec();
        if !status.is_success() {
            bail!("{status}: {}", String::from_utf8_lossy(&body).trim());
        }
        Ok(body)
    }

    /// Collects the body of a response. The server may be hostile, so the length is limited. `broke` returns the cause
    /// of another error.
    async fn collect<B: Body<Data = Bytes, Error: Into<BoxError>>>(
        self,
        body: B,
        broke: impl Fn(&(dyn std::error::Error + 'static)) -> Error,
    ) -> Result<Collected<Bytes>> {
        let Self { host, command, .. } = self;
        Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                anyhow!("{host} answers with more than {MAX_ANSWER} bytes: is it a `{command}`?")
            } else {
                broke(&*error)
            }
        })
    }
}

/// Returns `host:port` of a URL, and the connector if the connection is encrypted.
fn destination<'a, 'b>(
    url: &'a str,
    tls: Option<&'b Connector>,
) -> Result<(&'a str, Option<&'b Connector>)> {
    let (at, tls) = match (url.strip_prefix("https://"), url.strip_prefix("http://"), tls) {
        (Some(_), _, None) => {
            bail!("{url} is known by the authority of its certificate: name that with --ca FILE")
        }
        (_, Some(_), Some(_)) => {
            bail!("{url} is not encrypted, and --ca requires it: use https://, or leave --ca out")
        }
        (Some(at), ..) | (_, Some(at), _) => (at.trim_end_matches('/'), tls),
        (None, None, tls) => (url, tls),
    };
    if at.contains('/') {
        bail!("{url} is no server: HOST:PORT, http://HOST:PORT or https://HOST:PORT is");
    }
    Ok((at, tls))
}

/// Returns the name or the address in `host:port`.
fn name(at: &str) -> &str {
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::pin::Pin;
    use std::task::{self, Poll};

    use hyper::body::Frame;

    use super::*;
    use crate::http::block_on;

    /// A body of equal frames, which share their memory.
    struct Frames {
        frame: Bytes,
        left: usize,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let left = self.left.checked_sub(1);
            Poll::Ready(left.map(|left| {
                self.left = left;
                Ok(Frame::data(self.frame.clone()))
            }))
        }
    }

    /// The attacker: a host whose agent was replaced, and which fills the memory of the program that asks it.
    #[test]
    fn an_answer_of_more_than_256_mib_is_refused() {
        let frame = Bytes::from(vec![0; 1 << 20]);
        let collect = |left| {
            let body = Frames { frame: frame.clone(), left };
            let broke = |error: &(dyn std::error::Error + 'static)| anyhow!("{error}");
            block_on(Server::agent("there:7475").collect(body, broke)).unwrap()
        };
        assert!(collect(256).is_ok());
        let Err(error) = collect(257) else { panic!("it is accepted") };
        let error = error.to_string();
        let words = ["there:7475", "more than 268435456 bytes", "weft monitor agent"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }

    /// The attacker: a host whose agent was replaced, and which delays the program that asks it.
    #[test]
    fn a_server_that_does_not_end_its_answer_is_given_up() {
        for begins in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap().to_string();
            let sending = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // Part of the request: the client is connected, and has sent it.
                stream.read_exact(&mut [0; 4]).unwrap();
                stream.write_all(begins.as_bytes()).unwrap();
                // The client ends the connection.
                while !begins.is_empty() && stream.write_all(b"x").is_ok() {}
                let _ = stream.read_to_end(&mut vec![]);
            });
            let server = Server { timeout: Duration::from_millis(100), ..Server::agent(&at) };
            let credentials = Credentials::default();
            let answer = block_on(async {
                let answer = server.fetch("/v1/report", None, &credentials);
                tokio::time::timeout(Duration::from_secs(60), answer).await
            });
            let error = answer.unwrap().expect("it ends").unwrap_err().to_string();
            assert!(error.contains(&format!("no answer of {at} in 100ms")), "{begins:?}: {error}");
            sending.join().unwrap();
        }
    }

    #[test]
    fn an_address_is_clear_unless_its_url_or_an_authority_requires_tls() {
        for (url, at, host) in [
            ("10.0.0.1:80", "10.0.0.1:80", "10.0.0.1"),
            ("http://weft.example:80/", "weft.example:80", "weft.example"),
            ("[::1]:80", "[::1]:80", "::1"),
        ] {
            let (got, tls) = destination(url, None).unwrap();
            assert_eq!((got, name(got), tls.is_none()), (at, host, true));
        }
        let fails = |url: &str| destination(url, None).unwrap_err().to_string();
        assert!(fails("https://10.0.0.1:80").contains("--ca FILE"));
        assert!(fails("10.0.0.1:80/path").contains("is no server"));
        assert!(fails("ftp://10.0.0.1:80").contains("is no server"));
    }
}
