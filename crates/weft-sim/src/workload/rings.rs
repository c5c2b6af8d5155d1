//! Collectives on rings of hosts, several at a time: the parts of training workloads.
//!
//! N ranks cut their data into N parts. In each step every rank sends one part to its successor, and it may begin step
//! k+1 only when the part of step k has arrived from its predecessor. All-gather and reduce-scatter take N-1 steps,
//! all-reduce is a reduce-scatter, then an all-gather (Patarasuk and Yuan 2009). A part may be sent in chunks, each
//! forwarded as it arrives. Reduction itself takes no time here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_plan::collective::Collective;
use weft_topo::NodeId;
use weft_units::ByteCount;

use super::WorkloadError;
use crate::traffic::{ChannelId, SendRequest, Side};
use crate::world::Session;

/// The collectives that run around rings, with their names in files.
const NAMES: [(Collective, &str); 3] = [
    (Collective::AllReduce, "all-reduce"),
    (Collective::AllGather, "all-gather"),
    (Collective::ReduceScatter, "reduce-scatter"),
];

/// Reads and writes a collective of [`NAMES`] by its name in files.
pub(super) mod named {
    use schemars::{Schema, SchemaGenerator, json_schema};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use weft_units::UnknownName;

    use super::{Collective, NAMES};

    pub(in super::super) fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": NAMES.map(|(_, name)| name) })
    }

    pub(in super::super) fn serialize<S: Serializer>(
        collective: &Collective,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let found = NAMES.iter().find(|(of, _)| of == collective);
        to.serialize_str(found.map_or_else(|| collective.name(), |(_, name)| name))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Collective, D::Error> {
        let text = String::deserialize(from)?;
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(of, _)| *of).ok_or_else(|| {
            const KNOWN: [&str; 3] = [NAMES[0].1, NAMES[1].1, NAMES[2].1];
            D::Error::custom(UnknownName::new("collective operation", &text, &KNOWN))
        })
    }
}

/// Returns the number of steps of a collective around a ring of `ranks` ranks.
pub(super) const fn steps(collective: Collective, ranks: usize) -> u64 {
    let around = ranks as u64 - 1;
    match collective {
        Collective::AllReduce => 2 * around,
        _ => around,
    }
}

/// The hosts that form a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// Consecutive hosts of the list: the same leaf, if it is large enough.
    Neighbours,
    /// Hosts that are as far from each other in the list as possible: mostly on other leaves, as the ranks of
    /// data-parallel groups are.
    #[default]
    Strided,
}

impl Grouping {
    /// Returns the hosts in groups of `ranks`, or in one group if that is zero.
    ///
    /// # Errors
    /// The number of hosts is not a multiple of `ranks`, or a group would have one rank.
    pub(super) fn divide(
        self,
        hosts: &[NodeId],
        ranks: u32,
    ) -> Result<Vec<Vec<NodeId>>, WorkloadError> {
        let ranks = if ranks == 0 { hosts.len() } else { ranks as usize };
        if ranks < 2 || !hosts.len().is_multiple_of(ranks) {
            let got = format!("{ranks} with {} hosts", hosts.len());
            let expected = "at least 2, and a divisor of the number of hosts";
            return Err(WorkloadError::OutOfRange { key: "ranks", got, expected });
        }
        let groups = hosts.len() / ranks;
        Ok(match self {
            Self::Neighbours => hosts.chunks(ranks).map(<[NodeId]>::to_vec).collect(),
            Self::Strided => (0..groups)
                .map(|group| hosts.iter().copied().skip(group).step_by(groups).collect())
                .collect(),
        })
    }
}

/// The data that one rank sends in one step, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Bytes of each chunk but the last.
    chunk: u32,
    /// Bytes of the last chunk.
    last: u32,
    /// Number of chunks.
    chunks: u16,
}

