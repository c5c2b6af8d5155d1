//! GOAL schedules as text (Hoefler, Siebert and Lumsdaine 2009), as LogGOPSim's `txt2bin` reads them.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   a: calc 100 cpu 0
//!   b: send 64b to 1 tag 7 cpu 0 nic 0
//!   b requires a
//! }
//! ```
//!
//! `calc` takes nanoseconds on a CPU, which computes one thing at a time. `requires` waits for the end of an operation,
//! `irequires` for its start. `-1` accepts any sender or any tag.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::{Format, Import, ImportError, Options, Summary};
use crate::graph::{ANY, GraphBuilder, GraphError, Op, When};
use crate::time::SimSpan;

/// The form of a line, for errors.
const LINE: &str = "[label:] send <bytes>b to <rank> | recv <bytes>b from <rank> | calc <ns> \
                    [tag t] [cpu c] [nic n], or label requires label";

/// Reads a schedule.
///
/// # Errors
/// A line is malformed, or an operation would wait for ever.
pub fn read(mut source: Source<'_>, options: &Options) -> Result<Import, ImportError> {
    let mut schedule = Schedule {
        memory: options.memory,
        builder: None,
        rank: None,
        seen: BTreeSet::new(),
        labels: BTreeMap::new(),
        summary: Summary::new(Format::Goal),
    };
    let (mut line, mut in_comment) = (String::new(), false);
    while source.next_line(&mut line)? {
        let text = without_comments(&line, &mut in_comment);
        if !text.trim().is_empty() {
            schedule.line(&text, &source)?;
        }
    }
    if let Some(rank) = schedule.rank {
        return Err(ImportError::new(source.file(), format!("rank {rank} has no closing brace")));
    }
    let Some(builder) = schedule.builder else {
        return Err(ImportError::new(source.file(), "expected \"num_ranks n\", found nothing"));
    };
    let graph = builder.build();
    let graph = graph.map_err(|error| ImportError::graph(source.file(), &error, true))?;
    Ok(Import { graph, summary: schedule.summary })
}

/// Returns a line without its comments; `in_comment` says whether one of several lines is open.
fn without_comments(line: &str, in_comment: &mut bool) -> String {
    let (mut text, mut rest) = (String::new(), line);
    loop {
        if *in_comment {
            let Some((_, after)) = rest.split_once("*/") else { return text };
            (*in_comment, rest) = (false, after);
        }
        let comment = rest.find("//").unwrap_or(rest.len());
        match rest.find("/*").filter(|&at| at < comment) {
            Some(at) => {
                text += &rest[..at];
                (*in_comment, rest) = (true, &rest[at + 2..]);
            }
            None => return text + &rest[..comment],
        }
    }
}

/// The schedule so far.
struct Schedule {
    memory: u64,
    builder: Option<GraphBuilder>,
    /// The rank whose operations are read.
    rank: Option<u32>,
    /// The ranks that were read.
    seen: BTreeSet<u32>,
    /// The operations of this rank.
    labels: BTreeMap<String, u32>,
    summary: Summary,
}

