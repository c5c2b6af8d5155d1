//! What an endpoint counts.

use crate::DropReason;

/// Counters since the endpoint began. All of them only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Data packets sent, first transmissions and repeats.
    pub data_sent: u64,
    /// Data packets received and accepted.
    pub data_received: u64,
    /// ACK packets sent.
    pub acks_sent: u64,
    /// ACK packets received.
    pub acks_received: u64,
    /// Data packets sent again because a later one of the same path was acknowledged, or the
    /// reordering bound passed.
    pub fast_retransmits: u64,
    /// Data packets sent again because their retransmission timeout passed.
    pub timeout_retransmits: u64,
    /// Packets sent again that had arrived after all.
    pub spurious_retransmits: u64,
    /// Packets accepted that carried a congestion mark.
    pub ecn_marks: u64,
    /// Congestion marks that peers reported on packets of ours.
    pub ecn_marks_heard: u64,
    /// Packets accepted before one with a lower number.
    pub out_of_order: u64,
    /// Times a path went down.
    pub paths_down: u64,
    /// Times a path came back.
    pub paths_up: u64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Packets refused, by [`DropReason`] in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// Packets refused for `reason`.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}
