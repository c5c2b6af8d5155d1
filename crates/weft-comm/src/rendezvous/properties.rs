//! Properties of the lines of ranks and of rank 0, for every sender. Tests and fuzz targets call
//! this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::sync::LazyLock;

use super::*;
use crate::callers::{Line, MAX_UNPROVEN, Progress};
use crate::inputs::Script;

/// The byte that represents the token in scripts.
const SHOWN: u8 = 1;

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
    let how = script.byte().unwrap_or(0);
    let ranks = 2 + usize::from(how >> 1 & 7);
    let member = Member {
        rank: 0,
        ranks,
        port: 7000,
        address: None,
        agreement: "ranks=4".into(),
        token: (how & 1 != 0).then(|| TOKEN.clone()),
        hello_timeout: Duration::from_secs(2),
    };
    let taken = script.byte().unwrap_or(0);
    let is_taken = |rank: usize| rank == 0 || taken >> (rank % 8) & 1 != 0;
    let came: Vec<Came> = (0..ranks)
        .map(|rank| is_taken(rank).then(|| (SocketAddr::from(([10, 0, 0, 1], 7000)), None)))
        .collect();
    let cut = 1 + script.below(64);
    let said = spoken(script.rest());
    let Some(line) = read(&said, cut, &member) else { return false };
    let text = String::from_utf8_lossy(&said);
    let expected = text.split('\n').next().unwrap_or_default();
    assert_eq!(line, expected, "cut after each {cut} bytes");
    let shows = member.token.as_ref().map_or(NO_TOKEN, Token::reveal);
    let words: Vec<&str> = line.split_whitespace().collect();
    let proves = words.first() == Some(&NAME) && words.get(1) == Some(&shows);
    read_answer(&line, ranks).into_iter().for_each(|found| {
        assert_eq!(found.addresses.len(), ranks);
        assert!(line.starts_with(NAME));
    });
    match parse_caller(&line, peer(), &member, &came) {
        Ok((rank, address)) => {
            assert!(proves && words.len() == 6 && words[5] == member.agreement);
            assert!(rank < ranks && !is_taken(rank));
            assert!(words[4] != "-" || address.ip() == peer().ip());
            true
        }
        Err(Unfit::Member(_)) => {
            assert!(proves && member.token.is_some(), "only a rank of the job ends it");
            false
        }
        Err(Unfit::Foreign(why)) => {
            let is_told = member.token.is_some() && why.contains(TOKEN.reveal());
            assert!(!is_told, "no answer contains the token");
            false
        }
    }
}

/// Returns the script's bytes, with the token in place of [`SHOWN`].
fn spoken(bytes: &[u8]) -> Vec<u8> {
    let mut said = Vec::with_capacity(bytes.len() + 64);
    for &byte in bytes {
        match byte {
            SHOWN => said.extend_from_slice(TOKEN.reveal().as_bytes()),
            byte => said.push(byte),
        }
    }
    said
}

/// Returns the line of a caller that sends these bytes in pieces; `None` if they are too many or no whole line.
fn read(said: &[u8], cut: usize, member: &Member) -> Option<String> {
    let mut line = Line::default();
    for piece in said.chunks(cut.max(said.len() / 16)) {
        match line.push(piece, |head| member.is_shown_in(head)) {
            Progress::Waiting => {}
            Progress::Whole(line) => return Some(line),
            Progress::Failed(why) => {
                assert!(said.len() > MAX_UNPROVEN, "{why}");
                return None;
            }
        }
    }
    None
}

#[test]
fn no_line_takes_a_place_or_ends_a_job_that_should_not() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("tests/golden/rendezvous.corpus");
    let corpus = crate::inputs::corpus(&file);
    let taken = crate::inputs::survive(&corpus, 20_000, rendezvous_line);
    assert!(taken > 60, "only {taken} were ranks: the mutants are too wild");
}
