//! HTTP, as little of it as a monitor and daemons need: short requests, whole answers, on both sides.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

/// What somebody wants.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) is_post: bool,
    pub(crate) path: String,
    pub(crate) query: String,
    /// The token that comes with it.
    pub(crate) token: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// What they get.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
}

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";
pub(crate) const JSON: &str = "application/json";
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

impl Reply {
    pub(crate) fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: StatusCode::OK, kind, body: body.into() }
    }

    pub(crate) fn json(value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(JSON, body),
            Err(error) => Self::refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    pub(crate) fn refuse(status: StatusCode, why: &str) -> Self {
        Self { status, kind: TEXT, body: format!("{why}\n").into_bytes() }
    }
}

/// Whoever shows the token may change something, where there is a token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    pub(crate) token: Option<String>,
    /// Bytes that a request's body may have with the token; without, it may have 64 KiB.
    pub(crate) longest: usize,
}

impl Trust {
    /// # Errors
    /// How `who` refuses whoever shows this, or nothing.
    pub(crate) fn check(&self, shown: Option<&str>, who: &str) -> Result<(), Reply> {
        let Some(token) = &self.token else {
            let why = format!("this one takes no orders: start {who} with --token-file");
            return Err(Reply::refuse(StatusCode::FORBIDDEN, &why));
        };
        if shown.is_some_and(|shown| is_same(shown, token)) {
            return Ok(());
        }
        let why = format!("that is not the token that {who} was given");
        Err(Reply::refuse(StatusCode::UNAUTHORIZED, &why))
    }

    fn longest(&self, shown: Option<&str>) -> usize {
        let known = self.token.as_deref().zip(shown).is_some_and(|(token, it)| is_same(token, it));
        if known { self.longest.max(LONGEST_REQUEST) } else { LONGEST_REQUEST }
    }
}

/// In a time that does not tell where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differ == 0
}

/// Answers requests. It may block.
pub(crate) type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// Connections at a time; more wait.
const CONNECTIONS: usize = 128;
/// Bytes of a request's body.
const LONGEST_REQUEST: usize = 64 << 10;
/// Bytes of an agent's answer: a host with tens of thousands of channels.
const LONGEST_ANSWER: usize = 256 << 20;
/// How long a client may take to say what it wants.
const HEADERS_IN: Duration = Duration::from_secs(10);

/// Runs something that waits.
///
/// # Errors
/// The kernel has no descriptors left.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start the HTTP client")?.block_on(future))
}

/// Serves on a thread of its own until the program ends; gives where. `what` is served, for an error.
///
/// # Errors
/// The address cannot be listened at.
pub(crate) fn serve_beside(
    at: SocketAddr,
    what: &str,
    trust: Trust,
    handler: Handler,
) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(at)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .with_context(|| format!("cannot serve {what} at {at}"))?;
    let at = listener.local_addr().context("a listener has an address")?;
    let serve = move || {
        block_on(async {
            serve(TcpListener::from_std(listener)?, trust, handler).await;
            anyhow::Ok(())
        })
    };
    thread::Builder::new().name("http".into()).spawn(serve).context("cannot start a thread")?;
    Ok(at)
}

/// Serves until the program ends.
pub(crate) async fn serve(listener: TcpListener, trust: Trust, handler: Handler) {
    let trust = Arc::new(trust);
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: some are given back soon.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (trust, handler) = (Arc::clone(&trust), Arc::clone(&handler));
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, &trust, Arc::clone(&handler)));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADERS_IN);
            // Whoever hangs up in the middle does without.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

async fn answer(
    request: hyper::Request<Incoming>,
    trust: &Trust,
    handler: Handler,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let reply = match read(request, trust).await {
        Ok(request) => {
            let handled = tokio::task::spawn_blocking(move || handler(&request)).await;
            handled.unwrap_or_else(|error| {
                Reply::refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
            })
        }
        Err(reply) => reply,
    };
    let mut response = hyper::Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Browsers ask this server for everything, and nobody else for anything.
    let only_here = "default-src 'self'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(only_here));
    Ok(response)
}

async fn read(request: hyper::Request<Incoming>, trust: &Trust) -> Result<Request, Reply> {
    let is_post = match *request.method() {
        Method::GET | Method::HEAD => false,
        Method::POST => true,
        _ => return Err(Reply::refuse(StatusCode::METHOD_NOT_ALLOWED, "GET or POST")),
    };
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let body = Limited::new(request.into_body(), trust.longest(token.as_deref()));
    let body = tokio::time::timeout(HEADERS_IN, body.collect()).await;
    match body {
        Ok(Ok(body)) => Ok(Request { is_post, path, query, token, body: body.to_bytes().to_vec() }),
        _ => {
            Err(Reply::refuse(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long or too slow"))
        }
    }
}

/// Somebody who serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    /// `host:port`.
    pub(crate) host: &'a str,
    /// The command that serves there, for errors.
    pub(crate) command: &'static str,
    /// How long an answer may take.
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
        token: Option<&str>,
    ) -> Result<Vec<u8>> {
        let patience = self.patience;
        let exchanged = tokio::time::timeout(patience, self.exchange(path, body, token)).await;
        exchanged.map_err(|_| anyhow!("no answer of {} in {patience:?}", self.host))?
    }

    async fn exchange(
        self,
        path: &str,
        body: Option<Vec<u8>>,
        token: Option<&str>,
    ) -> Result<Vec<u8>> {
        let Self { host, command, .. } = self;
        let reach = || format!("cannot reach {host}: is `{command}` running there?");
        let stream = TcpStream::connect(host).await.with_context(reach)?;
        let broke = || {
            format!("{host} hung up before it had answered: is `{command}` still running there?")
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(broke)?;
        tokio::spawn(connection);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = hyper::Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let response = sender.send_request(request.body(body)?).await.with_context(broke)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body =
            body.map_err(|error| anyhow!("{error}")).with_context(broke)?.to_bytes().to_vec();
        if !status.is_success() {
            bail!("{status}: {}", String::from_utf8_lossy(&body).trim());
        }
        Ok(body)
    }
}