impl Schedule {
    fn line(&mut self, text: &str, source: &Source<'_>) -> Result<(), ImportError> {
        let wrong = || source.line_error(LINE, text.trim());
        // The label's colon and the braces may touch other words.
        let spaced = text.replace(':', " : ").replace('{', " { ").replace('}', " } ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let (words, closes) = match words.as_slice() {
            [words @ .., "}"] => (words, true),
            words => (words, false),
        };
        match words {
            [] => {}
            ["num_ranks", _] if self.builder.is_some() => {
                return Err(source.line_error("\"num_ranks n\" once", text.trim()));
            }
            ["num_ranks", ranks] => {
                let ranks = ranks.parse().ok().filter(|&ranks| (1..ANY).contains(&ranks));
                self.builder = Some(GraphBuilder::new(ranks.ok_or_else(wrong)?, self.memory));
            }
            ["rank", rank, "{"] => {
                let rank = rank.parse().map_err(|_| wrong())?;
                self.open(rank, source)?;
            }
            [after, kind @ ("requires" | "irequires"), before] => {
                let [after, before] = [after, before].map(|label| {
                    let known = self.labels.get(*label).copied();
                    known.ok_or_else(|| {
                        source.line_error("the label of an operation above in this rank", label)
                    })
                });
                let when = if *kind == "requires" { When::Done } else { When::Started };
                let builder = self.builder.as_mut().ok_or_else(wrong)?;
                let added = builder.depend(after?, before?, when);
                added.map_err(|error| ImportError::graph(source.file(), &error, true))?;
                self.summary.take(kind);
            }
            [label, ":", operation @ ..] => {
                let node = self.operation(operation, source)?;
                if self.labels.insert((*label).to_owned(), node).is_some() {
                    return Err(source.line_error("a label that is new in this rank", label));
                }
            }
            operation => drop(self.operation(operation, source)?),
        }
        if closes {
            self.rank.take().ok_or_else(wrong)?;
            self.labels.clear();
        }
        Ok(())
    }

    /// Begins the operations of a rank.
    fn open(&mut self, rank: u64, source: &Source<'_>) -> Result<(), ImportError> {
        let Some(builder) = &self.builder else {
            return Err(source.line_error("\"num_ranks n\" before the ranks", "rank"));
        };
        if let Some(open) = self.rank {
            return Err(source.line_error(&format!("the closing brace of rank {open}"), "rank"));
        }
        let known = builder.rank(rank);
        let rank = known.map_err(|error| source.line_error(&error.to_string(), "another"))?;
        if !self.seen.insert(rank) {
            return Err(source.line_error("each rank once", &format!("rank {rank} again")));
        }
        self.rank = Some(rank);
        Ok(())
    }

    /// Adds an operation.
    fn operation(&mut self, words: &[&str], source: &Source<'_>) -> Result<u32, ImportError> {
        let wrong = || source.line_error(LINE, &words.join(" "));
        let (Some(rank), Some(builder)) = (self.rank, self.builder.as_mut()) else {
            return Err(source.line_error("\"rank n {\" before operations", &words.join(" ")));
        };
        let (kind, value, peer, options) = match words {
            ["calc", time, options @ ..] => ("calc", *time, None, options),
            ["send", bytes, "to", peer, options @ ..] => ("send", *bytes, Some(*peer), options),
            ["recv", bytes, "from", peer, options @ ..] => ("recv", *bytes, Some(*peer), options),
            // The unit may stand alone.
            ["send", bytes, "b", "to", peer, options @ ..] => {
                ("send", *bytes, Some(*peer), options)
            }
            ["recv", bytes, "b", "from", peer, options @ ..] => {
                ("recv", *bytes, Some(*peer), options)
            }
            _ => return Err(wrong()),
        };
        let (mut tag, mut cpu) = (0, 0u8);
        for option in options.chunks(2) {
            match *option {
                ["tag", "-1"] => tag = ANY,
                ["tag", value] => tag = value.parse().map_err(|_| wrong())?,
                ["cpu", value] => cpu = value.parse().map_err(|_| wrong())?,
                ["nic", "0"] => {}
                ["nic", value] if value.parse::<u8>().is_ok() => {
                    self.summary.leave("nic other than 0 (a rank has the NICs of its host)");
                }
                _ => return Err(wrong()),
            }
        }
        let number: u64 = value.trim_end_matches('b').parse().map_err(|_| wrong())?;
        let peer = match peer {
            None => 0,
            Some("-1") if kind == "recv" => ANY,
            Some(peer) => {
                let known = builder.rank(peer.parse().map_err(|_| wrong())?);
                known.map_err(|error| source.line_error(&error.to_string(), peer))?
            }
        };
        let op = operation(kind, number, peer, tag, cpu).ok_or_else(wrong)?;
        let label = u32::try_from(source.line()).unwrap_or(u32::MAX);
        let wrong = |error: GraphError| ImportError::graph(source.file(), &error, true);
        let node = builder.add(rank, label, op).map_err(wrong)?;
        if node.is_multiple_of(1024) {
            builder.check_memory(source.share()).map_err(wrong)?;
        }
        self.summary.take(kind);
        Ok(node)
    }
}

