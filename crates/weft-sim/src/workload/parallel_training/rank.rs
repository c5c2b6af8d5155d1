//! A rank's position in its program, and the messages received for it.

use std::collections::BTreeMap;

use weft_topo::NodeId;

use super::op::LANES;
use crate::time::SimTime;

/// A message's destination at its receiver, which counts arrivals for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inlet {
    pub lane: u8,
    /// An index in the plan's groups, or one of the two constants below.
    pub groups: u8,
    /// The sender's index in its group.
    pub from: u16,
    pub slice: u8,
}

/// The `groups` of messages from the previous stage.
pub(super) const FORWARD: u8 = 254;
/// The `groups` of messages from the next stage.
pub(super) const BACKWARD: u8 = 255;

impl Inlet {
    /// Returns the tag: rank above lane, groups, sender and slice: 24, 4, 8, 16 and 8 bits.
    pub(super) const fn to_tag(self, rank: u32) -> u64 {
        (rank as u64) << 36
            | (self.lane as u64) << 32
            | (self.groups as u64) << 24
            | (self.from as u64) << 8
            | self.slice as u64
    }

    /// Returns the receiving rank and the inlet of a tag.
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

/// A rank's state in the current iteration.
#[derive(Debug)]
pub(super) struct Rank {
    pub host: NodeId,
    pub server: u32,
    pub lanes: [Lane; LANES],
    /// The records set in this iteration.
    pub records: Vec<bool>,
    /// Messages that have arrived and are not yet consumed.
    pub inbox: BTreeMap<Inlet, u32>,
    /// The time at which its messages inside the server have left.
    pub local_free: SimTime,
    /// `true` if it has completed the iteration.
    pub done: bool,
}

/// A rank's position in one lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Index of the current operation.
    pub next: usize,
    /// The start of the current operation.
    pub since: Option<SimTime>,
    /// The progress of each slice of an exchange.
    pub slices: Vec<Cursor>,
}

/// The position of a slice in an exchange.
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

    /// Returns to the beginning of the program.
    pub(super) fn begin(&mut self) {
        self.lanes = Default::default();
        self.records.fill(false);
        self.done = false;
    }

    /// Consumes a message that has arrived; returns `false` if there is none.
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
