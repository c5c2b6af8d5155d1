//! HTTP for the monitor and the daemons: short requests and whole responses, as server and as client.
//!
//! | task | file |
//! | --- | --- |
//! | serving | here; connections, `weft_guard::serve_each` |
//! | rights to read and to give orders, accepted host names, TLS | `access.rs` |
//! | refusal of requests that pages of other sites send | `origin.rs` |
//! | disconnection of clients that do not read | `write_timeout.rs` |
//! | client | `client.rs` |

mod access;
mod client;
mod origin;
#[cfg(any(test, fuzzing))]
pub mod properties;
#[cfg(test)]
mod tests;
mod write_timeout;

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Context;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, LOCATION,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weft_guard::serve_each;
use weft_guard::tls::{AcceptError, Acceptor};

pub(crate) use access::{Access, AccessOptions, Shown};
pub(crate) use client::{ClientOptions, Credentials, Server};
use write_timeout::WriteTimeout;

/// An HTTP request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) is_post: bool,
    pub(crate) path: String,
    pub(crate) query: String,
    /// The address of the client.
    pub(crate) peer: IpAddr,
    /// The credentials that the client shows.
    pub(crate) shown: Shown,
    pub(crate) body: Vec<u8>,
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
    /// The URL of the request at the server that answers it in place of this one.
    pub(crate) location: Option<String>,
}

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";
pub(crate) const JSON: &str = "application/json";
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// The path that says whether the daemon is alive, and the one that says whether it can do its work. Any client may read
/// both: probes of load balancers and kubelets carry no token, and the responses reveal nothing else.
pub(crate) const HEALTH: &str = "/healthz";
pub(crate) const READINESS: &str = "/readyz";
/// The response to HTTP without TLS on a server with TLS.
const USE_TLS: &str = "this server speaks HTTPS: use https://, and --ca FILE with its authority\n";

impl Reply {
    pub(crate) fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: StatusCode::OK, kind, body: body.into(), location: None }
    }

    pub(crate) fn json(value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(JSON, body),
            Err(error) => Self::refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    pub(crate) fn refuse(status: StatusCode, why: &str) -> Self {
        Self { status, kind: TEXT, body: format!("{why}\n").into_bytes(), location: None }
    }

    /// Sends the client to another server, whose URL is given without a path, with the same request.
    pub(crate) fn redirect(server: &str, request: &Request, why: &str) -> Self {
        let Request { path, query, .. } = request;
        let mark = if query.is_empty() { "" } else { "?" };
        let location = Some(format!("{}{path}{mark}{query}", server.trim_end_matches('/')));
        Self { location, ..Self::refuse(StatusCode::TEMPORARY_REDIRECT, why) }
    }
}

/// A function that answers requests. It may block.
pub(crate) type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// Maximum number of concurrent connections, including those whose TLS handshake has not ended; more wait.
const MAX_CONNECTIONS: usize = 128;
/// The longest body of a request, bytes.
const MAX_REQUEST: usize = 64 << 10;
/// The time limit for a client to send its headers, again to send its body, and again to accept a part of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a future to its end on this thread.
///
/// # Errors
/// Returns an error if the kernel has no descriptors left.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start the HTTP client")?.block_on(future))
}

/// Serves on a thread of its own until the program ends; returns the address. Calls of `listener` do not wait.
///
/// # Errors
/// Returns an error if the system has no thread.
pub(crate) fn serve_beside(
    listener: std::net::TcpListener,
    access: Access,
    handler: Handler,
) -> Result<SocketAddr> {
    let at = listener.local_addr().context("a listener has an address")?;
    let serve = move || {
        block_on(async {
            serve(TcpListener::from_std(listener)?, access, handler).await;
            anyhow::Ok(())
        })
    };
    thread::Builder::new().name("http".into()).spawn(serve).context("cannot start a thread")?;
    Ok(at)
}

/// Serves until the program ends.
pub(crate) async fn serve(listener: TcpListener, access: Access, handler: Handler) {
    let access = Arc::new(access);
    let poll_accept = |context: &mut Context<'_>| listener.poll_accept(context);
    let serve = |(stream, peer): (TcpStream, SocketAddr)| {
        serve_client(stream, peer.ip(), Arc::clone(&access), Arc::clone(&handler))
    };
    serve_each(MAX_CONNECTIONS, poll_accept, serve).await;
}