impl Part {
    /// Returns a part of `bytes` in chunks of at most `chunk` bytes; zero is one chunk.
    ///
    /// # Errors
    /// A chunk is larger than a message, or there are too many.
    pub(super) fn new(bytes: u64, chunk: ByteCount) -> Result<Self, WorkloadError> {
        let chunk_bytes = if chunk.0 == 0 { bytes } else { chunk.0.min(bytes) };
        let max = u64::from(u32::MAX);
        let chunks = bytes.div_ceil(chunk_bytes.max(1));
        let last = bytes - chunk_bytes * chunks.saturating_sub(1);
        match (u32::try_from(chunk_bytes), u32::try_from(last), u16::try_from(chunks)) {
            (Ok(chunk), Ok(last), Ok(chunks)) if chunk > 0 => Ok(Self { chunk, last, chunks }),
            (Ok(1..), _, Err(_)) => {
                let got = format!("{chunk}, {chunks} for each step");
                let expected = "at max 65,535 for each step";
                Err(WorkloadError::OutOfRange { key: "chunk", got, expected })
            }
            _ => Err(WorkloadError::Size { key: "size", got: bytes, max }),
        }
    }

    /// Returns the bytes of all chunks.
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.chunk) * u64::from(self.chunks - 1) + u64::from(self.last)
    }

    /// Returns the bytes of a chunk.
    fn chunk(self, number: u16) -> u32 {
        if number + 1 == self.chunks { self.last } else { self.chunk }
    }
}

/// Groups of hosts, each with at most one collective in progress.
#[derive(Debug, Default)]
pub(super) struct Rings {
    rings: Vec<Ring>,
    /// Number of messages sent so far.
    sent: u64,
}

/// The ranks of a group, with the collective in progress.
#[derive(Debug)]
struct Ring {
    hosts: Vec<NodeId>,
    /// The channel from each rank to its successor.
    channels: Vec<ChannelId>,
    running: Option<Running>,
}

/// A collective in progress.
#[derive(Clone, Copy, Debug)]
struct Running {
    steps: u64,
    part: Part,
    /// Number of chunks that must arrive before the collective is complete.
    outstanding: u64,
}

/// A message's tag: ring, sending rank, step, and chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    ring: u16,
    rank: u16,
    step: u16,
    chunk: u16,
}

impl Piece {
    fn to_tag(self) -> u64 {
        [self.ring, self.rank, self.step, self.chunk]
            .into_iter()
            .fold(0, |tag, part| tag << 16 | u64::from(part))
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes a tag apart")]
    const fn from_tag(tag: u64) -> Self {
        Self {
            ring: (tag >> 48) as u16,
            rank: (tag >> 32) as u16,
            step: (tag >> 16) as u16,
            chunk: tag as u16,
        }
    }
}

/// Maximum number of ranks of a group and of groups of a workload, so that a step fits its 16 bits of the tag.
const MAX_RINGS: usize = 1 << 15;

impl Rings {
    /// Returns rings of these groups.
    ///
    /// # Errors
    /// There are too many, or one is too large.
    pub(super) fn new(groups: Vec<Vec<NodeId>>) -> Result<Self, WorkloadError> {
        let largest = groups.iter().map(Vec::len).max().unwrap_or(0);
        if groups.len() > MAX_RINGS || largest > MAX_RINGS {
            let got = format!("{largest} in each of {} groups", groups.len());
            let expected = "at most 32,768 of both";
            return Err(WorkloadError::OutOfRange { key: "ranks", got, expected });
        }
        let ring = |hosts| Ring { hosts, channels: Vec::new(), running: None };
        Ok(Self { rings: groups.into_iter().map(ring).collect(), sent: 0 })
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.rings.len()
    }

    /// Returns the number of ranks of a group.
    pub(super) fn ranks(&self, ring: usize) -> usize {
        self.rings[ring].hosts.len()
    }

    /// Returns the first rank of a group.
    pub(super) fn leader(&self, ring: usize) -> NodeId {
        self.rings[ring].hosts[0]
    }

    /// Returns the number of messages sent so far. A workload that counts acknowledged messages compares the two: if
    /// they are equal, nothing is in flight.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the group that a channel belongs to.
    pub(super) fn of_channel(&self, channel: ChannelId) -> Option<usize> {
        self.rings.iter().position(|ring| ring.channels.contains(&channel))
    }

    /// Opens every channel.
    pub(super) fn open(&mut self, session: &mut Session<'_>) {
        for ring in &mut self.rings {
            let next = ring.hosts.iter().cycle().skip(1);
            let pairs = ring.hosts.iter().zip(next);
            ring.channels = pairs.map(|(&rank, &next)| session.open(rank, next)).collect();
        }
    }

