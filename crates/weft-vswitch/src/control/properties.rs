//! Properties of the lines of a client of the control socket, for any bytes. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use super::connection::Lines;
use super::{Answer, Request, line_of};
use crate::inputs::Script;

/// Receives a client's bytes in pieces of the length that the first byte gives. Every request is written and read
/// back. Returns `true` if there was one.
///
/// # Panics
/// If the lines differ from those sent, or a request changes when written and read back.
pub fn control_socket(bytes: &[u8]) -> bool {
    let mut script = Script::new(bytes);
    let cut = 1 + script.below(256);
    let sent = script.rest();
    let mut received = Lines::default();
    let mut lines = vec![];
    for piece in sent.chunks(cut.max(sent.len() / 16)) {
        received.push(piece);
        lines.extend(std::iter::from_fn(|| received.next_line()));
    }
    assert!(received.next_line().is_none());
    let expected = sent.split_inclusive(|&byte| byte == b'\n').filter(|it| it.ends_with(b"\n"));
    assert!(lines.iter().map(|it| it.as_deref().expect("a short line")).eq(expected));
    lines.iter().flatten().map(|line| request(line)).fold(false, |any, is_one| any | is_one)
}

/// Parses a line as a request. Returns `true` if it is one.
fn request(line: &[u8]) -> bool {
    match serde_json::from_slice::<Request>(line) {
        Ok(request) => {
            let again = serde_json::to_vec(&request).expect("it has no map with other keys");
            assert!(!again.contains(&b'\n'), "a request is one line");
            let again: Request = serde_json::from_slice(&again).expect("it was a request");
            assert_eq!(again, request);
            true
        }
        Err(error) => {
            let answer = line_of(&Answer::Refused(error.to_string()));
            let ends = answer.iter().filter(|&&byte| byte == b'\n').count();
            assert!(ends == 1 && answer.ends_with(b"\n"), "an answer is one line");
            false
        }
    }
}

#[test]
fn no_client_violates_a_property() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = crate::inputs::corpus(&file.join("tests/golden/control_socket.corpus"));
    let requests = crate::inputs::survive(&corpus, 20_000, control_socket);
    assert!(requests > 250, "only {requests} were requests: the mutants are too wild");
}