/// Serves a client at `peer`, after the handshake if TLS is on.
async fn serve_client(stream: TcpStream, peer: IpAddr, access: Arc<Access>, handler: Handler) {
    // A client that has closed the connection gets no response.
    let Ok(local) = stream.local_addr() else { return };
    let connection = ConnectionInfo { local: local.ip(), peer, is_certified: false };
    let Some(acceptor) = access.tls().cloned() else {
        return serve_one(stream, connection, access, handler).await;
    };
    match acceptor.accept(stream).await {
        Ok(stream) => {
            let is_certified = Acceptor::is_certified(&stream);
            let connection = ConnectionInfo { is_certified, ..connection };
            serve_one(stream, connection, access, handler).await;
        }
        Err(AcceptError::Clear(stream)) => refuse_clear(stream).await,
        Err(error) => tracing::debug!(%peer, %error, "no TLS connection"),
    }
}

/// Serves a connection, encrypted or not, until the client ends it.
async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    connection: ConnectionInfo,
    access: Arc<Access>,
    handler: Handler,
) {
    let service = service_fn(|request| answer(request, connection, &access, Arc::clone(&handler)));
    let stream = TokioIo::new(WriteTimeout::new(stream, REQUEST_TIMEOUT));
    // A client that closes the connection early gets no more.
    let _ = http1().serve_connection(stream, service).await;
}

/// Returns the parameters of every connection.
fn http1() -> hyper::server::conn::http1::Builder {
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT);
    // With vectored writes, hyper 1.12 takes the next request while the response to the previous one waits for a client
    // that reads slowly. It may then wait without end, even after the client has gone, or write its response to a bad
    // request into the previous response.
    server.writev(false);
    server
}

/// Answers a client that sends HTTP to a server with TLS.
async fn refuse_clear(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: {TEXT}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{USE_TLS}",
        USE_TLS.len()
    );
    // The response is lost if the client does not read it.
    let _ = tokio::time::timeout(REQUEST_TIMEOUT, stream.write_all(answer.as_bytes())).await;
    weft_guard::tls::lingering_close(stream).await;
}

/// The addresses of a connection, and the client's authentication by TLS.
#[derive(Clone, Copy, Debug)]
struct ConnectionInfo {
    local: IpAddr,
    peer: IpAddr,
    /// `true` if the client's certificate was issued by one of the authorities for clients.
    is_certified: bool,
}

async fn answer(
    request: hyper::Request<Incoming>,
    connection: ConnectionInfo,
    access: &Access,
    handler: Handler,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let reply = match read(request, connection, access).await {
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
    if let Some(Ok(location)) = reply.location.map(HeaderValue::try_from) {
        headers.insert(LOCATION, location);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Pages may load from this server only, and no other page may embed them.
    let only_here = "default-src 'self'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(only_here));
    Ok(response)
}

async fn read(
    request: hyper::Request<Incoming>,
    connection: ConnectionInfo,
    access: &Access,
) -> Result<Request, Reply> {
    let (uri, headers, version) = (request.uri(), request.headers(), request.version());
    let host = access.check_host(uri, headers, version, connection.local)?;
    let is_post = match *request.method() {
        Method::GET | Method::HEAD => false,
        Method::POST => true,
        _ => return Err(Reply::refuse(StatusCode::METHOD_NOT_ALLOWED, "GET or POST")),
    };
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let shown = Shown { token, is_certified: connection.is_certified };
    if is_post {
        origin::check_origin(request.headers(), access.scheme(), host.as_ref())?;
    } else if ![HEALTH, READINESS].contains(&path.as_str()) {
        access.check_read(&shown, connection.peer)?;
    }
    let body = Limited::new(request.into_body(), access.max_body(&shown));
    let body = tokio::time::timeout(REQUEST_TIMEOUT, body.collect()).await;
    match body {
        Ok(Ok(body)) => {
            let (peer, body) = (connection.peer, body.to_bytes().to_vec());
            Ok(Request { is_post, path, query, peer, shown, body })
        }
        _ => {
            Err(Reply::refuse(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long or too slow"))
        }
    }
}
