//! GOAL schedules in the binary form that LogGOPSim's `txt2bin` writes and its `Parser.hpp` maps into memory.
//!
//! All numbers are little-endian and nothing is aligned: the number 4223 (8 bytes), the ranks (4), the highest CPU and NIC
//! (1 each), then start and end of each rank (8 each), counted from behind the first number. A rank has its number of
//! nodes and of roots (4 each), the roots (4 each), a record of 39 bytes for each node, and a table of dependents (4
//! each) in which each record has two ranges.

use super::format::GOAL_MAGIC;
use super::goal::operation;
use super::source::Source;
use super::{Format, Import, ImportError, Options, Summary};
use crate::graph::{ANY, GraphBuilder, GraphError, When};

/// Bytes of a node's record.
const RECORD: usize = 39;

/// Reads a schedule.
///
/// # Errors
/// The file ends early, its numbers contradict each other, or an operation would wait for ever.
pub(super) fn read(mut source: Source<'_>, options: &Options) -> Result<Import, ImportError> {
    if read_u64(&mut source)? != GOAL_MAGIC {
        return Err(source.byte_error(format!("the file does not begin with {GOAL_MAGIC}")));
    }
    let ranks = read_u32(&mut source)?;
    if ranks == 0 || ranks == ANY {
        return Err(source.byte_error(format!("it has {ranks} ranks, expected 1 to 2^32 - 2")));
    }
    read_array::<2>(&mut source)?;
    let mut spans = Vec::new();
    for _ in 0..ranks {
        spans.push((read_u64(&mut source)?, read_u64(&mut source)?));
    }
    let mut builder = GraphBuilder::new(ranks, options.memory);
    let mut summary = Summary::new(Format::GoalBinary);
    for (rank, &span) in (0u32..).zip(&spans) {
        Rank { rank, span, builder: &mut builder, summary: &mut summary }.read(&mut source)?;
    }
    let graph = builder.build();
    let graph = graph.map_err(|error| ImportError::graph(source.file(), &error, false))?;
    Ok(Import { graph, summary })
}

/// A rank that is read.
struct Rank<'a> {
    rank: u32,
    /// The first byte and the end, counted from behind the first number of the file.
    span: (u64, u64),
    builder: &'a mut GraphBuilder,
    summary: &'a mut Summary,
}

/// The ranges of a node's dependents in the table.
struct Ranges {
    node: u32,
    dependencies: u32,
    done: (u32, u32),
    started: (u32, u32),
}

impl Rank<'_> {
    fn read(mut self, source: &mut Source<'_>) -> Result<(), ImportError> {
        let position = source.offset() - 8;
        let (start, end) = self.span;
        if start < position || end < start {
            let rank = self.rank;
            let message = format!(
                "rank {rank} is from {start} to {end}, and the one before ends at {position}"
            );
            return Err(source.byte_error(message));
        }
        skip(source, start - position)?;
        let (nodes, roots) = (read_u32(source)?, read_u32(source)?);
        skip(source, 4 * u64::from(roots))?;
        let first = self.builder.len();
        let mut ranges = Vec::new();
        for number in 0..nodes {
            ranges.push(self.record(number, source)?);
        }
        let table_bytes = end.saturating_sub(source.offset() - 8);
        let mut table = Vec::new();
        for _ in 0..table_bytes / 4 {
            table.push(read_u32(source)?);
        }
        self.depend(first, &ranges, &table, source)
    }

    /// Adds the node of a record.
    fn record(&mut self, number: u32, source: &mut Source<'_>) -> Result<Ranges, ImportError> {
        let bytes = read_array::<RECORD>(source)?;
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes of the record"))
        };
        let size = u64::from_le_bytes(bytes[9..17].try_into().expect("eight bytes"));
        let (peer, tag, cpu, nic) = (word(5), word(17), bytes[21], bytes[22]);
        let kind = match bytes[4] {
            1 => "send",
            2 => "recv",
            3 => "calc",
            other => {
                let message = format!(
                    "node {number} of rank {} has type {other}, expected 1 to 3",
                    self.rank
                );
                return Err(source.byte_error(message));
            }
        };
        let is_any = kind == "calc" || kind == "recv" && peer == ANY;
        if !is_any {
            let known = self.builder.rank(peer.into());
            known.map_err(|error| source.byte_error(format!("node {number}: {error}")))?;
        }
        let op = operation(kind, size, peer, tag, cpu).ok_or_else(|| {
            source.byte_error(format!(
                "node {number} computes for {size} ns, expected less than 2^54"
            ))
        })?;
        if nic > 0 {
            self.summary.leave("nic other than 0 (a rank has the NICs of its host)");
        }
        self.summary.take(kind);
        let wrong = |error: GraphError| source.byte_error(error);
        let node = self.builder.add(self.rank, number, op).map_err(wrong)?;
        if node.is_multiple_of(1024) {
            self.builder.check_memory(source.share()).map_err(wrong)?;
        }
        let (done, started) = ((word(27), word(23)), (word(35), word(31)));
        Ok(Ranges { node, dependencies: word(0), done, started })
    }

    /// Adds the dependencies of a rank's nodes, which begin with `first`.
    fn depend(
        &mut self,
        first: u32,
        ranges: &[Ranges],
        table: &[u32],
        source: &Source<'_>,
    ) -> Result<(), ImportError> {
        let count = u32::try_from(ranges.len()).expect("a number of 32 bits");
        let mut dependencies = vec![0u32; ranges.len()];
        let mut used = 0;
        for of in ranges {
            let both =
                [(of.done, When::Done, "requires"), (of.started, When::Started, "irequires")];
            for ((start, length), when, name) in both {
                // The start of an empty range is arbitrary.
                let start = if length == 0 { 0 } else { start as usize };
                used += length as usize;
                let range = table.get(start..start + length as usize);
                let Some(range) = range.filter(|_| used <= table.len()) else {
                    let message = format!(
                        "the dependents of node {} of rank {} are not in its table of {}",
                        of.node - first,
                        self.rank,
                        table.len()
                    );
                    return Err(source.byte_error(message));
                };
                for &after in range {
                    if after >= count {
                        let message = format!("node {after} does not exist in rank {}", self.rank);
                        return Err(source.byte_error(message));
                    }
                    dependencies[after as usize] += 1;
                    let added = self.builder.depend(first + after, of.node, when);
                    added.map_err(|error| source.byte_error(error))?;
                    self.summary.take(name);
                }
            }
        }
        let wrong = ranges.iter().zip(&dependencies).find(|(of, found)| of.dependencies != **found);
        wrong.map_or(Ok(()), |(of, found)| {
            let (rank, number) = (self.rank, of.node - first);
            Err(source.byte_error(format!(
                "node {number} of rank {rank} has {found} dependencies, and its record says {}",
                of.dependencies
            )))
        })
    }
}

