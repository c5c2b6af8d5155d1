//! The properties of every request to a node and of every response. Tests and fuzz targets call them.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::convert::Infallible;

use super::{read_request, read_settings, render, write_request};

/// Parses bytes as a request and as a response's settings, and checks that a parsed value stays the same when it is
/// written and parsed again. Returns `true` if the bytes are a request.
///
/// # Panics
/// Panics if a request or a response changes.
pub fn orders(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    // `str::lines` drops a carriage return at the end of a line, so a text that has one may change the first time.
    let has_returns = text.contains('\r');
    let request = read_request(text);
    if let Some(request) = &request
        && !has_returns
    {
        assert_eq!(read_request(&write_request(request)).as_ref(), Some(request));
    }
    if let Some(settings) = read_settings(text) {
        let again = render::<Infallible>(&Ok(settings.clone()));
        let again = again.strip_prefix("ok\n").expect("it is an answer");
        assert!(has_returns || read_settings(again) == Some(settings));
    }
    request.is_some()
}

#[test]
fn no_request_breaks_a_property() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = crate::inputs::corpus(&folder.join("tests/golden/orders.corpus"));
    let requests = crate::inputs::survive(&corpus, 20_000, orders);
    assert!(requests > 500, "only {requests} were orders: the mutants are too wild");
}
