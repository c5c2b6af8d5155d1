//! A machine of a port of this host, and its moves from and to other hosts (RFC 7432, section 15).

use alloc::collections::{BTreeSet, VecDeque};
use core::cmp::Reverse;
use core::net::IpAddr;

use weft_units::{Duration, Instant};

use crate::rib::Best;

/// A machine that comes back this often within this time is in two places at once (RFC 7432, section 15.1: N and M).
const MAX_MOVES: (usize, Duration) = (5, Duration::from_secs(180));

/// A machine of a port of this host.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// The number of its last move to this host.
    pub(crate) sequence: u32,
    /// `true` if it counts as being here: its routes are announced.
    pub(crate) is_here: bool,
    /// `true` if it was found in two places at once.
    pub(crate) is_duplicate: bool,
    /// The number of the move by which another host has it.
    lost_to: Option<u32>,
    /// The times at which it came back.
    moves: VecDeque<Instant>,
}

impl Machine {
    /// Returns a machine that appears at a port while another host may have announced it.
    pub(crate) fn new(addresses: BTreeSet<IpAddr>, elsewhere: Option<Best>) -> Self {
        let sequence = match elsewhere {
            Some(best) if !best.is_sticky => best.sequence.saturating_add(1),
            _ => 0,
        };
        let (lost_to, moves) = (None, VecDeque::new());
        Self { addresses, sequence, is_here: true, is_duplicate: false, lost_to, moves }
    }

    /// Handles a frame that the machine sent here although it counts as being elsewhere. Returns `true` if it is to be
    /// announced as moved here.
    pub(crate) fn claim(&mut self, now: Instant, elsewhere: Best) -> bool {
        if self.is_here || elsewhere.is_sticky {
            return false;
        }
        let (limit, within) = MAX_MOVES;
        self.moves.retain(|&at| now.since(at) < within);
        self.is_duplicate = self.moves.len() >= limit;
        if self.is_duplicate {
            return false;
        }
        self.moves.push_back(now);
        self.sequence = elsewhere.sequence.saturating_add(1);
        true
    }

    /// Decides whether the machine is here or at the best place elsewhere: the later move wins, then the lower address.
    /// Returns `true` if its routes may differ from those before.
    pub(crate) fn evaluate(&mut self, elsewhere: Option<Best>, own: IpAddr) -> bool {
        let was_here = self.is_here;
        let Some(best) = elsewhere else {
            if let Some(lost) = self.lost_to.take() {
                // A late copy of the other host's route must not win again.
                self.sequence = self.sequence.max(lost.saturating_add(1));
            }
            (self.is_here, self.is_duplicate) = (true, false);
            return !was_here;
        };
        let theirs = (best.sequence, Reverse(best.vtep));
        self.is_here = !best.is_sticky && (self.sequence, Reverse(own)) > theirs;
        self.is_duplicate &= !self.is_here;
        self.lost_to = (!self.is_here).then_some(best.sequence);
        was_here != self.is_here
    }
}
