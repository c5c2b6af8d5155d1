//! What an endpoint counts.

use core::ops::AddAssign;

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
    /// Data packets sent again after a silence shorter than that, to ask for an ACK.
    pub tail_loss_probes: u64,
    /// Packets sent again that had arrived after all.
    pub spurious_retransmits: u64,
    /// Packets accepted that carried a congestion mark.
    pub ecn_marks: u64,
    /// Congestion marks that peers reported on packets of ours.
    pub ecn_marks_heard: u64,
    /// NACKs received: packets that the peer got too early.
    pub nacks_received: u64,
    /// Packets that the owner had no room for; the peer sends them again.
    pub declined: u64,
    /// Packets that the owner threw away because they came faster than they may.
    pub shed: u64,
    /// Packets accepted before one with a lower number.
    pub out_of_order: u64,
    /// Times a path went down.
    pub paths_down: u64,
    /// Times a path was left for a while because it lost more than the others.
    pub paths_lossy: u64,
    /// Times a path came back.
    pub paths_up: u64,
    /// Times a new packet took another path than the new packet before it of its connection.
    pub path_switches: u64,
    /// Time for which connections with payload to send waited for a change of path, all together, nanoseconds.
    pub switch_stall_nanos: u64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Bytes of probes and of answers to probes sent, as UDP carries them.
    pub probe_bytes: u64,
    /// Packets refused, by [`DropReason`] in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// Packets refused for `reason`.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Data packets sent again, whatever for.
    pub fn repeats(&self) -> u64 {
        self.fast_retransmits + self.timeout_retransmits + self.tail_loss_probes
    }

    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}

impl AddAssign<&Self> for Stats {
    /// The counters of two endpoints together.
    fn add_assign(&mut self, other: &Self) {
        // By name, so that a new counter is not forgotten.
        let Self {
            data_sent,
            data_received,
            acks_sent,
            acks_received,
            fast_retransmits,
            timeout_retransmits,
            tail_loss_probes,
            spurious_retransmits,
            ecn_marks,
            ecn_marks_heard,
            nacks_received,
            declined,
            shed,
            out_of_order,
            paths_down,
            paths_lossy,
            paths_up,
            path_switches,
            switch_stall_nanos,
            probes_sent,
            probe_bytes,
            dropped,
        } = other;
        self.data_sent += data_sent;
        self.data_received += data_received;
        self.acks_sent += acks_sent;
        self.acks_received += acks_received;
        self.fast_retransmits += fast_retransmits;
        self.timeout_retransmits += timeout_retransmits;
        self.tail_loss_probes += tail_loss_probes;
        self.spurious_retransmits += spurious_retransmits;
        self.ecn_marks += ecn_marks;
        self.ecn_marks_heard += ecn_marks_heard;
        self.nacks_received += nacks_received;
        self.declined += declined;
        self.shed += shed;
        self.out_of_order += out_of_order;
        self.paths_down += paths_down;
        self.paths_lossy += paths_lossy;
        self.paths_up += paths_up;
        self.path_switches += path_switches;
        self.switch_stall_nanos += switch_stall_nanos;
        self.probes_sent += probes_sent;
        self.probe_bytes += probe_bytes;
        for (sum, count) in self.dropped.iter_mut().zip(dropped) {
            *sum += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_two_ends_add_up_reason_by_reason() {
        let mut one = Stats { data_sent: 3, ecn_marks_heard: 1, ..Stats::default() };
        one.drop_packet(DropReason::Duplicate);
        let mut both = Stats { data_sent: 4, paths_up: 5, ..one.clone() };
        both += &one;
        assert_eq!((both.data_sent, both.ecn_marks_heard, both.paths_up), (7, 2, 5));
        assert_eq!(both.dropped_for(DropReason::Duplicate), 2);
        assert_eq!(both.dropped_for(DropReason::StaleAck), 0);
    }
}
