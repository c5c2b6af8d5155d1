//! One end of a connection, and what the model knows of it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use weft_units::Rng;

use super::image::{Effect, Image};
use super::network::{BASE, End};
use super::windows::{Use, Window};
use crate::{Extra, Remote, Sge, Status, WorkKind};

/// Each end's memory: what its peer writes, what it sends from, and what its READs and atomics bring.
pub(super) const TARGET: Range<usize> = 0..16 * 1024;
pub(super) const SOURCE: Range<usize> = 16 * 1024..32 * 1024;
const RESULT: usize = 32 * 1024;
/// Send requests at a time.
pub(super) const MOST: usize = 12;
/// Bytes of a READ at most.
pub(super) const RESULT_SLOT: usize = 1024;

/// Where the answer to a request goes.
pub(super) fn result_slot(wr_id: u64) -> usize {
    let slot = usize::try_from(wr_id % MOST as u64).expect("less than that");
    RESULT + slot * RESULT_SLOT
}

/// A send request that was posted, and what must come of it.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    pub(super) kind: WorkKind,
    pub(super) signaled: bool,
    /// What its answer must be.
    pub(super) answer: Option<Vec<u8>>,
    /// What it makes of the peer's memory.
    pub(super) effect: Option<Effect>,
    /// What it leaves in the receive request that it takes, if it takes one.
    pub(super) message: Option<Vec<u8>>,
    /// What it does to a window.
    pub(super) window: Option<Use>,
    /// What it fails with.
    pub(super) fails: Option<Status>,
}

impl Posted {
    /// Whether it takes a receive request of the peer.
    pub(super) const fn takes_receive(&self) -> bool {
        self.message.is_some()
    }
}

/// A message on its way to an end that takes a receive request there.
#[derive(Debug)]
pub(super) struct Coming {
    /// What arrives in the receive request; `None` for what is written elsewhere.
    pub(super) data: Option<Vec<u8>>,
    pub(super) length: usize,
    pub(super) extra: Option<Extra>,
    pub(super) effect: Option<Effect>,
    /// Whether it must arrive.
    pub(super) sure: bool,
}

/// What a pair of ends has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fortune {
    /// All that is posted must succeed.
    #[default]
    Good,
    /// One of them asked for what may not be, or gave up.
    Doomed,
    /// It may be that they cannot reach each other.
    Parted,
}

/// Keys of an end's memory that do not allow everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// Everything, counted from zero.
    pub(super) zero_based: u32,
    /// Everything, in any order.
    pub(super) relaxed: u32,
    /// Of another protection domain.
    pub(super) foreign: u32,
    /// Nothing any more.
    pub(super) gone: u32,
    /// Peers may read.
    pub(super) readable: u32,
    /// Peers may write.
    pub(super) writable: u32,
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) end: End,
    pub(super) reliable: bool,
    pub(super) keys: Keys,
    pub(super) image: Image,
    pub(super) posted: VecDeque<Posted>,
    pub(super) next: u64,
    /// Which pool its receive requests are in.
    pub(super) pool: usize,
    pub(super) coming: VecDeque<Coming>,
    /// What it reads of the peer's memory, and has not waited for.
    pub(super) reads: Vec<Range<usize>>,
    pub(super) windows: Vec<Window>,
    /// How often it tries a peer without receive request again; 7 is for ever.
    pub(super) rnr_retry: u8,
    pub(super) fortune: Fortune,
    /// What its request for what may not be has to fail with.
    pub(super) awaits: Option<Status>,
    /// How a receive request of its own has to fail.
    pub(super) receive_fails: Option<Status>,
    pub(super) failed: bool,
    /// Its peer may have ended without its doing.
    pub(super) peer_ends: bool,
    /// Requests that nobody knows of whether they were carried out.
    pub(super) flushed: Vec<Posted>,
}

impl Side {
    pub(super) fn sge(&self, offset: usize, length: usize) -> Sge {
        self.end.sge(offset as u64, len32(length))
    }

    /// A place of its memory by one of the keys that allow everything.
    pub(super) fn remote(&self, offset: usize, rng: &mut Rng) -> Remote {
        let offset = offset as u64;
        match rng.below(4) {
            0 => Remote { address: offset, rkey: self.keys.zero_based },
            1 => Remote { address: BASE + offset, rkey: self.keys.relaxed },
            _ => self.end.remote(offset),
        }
    }

    /// Whether nothing of its own, and nothing that must reach it, is under way.
    pub(super) fn is_done(&self) -> bool {
        let arrived = self.coming.iter().all(|coming| !coming.sure);
        self.posted.is_empty() && (arrived || self.fortune != Fortune::Good)
    }

    /// Whether what it sends may be lost without anybody being told.
    pub(super) fn may_be_lost(&self) -> bool {
        !self.reliable && self.fortune == Fortune::Parted
    }

    /// Whether it is reading there of the peer's memory: what changes it has to wait.
    pub(super) fn has_read(&self, range: &Range<usize>) -> bool {
        self.reads.iter().any(|read| read.start < range.end && range.start < read.end)
    }
}

/// A length as work requests have it.
pub(super) fn len32(length: usize) -> u32 {
    u32::try_from(length).expect("a message of a few kilobytes")
}

/// Cuts a piece of memory into up to three.
pub(super) fn cut(whole: Sge, rng: &mut Rng) -> Vec<Sge> {
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
