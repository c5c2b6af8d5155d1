//! One end of a connection, and its model.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use weft_units::Rng;

use super::image::{Effect, Image};
use super::network::{BASE, End};
use super::windows::{Use, Window};
use crate::{Extra, Remote, Sge, Status, WorkKind};

/// The range of each end's memory that its peer writes.
pub(super) const TARGET: Range<usize> = 0..16 * 1024;
/// The range from which its messages are sent.
pub(super) const SOURCE: Range<usize> = 16 * 1024..32 * 1024;
/// The start of the results of its READs and atomics.
const RESULT: usize = 32 * 1024;
/// Maximum number of posted send requests that are not completed.
pub(super) const MAX_POSTED: usize = 12;
/// Maximum length of a READ, bytes.
pub(super) const RESULT_SLOT: usize = 1024;

/// Returns the offset of a request's result.
pub(super) fn result_slot(wr_id: u64) -> usize {
    let slot = usize::try_from(wr_id % MAX_POSTED as u64).expect("less than that");
    RESULT + slot * RESULT_SLOT
}

/// A posted send request, and its expected result.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    pub(super) kind: WorkKind,
    pub(super) signaled: bool,
    /// The expected data of its response.
    pub(super) answer: Option<Vec<u8>>,
    /// Its change of the peer's memory.
    pub(super) effect: Option<Effect>,
    /// Its payload in the receive request that it consumes, if it consumes one.
    pub(super) message: Option<Vec<u8>>,
    /// Its use of a window.
    pub(super) window: Option<Use>,
    /// The expected status if it must fail.
    pub(super) fails: Option<Status>,
}

impl Posted {
    /// Returns `true` if it consumes a receive request of the peer.
    pub(super) const fn takes_receive(&self) -> bool {
        self.message.is_some()
    }
}

/// A message in flight that consumes a receive request of an end.
#[derive(Debug)]
pub(super) struct InFlight {
    /// The payload in the receive request; `None` for an RDMA WRITE.
    pub(super) data: Option<Vec<u8>>,
    pub(super) length: usize,
    pub(super) extra: Option<Extra>,
    pub(super) effect: Option<Effect>,
    /// `true` if it must arrive.
    pub(super) certain: bool,
}

/// The condition of a pair of ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    /// All requests must succeed.
    #[default]
    Healthy,
    /// One of the ends posted a forbidden request, or is in error.
    Failing,
    /// The ends may be unable to reach each other.
    Partitioned,
}

/// Further keys of an end's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// All rights, zero-based.
    pub(super) zero_based: u32,
    /// All rights, with relaxed ordering.
    pub(super) relaxed: u32,
    /// A key of another protection domain.
    pub(super) foreign: u32,
    /// A deregistered key.
    pub(super) gone: u32,
    /// Peers may read.
    pub(super) readable: u32,
    /// Peers may write.
    pub(super) writable: u32,
}

/// An end, and the model of its state.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) end: End,
    pub(super) reliable: bool,
    pub(super) keys: Keys,
    pub(super) image: Image,
    pub(super) posted: VecDeque<Posted>,
    /// Number of the next request.
    pub(super) next: u64,
    /// The pool of its receive requests.
    pub(super) pool: usize,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Ranges of the peer's memory that READs in flight may read.
    pub(super) reads: Vec<Range<usize>>,
    pub(super) windows: Vec<Window>,
    /// Its RNR retries; 7 means without limit.
    pub(super) rnr_retry: u8,
    pub(super) condition: Condition,
    /// The expected status of its forbidden request.
    pub(super) expected_status: Option<Status>,
    /// The expected status of its failing receive request.
    pub(super) receive_fails: Option<Status>,
    /// `true` once a request failed.
    pub(super) failed: bool,
    /// `true` if its peer may fail independently.
    pub(super) peer_may_fail: bool,
    /// Requests whose execution is unknown.
    pub(super) flushed: Vec<Posted>,
}

impl Side {
    pub(super) fn sge(&self, offset: usize, length: usize) -> Sge {
        self.end.sge(offset as u64, len32(length))
    }

    /// Returns a location in its memory, by one of the keys with all rights.
    pub(super) fn remote(&self, offset: usize, rng: &mut Rng) -> Remote {
        let offset = offset as u64;
        match rng.below(4) {
            0 => Remote { address: offset, rkey: self.keys.zero_based },
            1 => Remote { address: BASE + offset, rkey: self.keys.relaxed },
            _ => self.end.remote(offset),
        }
    }

    /// Returns `true` if its requests, and the messages that must reach it, are done.
    pub(super) fn is_done(&self) -> bool {
        let arrived = self.in_flight.iter().all(|in_flight| !in_flight.certain);
        self.posted.is_empty() && (arrived || self.condition != Condition::Healthy)
    }

    /// Returns `true` if its messages may be lost silently.
    pub(super) fn may_be_lost(&self) -> bool {
        !self.reliable && self.condition == Condition::Partitioned
    }

    /// Returns `true` if a READ in flight may read this range of the peer's memory.
    pub(super) fn has_read(&self, range: &Range<usize>) -> bool {
        self.reads.iter().any(|read| read.start < range.end && range.start < read.end)
    }
}

/// Converts a length in bytes.
pub(super) fn len32(length: usize) -> u32 {
    u32::try_from(length).expect("a message of a few kilobytes")
}

/// Splits a range of memory at random into three entries.
pub(super) fn split_sge(whole: Sge, rng: &mut Rng) -> Vec<Sge> {
    let draw =
        |rng: &mut Rng, most: u32| u32::try_from(rng.below(u64::from(most) + 1)).expect("no more");
    let first = draw(rng, whole.length);
    let second = draw(rng, whole.length - first);
    let mut address = whole.address;
    let lengths = [first, second, whole.length - first - second];
    let piece = |length: u32| {
        let piece = Sge { address, length, ..whole };
        address += u64::from(length);
        piece
    };
    lengths.map(piece).into()
}