    /// Begins a group's collective.
    pub(super) fn begin(
        &mut self,
        ring: usize,
        operation: Collective,
        part: Part,
        session: &mut Session<'_>,
    ) {
        let ranks = self.ranks(ring);
        let steps = steps(operation, ranks);
        let outstanding = ranks as u64 * steps * u64::from(part.chunks);
        self.rings[ring].running = Some(Running { steps, part, outstanding });
        for rank in 0..ranks {
            for chunk in 0..part.chunks {
                let small = |index: usize| u16::try_from(index).expect("checked when it was built");
                self.send(Piece { ring: small(ring), rank: small(rank), step: 0, chunk }, session);
            }
        }
    }

    fn send(&mut self, piece: Piece, session: &mut Session<'_>) {
        self.sent += 1;
        let ring = &self.rings[usize::from(piece.ring)];
        let running = ring.running.as_ref().expect("pieces of no collective are not sent");
        session.send(SendRequest {
            channel: ring.channels[usize::from(piece.rank)],
            from: Side::Opener,
            length: running.part.chunk(piece.chunk),
            tag: piece.to_tag(),
            recorded: true,
        });
    }

    /// Handles a chunk from a rank's predecessor: the rank forwards it, if there is a next step. Returns the group if
    /// its collective is now complete.
    pub(super) fn received(&mut self, tag: u64, session: &mut Session<'_>) -> Option<usize> {
        let piece = Piece::from_tag(tag);
        let index = usize::from(piece.ring);
        let ranks = self.ranks(index);
        let running = self.rings[index].running.as_mut()?;
        running.outstanding -= 1;
        let is_complete = running.outstanding == 0;
        if u64::from(piece.step) + 1 < running.steps {
            let next = (usize::from(piece.rank) + 1) % ranks;
            let rank = u16::try_from(next).expect("fewer than 2^15 ranks");
            self.send(Piece { rank, step: piece.step + 1, ..piece }, session);
        }
        if is_complete {
            self.rings[index].running = None;
        }
        is_complete.then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(grouping: Grouping, hosts: u32, ranks: u32) -> Vec<Vec<u32>> {
        let hosts: Vec<_> = (0..hosts).map(NodeId).collect();
        let groups = grouping.divide(&hosts, ranks).unwrap();
        groups.into_iter().map(|group| group.into_iter().map(|host| host.0).collect()).collect()
    }

    #[test]
    fn groups_are_of_neighbours_or_far_apart() {
        assert_eq!(divided(Grouping::Neighbours, 6, 3), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(divided(Grouping::Strided, 6, 3), [[0, 2, 4], [1, 3, 5]]);
        assert_eq!(divided(Grouping::Strided, 4, 0), [[0, 1, 2, 3]]);
        let hosts: Vec<_> = (0..6).map(NodeId).collect();
        for ranks in [1, 4, 7] {
            let error = Grouping::Strided.divide(&hosts, ranks).unwrap_err().to_string();
            assert!(error.starts_with(&format!("ranks is {ranks} with 6 hosts")), "{error}");
        }
    }

    #[test]
    fn a_part_is_cut_into_chunks_with_the_rest_in_the_last() {
        let part = Part::new(2_500_000, ByteCount(1_000_000)).unwrap();
        let chunks: Vec<u32> = (0..part.chunks).map(|number| part.chunk(number)).collect();
        assert_eq!(chunks, [1_000_000, 1_000_000, 500_000]);
        assert_eq!(part.bytes(), 2_500_000);
        assert_eq!(Part::new(7, ByteCount(0)).unwrap().bytes(), 7);
        let error = |bytes, chunk| Part::new(bytes, ByteCount(chunk)).unwrap_err().to_string();
        assert_eq!(error(0, 0), "size is 0 bytes, expected 1 to 4294967295");
        assert_eq!(error(1 << 40, 0), "size is 1099511627776 bytes, expected 1 to 4294967295");
        assert!(error(1 << 40, 1).starts_with("chunk is 1B, 1099511627776 for each step"));
    }

    #[test]
    fn a_tag_holds_ring_rank_step_and_chunk() {
        let piece = Piece { ring: 1, rank: 0xfffe, step: 3, chunk: 0xffff };
        assert_eq!(Piece::from_tag(piece.to_tag()), piece);
    }
}
