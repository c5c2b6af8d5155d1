//! Properties of the lines of ranks and of rank 0, for every sender. Tests and fuzz targets call
//! this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::sync::LazyLock;

use super::*;
use crate::inputs::Script;
use crate::line::{Line, MAX_UNAUTHENTICATED_BYTES, Progress};

/// The byte that represents the token in scripts.
const TOKEN_BYTE: u8 = 1;

static TOKEN: LazyLock<Token> = LazyLock::new(|| Token::random().expect("there is randomness"));

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], 999))
}

/// Runs a script: a rank 0 with or without a token, the ranks that have joined, and then a caller's line. Returns
/// `true` if that is a rank's line and rank 0 accepts it.
///
/// # Panics
/// If a foreign process is accepted as a rank, or ends the job without the token; if a line's result depends on how it
/// is split.
pub fn rendezvous_line(bytes: &[u8]) -> bool {
    let mut script = Script::new(bytes);
    let flags = script.byte().unwrap_or(0);
    let ranks = 2 + usize::from(flags >> 1 & 7);
    let member = Member {
        rank: 0,
        ranks,
        port: 7000,
        address: None,
        agreement: "ranks=4".into(),
        token: (flags & 1 != 0).then(|| TOKEN.clone()),
        hello_timeout: Duration::from_secs(2),
    };
    let taken = script.byte().unwrap_or(0);
    let is_taken = |rank: usize| rank == 0 || taken >> (rank % 8) & 1 != 0;
    let joined: Vec<Joined> = (0..ranks)
        .map(|rank| is_taken(rank).then(|| (SocketAddr::from(([10, 0, 0, 1], 7000)), None)))
        .collect();
    let cut = 1 + script.below(64);
    let sent = expanded(script.rest());
    let Some(line) = read(&sent, cut, &member) else { return false };
    let text = String::from_utf8_lossy(&sent);
    let expected = text.split('\n').next().unwrap_or_default();
    assert_eq!(line, expected, "cut after each {cut} bytes");
    let token_word = member.token.as_ref().map_or(NO_TOKEN, Token::reveal);
    let words: Vec<&str> = line.split_whitespace().collect();
    let presents_token = words.first() == Some(&NAME) && words.get(1) == Some(&token_word);
    read_answer(&line, ranks).into_iter().for_each(|found| {
        assert_eq!(found.addresses.len(), ranks);
        assert!(line.starts_with(NAME));
    });
    match parse_caller(&line, peer(), &member, &joined) {
        Ok((rank, address)) => {
            assert!(presents_token && words.len() == 6 && words[5] == member.agreement);
            assert!(rank < ranks && !is_taken(rank));
            assert!(words[4] != "-" || address.ip() == peer().ip());
            true
        }
        Err(Unfit::Member(_)) => {
            assert!(presents_token && member.token.is_some(), "only a rank of the job ends it");
            false
        }
        Err(Unfit::Foreign(why)) => {
            let leaks_token = member.token.is_some() && why.contains(TOKEN.reveal());
            assert!(!leaks_token, "no answer contains the token");
            false
        }
    }
}

/// Returns the script's bytes, with the token in place of [`TOKEN_BYTE`].
fn expanded(bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::with_capacity(bytes.len() + 64);
    for &byte in bytes {
        match byte {
            TOKEN_BYTE => sent.extend_from_slice(TOKEN.reveal().as_bytes()),
            byte => sent.push(byte),
        }
    }
    sent
}

/// Returns the line of a caller that sends these bytes in pieces; `None` if they are too many or no whole line.
fn read(sent: &[u8], cut: usize, member: &Member) -> Option<String> {
    let mut line = Line::new();
    for piece in sent.chunks(cut.max(sent.len() / 16)) {
        match line.push(piece, |head| member.has_token(head)) {
            Progress::Waiting => {}
            Progress::Whole(line) => return Some(line),
            Progress::Failed(why) => {
                assert!(sent.len() > MAX_UNAUTHENTICATED_BYTES, "{why}");
                return None;
            }
        }
    }
    None
}

#[test]
fn no_invalid_line_is_accepted_as_a_rank_or_ends_a_job() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("tests/golden/rendezvous.corpus");
    let corpus = crate::inputs::corpus(&file);
    let taken = crate::inputs::survive(&corpus, 20_000, rendezvous_line);
    assert!(taken > 60, "only {taken} were ranks: the mutants are too wild");
}
