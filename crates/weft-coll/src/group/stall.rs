//! Ranks that wait. A call stops at every rank when one rank does not make it, and most of them then wait for a rank that
//! waits itself. So a rank whose oldest call has stopped reports that to all others: the ranks without a report are
//! those that the call waits for.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weft_plan::collective::{Channel, Step};

use super::Group;
use crate::Call;
use crate::header::{Header, Kind};

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Reports to all other ranks that the oldest call has stopped here, once a call; [`advance`](Self::advance) sends
    /// the reports. The owner decides after which time a call has stopped.
    pub fn report_stall(&mut self) {
        if self.calls.is_empty() || self.stalled == Some(self.first) || self.failed.is_some() {
            return;
        }
        self.stalled = Some(self.first);
        self.report(1);
    }

    /// Takes a report back when its call is complete.
    pub(super) fn end_stall(&mut self) {
        if self.stalled.take().is_some() {
            self.report(0);
        }
    }

    fn report(&mut self, count: u32) {
        let channel = self.config.channel.unwrap_or(Channel::Inner);
        let header = self.header(Kind::Stalled, Call::barrier(), self.first, 0, channel);
        let own_rank = self.rank;
        let others = self.peers.iter_mut().enumerate().filter(|(rank, _)| *rank != own_rank);
        others.for_each(|(_, peer)| {
            peer.notices.push_back((Header { count, ..header }, String::new()));
        });
    }

    /// Handles another rank's report.
    pub(super) fn on_stalled(&mut self, from: usize, header: &Header) {
        self.peers[from].stalled = (header.count > 0).then_some(header.number);
    }

    /// Returns the ranks that the oldest call waits for: those that have not reported that they wait too, or else the
    /// rank whose message is due next.
    pub fn waits_for(&self) -> Vec<usize> {
        let Some(direct) = self.next_sender() else { return Vec::new() };
        if self.stalled != Some(self.first) {
            return vec![direct];
        }
        let waits = |rank: usize| rank == self.rank || self.peers[rank].stalled.is_some();
        let missing: Vec<usize> = (0..self.ranks()).filter(|&rank| !waits(rank)).collect();
        if missing.is_empty() { vec![direct] } else { missing }
    }

    /// Returns the rank that the first unfinished block waits for, if it waits.
    fn next_sender(&self) -> Option<usize> {
        let blocks = self.channels.iter().flat_map(|state| &state.running);
        let first = blocks.min_by_key(|block| (block.call, block.block))?;
        match self.active_call(first.call)?.schedule(first.block).steps[self.rank].get(first.at)? {
            Step::Receive { from, .. } | Step::Reduce { from, .. } => Some(*from),
            Step::Send { to, .. } => Some(*to),
            Step::Copy { .. } => None,
        }
    }
}