fn read_array<const N: usize>(source: &mut Source<'_>) -> Result<[u8; N], ImportError> {
    let mut bytes = [0; N];
    match source.read(&mut bytes)? {
        true => Ok(bytes),
        false => Err(source.byte_error("the file ends here, before all that it announces")),
    }
}

fn read_u32(source: &mut Source<'_>) -> Result<u32, ImportError> {
    read_array(source).map(u32::from_le_bytes)
}

fn read_u64(source: &mut Source<'_>) -> Result<u64, ImportError> {
    read_array(source).map(u64::from_le_bytes)
}

fn skip(source: &mut Source<'_>, mut bytes: u64) -> Result<(), ImportError> {
    while bytes > 0 {
        let mut block = [0; 4096];
        let length = bytes.min(block.len() as u64);
        let part = &mut block[..usize::try_from(length).expect("at most 4096")];
        if !source.read(part)? {
            return Err(source.byte_error("the file ends here, before all that it announces"));
        }
        bytes -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::goal;
    use super::*;

    fn golden(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        std::fs::read(folder.join(name)).unwrap()
    }

    fn import(bytes: &[u8]) -> Result<Import, String> {
        let source = Source::of(bytes, Path::new("b")).unwrap();
        read(source, &Options::default()).map_err(|error| error.to_string())
    }

    /// The binary file was made by LogGOPSim's `txt2bin` from the text.
    #[test]
    fn the_binary_form_gives_the_same_graph_as_the_text() {
        let binary = import(&golden("goal_binary/exchange.bin")).unwrap();
        let text = golden("goal/exchange.goal");
        let source = Source::of(&text, Path::new("t")).unwrap();
        let text = goal::read(source, &Options::default()).unwrap();
        assert_eq!(binary.summary.taken, text.summary.taken);
        assert_eq!(binary.summary.left, text.summary.left);
        let [binary, text] = [&binary.graph, &text.graph];
        assert_eq!((binary.ranks(), binary.nodes().len()), (3, 8));
        for (node, (a, b)) in (0u32..).zip(binary.nodes().iter().zip(text.nodes())) {
            assert_eq!((a.rank, a.op), (b.rank, b.op));
            let after = [binary, text].map(|graph| graph.dependents(node).collect::<Vec<_>>());
            assert_eq!(after[0], after[1], "node {node}");
        }
    }

    #[test]
    fn contradictions_are_refused_with_the_byte() {
        let good = golden("goal_binary/exchange.bin");
        let changed = |at: usize, bytes: &[u8]| {
            let mut file = good.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            import(&file).unwrap_err()
        };
        // The first rank's record begins behind the numbers of nodes and roots, and its roots.
        let first = 8 + 6 + 3 * 16;
        let roots = u32::from_le_bytes(good[first + 4..first + 8].try_into().unwrap());
        let record = first + 8 + 4 * roots as usize;
        for (at, bytes, want) in [
            (0, &[1][..], "b: byte 8: the file does not begin with 4223"),
            (8, &[0], "b: byte 12: it has 0 ranks"),
            (8, &[0xff; 3], "b: byte "),
            (14, &[0xff], "b: byte "),
            (first, &[0xff; 4], "b: byte "),
            (record, &[9], "b: byte "),
            (record + 4, &[4], "b: byte 117: node 0 of rank 0 has type 4"),
            (record + 9, &[0xff; 8], "b: byte 117: node 0 computes for 18446744073709551615 ns"),
            (record + 23, &[0xff; 4], "b: byte "),
        ] {
            let error = changed(at, bytes);
            assert!(error.starts_with(want), "{at}: {error}");
        }
        for end in 0..good.len() {
            assert!(import(&good[..end]).unwrap_err().starts_with("b: byte "), "{end}");
        }
    }
}
