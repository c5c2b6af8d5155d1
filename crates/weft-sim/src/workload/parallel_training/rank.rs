//! Where a rank is in its program, and what has come for it.

use std::collections::BTreeMap;

use weft_topo::NodeId;

use super::program::LANES;
use crate::time::SimTime;

/// Where a message belongs at its receiver, who counts those that came for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inlet {
    pub lane: u8,
    /// A place in the plan's groups, or one of the two below.
    pub groups: u8,
    /// The sender's place in its group.
    pub from: u16,
    pub slice: u8,
}

/// What comes from the stage before, and from the one behind.
pub(super) const FORWARD: u8 = 254;
pub(super) const BACKWARD: u8 = 255;

impl Inlet {
    /// Rank above lane, groups, sender and slice: 24, 4, 8, 16 and 8 bits.
    pub(super) const fn to_tag(self, rank: u32) -> u64 {
        (rank as u64) << 36
            | (self.lane as u64) << 32
            | (self.groups as u64) << 24
            | (self.from as u64) << 8
            | self.slice as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes a tag apart")]
    pub(super) const fn from_tag(tag: u64) -> (u32, Self) {
        let inlet = Self {
            lane: (tag >> 32) as u8 & 15,
            groups: (tag >> 24) as u8,
            from: (tag >> 8) as u16,
            slice: tag as u8,
        };
        ((tag >> 36) as u32 & 0xff_ffff, inlet)
    }
}

#[derive(Debug)]
pub(super) struct Rank {
    pub host: NodeId,
    pub server: u32,
    pub lanes: [Lane; LANES],
    /// What was recorded in this iteration.
    pub records: Vec<bool>,
    /// Messages that came and were not waited for yet.
    pub inbox: BTreeMap<Inlet, u32>,
    /// When what it sends inside of its server has left.
    pub local_free: SimTime,
    pub done: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub next: usize,
    /// Since when it is busy with an operation.
    pub since: Option<SimTime>,
    /// How far each slice of an exchange is.
    pub slices: Vec<Cursor>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    pub phase: usize,
    pub step: usize,
}

impl Rank {
    pub(super) fn new(host: NodeId, server: u32, records: usize) -> Self {
        Self {
            host,
            server,
            lanes: Default::default(),
            records: vec![false; records],
            inbox: BTreeMap::new(),
            local_free: SimTime::EPOCH,
            done: false,
        }
    }

    /// Goes back to the beginning of its program.
    pub(super) fn begin(&mut self) {
        self.lanes = Default::default();
        self.records.fill(false);
        self.done = false;
    }

    /// Takes a message that has come; false where none has.
    pub(super) fn take(&mut self, inlet: Inlet) -> bool {
        match self.inbox.get_mut(&inlet) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}