/// Returns an operation; `None` for a time that is too long.
pub(super) fn operation(kind: &str, number: u64, peer: u32, tag: u32, cpu: u8) -> Option<Op> {
    Some(match kind {
        "calc" => Op::Compute { span: SimSpan::from_picos(number.checked_mul(1000)?), unit: cpu },
        "send" => Op::Send { to: peer, bytes: number, tag },
        _ => Op::Receive { from: peer, tag },
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn import(text: &str) -> Result<Import, String> {
        let source = Source::of(text.as_bytes(), Path::new("s.goal")).unwrap();
        read(source, &Options::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn operations_and_both_kinds_of_dependencies_are_read() {
        let import = import(
            "// a comment\nnum_ranks 2\n\nrank 0 { /* of\nseveral lines */\n\
             a: calc 100 cpu 1\nb: send 64b to 1 tag 7 cpu 0 nic 0\nb requires a\nrecv 8b from -1 tag -1\n}\n\
             rank 1 {\nc: recv 64b from 0 tag 7\nd: send 8b to 0 tag 3\nd irequires c\n}\n",
        )
        .unwrap();
        let graph = &import.graph;
        let ops: Vec<Op> = graph.nodes().iter().map(|node| node.op).collect();
        let span = SimSpan::from_picos(100_000);
        let want = [
            Op::Compute { span, unit: 1 },
            Op::Send { to: 1, bytes: 64, tag: 7 },
            Op::Receive { from: ANY, tag: ANY },
            Op::Receive { from: 0, tag: 7 },
            Op::Send { to: 0, bytes: 8, tag: 3 },
        ];
        assert_eq!(ops, want);
        assert_eq!(graph.dependents(0).collect::<Vec<_>>(), [(1, When::Done)]);
        assert_eq!(graph.dependents(3).collect::<Vec<_>>(), [(4, When::Started)]);
        assert_eq!(import.summary.taken["send"], 2);
    }

    #[test]
    fn malformed_schedules_are_refused_with_their_line() {
        for (text, want) in [
            ("", "s.goal: expected \"num_ranks n\", found nothing"),
            ("num_ranks 0\n", "s.goal:1: expected [label:] send"),
            ("num_ranks 1\nnum_ranks 1\n", "s.goal:2: expected \"num_ranks n\" once"),
            ("rank 0 {\n", "s.goal:1: expected \"num_ranks n\" before the ranks"),
            ("num_ranks 1\nrank 1 {\n", "s.goal:2: expected rank 1 does not exist"),
            ("num_ranks 1\nrank 0 {\n", "s.goal: rank 0 has no closing brace"),
            ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", "s.goal:4: expected each rank once"),
            ("num_ranks 1\ncalc 5\n", "s.goal:2: expected \"rank n {\" before operations"),
            ("num_ranks 2\nrank 0 {\nsend 5b to 2\n}\n", "s.goal:3: expected rank 2 does not"),
            ("num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}\n", "s.goal:4: expected a label"),
            ("num_ranks 1\nrank 0 {\na requires b\n}\n", "s.goal:3: expected the label of an"),
            ("num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}\n", "s.goal:3: expected [label"),
            (
                "num_ranks 2\nrank 0 {\nrecv 5b from 1\n}\n",
                "s.goal:3: this node of rank 0 would wait for ever: no message from rank 1",
            ),
        ] {
            let error = import(text).unwrap_err();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }
}
