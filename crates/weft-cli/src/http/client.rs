//! HTTP client, over TLS if the URL or an authority's file requires it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{AUTHORIZATION, HOST, LOCATION};
use hyper::{HeaderMap, Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use weft_guard::Token;
use weft_guard::tls::{Connector, TlsClientFiles};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The time limit for a connection. A host that has died does not refuse it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of servers to which a request is sent on.
const MAX_REDIRECTS: usize = 3;

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
    /// `host:port`, `http://host:port` or `https://host:port`; several, separated by commas, are tried in their order until
    /// one is reached.
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

    /// Sends a GET request for `path`, or a POST request with `body`, and returns the body of the response. A server that
    /// sends the request on to another is followed; that one must authenticate as this one must.
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
        let mut failed = None;
        for host in self.host.split(',').map(str::trim) {
            match (Server { host, ..self }).follow(path, body.clone(), credentials).await {
                Err(error) if error.is::<Unreached>() => failed = failed.or(Some(error)),
                answer => return answer,
            }
        }
        Err(failed.unwrap_or_else(|| anyhow!("no server is named")))
    }

    /// Sends a request to a server, and to those that it names in its place.
    async fn follow(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        credentials: &Credentials,
    ) -> Result<Vec<u8>> {
        let timeout = self.timeout;
        let (mut host, mut path) = (self.host.to_owned(), path.to_owned());
        for _ in 0..=MAX_REDIRECTS {
            let server = Server { host: &host, ..self };
            let exchanged = server.exchange(&path, body.clone(), credentials);
            let exchanged = tokio::time::timeout(timeout, exchanged).await;
            match exchanged.map_err(|_| anyhow!("no answer of {host} in {timeout:?}"))?? {
                Answer::Body(body) => return Ok(body),
                Answer::Elsewhere { server, request } => (host, path) = (server, request),
            }
        }
        bail!("{} sends the request on more than {MAX_REDIRECTS} times", self.host)
    }

    async fn exchange(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        credentials: &Credentials,
    ) -> Result<Answer> {
        let Self { host, command, .. } = self;
        let (at, tls) = destination(host, credentials.tls.as_deref())?;
        let reach = || Unreached { host: host.to_owned(), command };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(at)).await;
        let stream =
            connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())).with_context(reach)?;
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

    /// Sends a request over a connection, encrypted or not, and returns the body of a successful response, or the server to
    /// which the request is sent on. `explain` returns the TLS cause of an error of the connection.
    async fn ask(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: hyper::Request<Full<Bytes>>,
        explain: impl Fn(&(dyn std::error::Error + 'static)) -> Option<Error>,
    ) -> Result<Answer> {
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
        if status == StatusCode::TEMPORARY_REDIRECT {
            return elsewhere(response.headers())
                .with_context(|| format!("{host} sends the request on to no server"));
        }
        let body = self.collect(response.into_body(), broke).await?.to_bytes().to_vec();
        if !status.is_success() {
            bail!("{status}: {}", String::from_utf8_lossy(&body).trim());
        }
        Ok(Answer::Body(body))
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

/// A response to a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The body of a successful one.
    Body(Vec<u8>),
    /// Another server answers the request.
    Elsewhere {
        /// Its URL without a path.
        server: String,
        /// The path and query.
        request: String,
    },
}

/// A server that cannot be reached: another one may be.
#[derive(Debug)]
struct Unreached {
    host: String,
    command: &'static str,
}

impl std::fmt::Display for Unreached {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "cannot reach {}: is `{}` running there?", self.host, self.command)
    }
}

/// Returns the server that answers a request in place of the one with these headers.
fn elsewhere(headers: &HeaderMap) -> Option<Answer> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    let after = location.find("://")? + "://".len();
    let slash = after + location.get(after..)?.find('/')?;
    let (server, request) = location.split_at(slash);
    let is_http = server.starts_with("http://") || server.starts_with("https://");
    is_http.then(|| Answer::Elsewhere { server: server.to_owned(), request: request.to_owned() })
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
    fn a_request_is_sent_on_to_a_server_and_its_path() {
        let to = |location: &'static str| {
            let headers = [(LOCATION, hyper::header::HeaderValue::from_static(location))];
            elsewhere(&headers.into_iter().collect())
        };
        let (server, request) = ("https://b:7490".to_owned(), "/v1/jobs?job=a".to_owned());
        let elsewhere = Answer::Elsewhere { server, request };
        assert_eq!(to("https://b:7490/v1/jobs?job=a"), Some(elsewhere));
        for nowhere in ["/v1/jobs", "http://b:7490", "file:///etc/passwd", ""] {
            assert_eq!(to(nowhere), None, "{nowhere}");
        }
    }

    /// Answers one request with these bytes.
    fn answering(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        at
    }

    #[test]
    fn the_first_server_that_is_reached_answers_or_sends_on() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let leader = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into());
        let other = answering(format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{leader}/v1/picture\r\nContent-Length: 0\r\n\r\n"
        ));
        let fetch = |hosts: &str| {
            let server = Server { timeout: Duration::from_secs(20), ..Server::agent(hosts) };
            block_on(server.fetch("/v1/picture", None, &Credentials::default())).unwrap()
        };
        assert_eq!(fetch(&format!("{gone}, {other}")).unwrap(), b"ok");
        let error = format!("{:#}", fetch(&gone.to_string()).unwrap_err());
        assert!(
            error.starts_with(&format!("cannot reach {gone}: is `weft monitor agent`")),
            "{error}"
        );
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
