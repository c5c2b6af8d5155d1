//! Properties of the HTTP server that hold for all requests. Tests and fuzz targets call them.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::cell::RefCell;
use std::sync::{LazyLock, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use weft_guard::Token;

use super::*;

/// The byte of an input that stands for the token, which no client can guess.
const TOKEN_MARK: u8 = 1;
/// A host name of the server.
const NAME: &str = "weft.example";
/// The address that clients connect to, a remote client's address, and a local one's.
const LOCAL: [u8; 4] = [10, 9, 8, 7];
const FAR: [u8; 4] = [192, 0, 2, 66];
const NEAR: [u8; 4] = [127, 0, 0, 1];
/// The longest body with the token, bytes.
const MAX_BODY: usize = 80 << 10;

/// The token that orders need.
static TOKEN: LazyLock<Token> = LazyLock::new(|| Token::random().expect("there is randomness"));

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("it has threads")
    );
}

/// Sends bytes to a server as a connection delivers them. Bits 0 and 1 of the first byte choose the client's address
/// and permission for anyone to read. Returns `true` if a request reached the handler.
///
/// # Panics
/// Panics if the server panics or does not end, if a read or an order is carried out without the right to it, or if the
/// response is malformed.
pub fn http(bytes: &[u8]) -> bool {
    let (&flags, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let sent = &with_token(bytes)[..];
    let (is_far, anyone_may_read) = (flags & 1 != 0, flags & 2 != 0);
    let access = Access::with(&TOKEN, anyone_may_read, NAME).with_max_body(MAX_BODY);
    let peer = if is_far { FAR } else { NEAR }.into();
    let connection = ConnectionInfo { local: LOCAL.into(), peer, is_certified: false };
    let handled = Arc::new(Mutex::new(vec![]));
    let handler: Handler = {
        let (handled, access) = (Arc::clone(&handled), access.clone());
        // The handler must not panic, because the server would answer that; the requests are checked below.
        Arc::new(move |request: &Request| {
            let is_ordered = request.is_post && access.check_order(&request.shown, "it").is_ok();
            handled.lock().expect("nobody panics").push(HandledRequest {
                is_post: request.is_post,
                is_ordered,
                has_token: request.shown.token.as_deref() == Some(TOKEN.reveal()),
                body_len: request.body.len(),
            });
            Reply::new(TEXT, "done\n")
        })
    };
    let conversation = converse(sent, connection, Arc::new(access), handler);
    let answers = RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async { tokio::time::timeout(REQUEST_TIMEOUT, conversation).await })
    });
    let answers = answers.expect("a server ends after a client that sends nothing more");
    let handled = core::mem::take(&mut *handled.lock().expect("nobody panics"));
    for it in &handled {
        let may_read = !is_far || anyone_may_read || it.has_token;
        assert!(it.is_post || may_read, "another host reads without the token: {it:?}");
        assert!(it.body_len <= if it.has_token { MAX_BODY } else { MAX_REQUEST }, "{it:?}");
        assert!(!it.is_ordered || it.has_token, "an order without the token: {it:?}");
    }
    check(sent, &answers, &handled);
    !handled.is_empty()
}

/// A request that reached the handler.
#[derive(Debug)]
struct HandledRequest {
    is_post: bool,
    is_ordered: bool,
    has_token: bool,
    body_len: usize,
}

/// Returns the input's bytes, with the token in its places.
fn with_token(bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::with_capacity(bytes.len() + 64);
    for &byte in bytes {
        match byte {
            TOKEN_MARK => sent.extend_from_slice(TOKEN.reveal().as_bytes()),
            byte => sent.push(byte),
        }
    }
    sent
}

/// Sends a server bytes and the end of the connection; returns its responses.
async fn converse(
    sent: &[u8],
    connection: ConnectionInfo,
    access: Arc<Access>,
    handler: Handler,
) -> Vec<u8> {
    let (mut client, server) = duplex(sent.len().max(1) + 64);
    let service = service_fn(move |request| {
        let (access, handler) = (Arc::clone(&access), Arc::clone(&handler));
        async move { answer(request, connection, &access, handler).await }
    });
    let serving = tokio::spawn(async move {
        let _ = http1().serve_connection(TokioIo::new(server), service).await;
    });
    let mut answers = vec![];
    client.write_all(sent).await.expect("there is room");
    // Nothing more is sent; the responses are still read.
    let _ = client.shutdown().await;
    let _ = client.read_to_end(&mut answers).await;
    serving.await.expect("the server does not panic");
    answers
}

/// Checks the responses against the bytes themselves, without a parser.
fn check(sent: &[u8], answers: &[u8], handled: &[HandledRequest]) {
    let text = String::from_utf8_lossy(sent).to_ascii_lowercase();
    let token = TOKEN.reveal();
    let named = ["localhost", NAME, "127.", "::1", "::ffff:", "10.9.8.7", "http/1.0"];
    let is_named = named.iter().any(|name| text.contains(name));
    assert!(handled.is_empty() || is_named, "it answered to another name");
    assert!(text.contains(token) || handled.iter().all(|it| !it.is_ordered), "who ordered it?");
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "no answer");
    let shown = answers.windows(token.len()).any(|it| it == token.as_bytes());
    assert!(!shown || text.contains(token), "the response has the token");
}

#[cfg(test)]
#[path = "../../../weft-units/tests/inputs/mod.rs"]
mod inputs;

#[cfg(test)]
#[test]
fn no_client_reads_or_orders_without_the_right() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/http.corpus");
    let answered = inputs::survive(&inputs::corpus(&file), 5_000, http);
    assert!(answered > 100, "only {answered} asked for anything: the mutants are too wild");
}
