//! Counters of an endpoint.

use core::ops::AddAssign;

use crate::DropReason;

/// Counters since the endpoint was created. All of them only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of data packets sent, first transmissions and retransmissions.
    pub data_sent: u64,
    /// Number of data packets received and accepted.
    pub data_received: u64,
    /// Number of ACK packets sent.
    pub acks_sent: u64,
    /// Number of ACK packets received.
    pub acks_received: u64,
    /// Number of data packets retransmitted because a later one of the same path was acknowledged, or because the
    /// reordering window passed.
    pub fast_retransmits: u64,
    /// Number of data packets retransmitted because their retransmission timeout passed.
    pub timeout_retransmits: u64,
    /// Number of data packets retransmitted before that timeout, as tail loss probes that request an ACK.
    pub tail_loss_probes: u64,
    /// Number of packets retransmitted that had arrived.
    pub spurious_retransmits: u64,
    /// Number of packets accepted that carried a congestion mark.
    pub ecn_marks: u64,
    /// Number of congestion marks that peers reported on packets of this endpoint.
    pub ecn_marks_reported: u64,
    /// Number of NACKs received; each reports a packet that arrived too early.
    pub nacks_received: u64,
    /// Number of packets for which the owner had no room; the peer retransmits them.
    pub declined: u64,
    /// Number of packets that the owner discarded because they exceeded their rate.
    pub shed: u64,
    /// Number of packets accepted before one with a lower number.
    pub out_of_order: u64,
    /// Number of times a path went down.
    pub paths_down: u64,
    /// Number of times a path was closed for a while because it lost more than the others.
    pub paths_lossy: u64,
    /// Number of times a path came back.
    pub paths_up: u64,
    /// Number of times a new packet took another path than the connection's new packet before it.
    pub path_switches: u64,
    /// Time for which connections with payload to send waited for a change of path, summed over connections,
    /// nanoseconds.
    pub switch_stall_nanos: u64,
    /// Number of probes sent.
    pub probes_sent: u64,
    /// Bytes of probes and of probe answers sent, as UDP payload.
    pub probe_bytes: u64,
    /// Number of packets refused, by [`DropReason`] in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// Returns the number of packets refused for `reason`.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the number of data packets retransmitted, for any reason.
    pub fn retransmissions(&self) -> u64 {
        self.fast_retransmits + self.timeout_retransmits + self.tail_loss_probes
    }

    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}

impl AddAssign<&Self> for Stats {
    /// Adds another endpoint's counters.
    fn add_assign(&mut self, other: &Self) {
        // The fields are destructured, so that the compiler finds a counter that is missing here.
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
            ecn_marks_reported: ecn_marks_heard,
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
        self.ecn_marks_reported += ecn_marks_heard;
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
        let mut one = Stats { data_sent: 3, ecn_marks_reported: 1, ..Stats::default() };
        one.drop_packet(DropReason::Duplicate);
        let mut both = Stats { data_sent: 4, paths_up: 5, ..one.clone() };
        both += &one;
        assert_eq!((both.data_sent, both.ecn_marks_reported, both.paths_up), (7, 2, 5));
        assert_eq!(both.dropped_for(DropReason::Duplicate), 2);
        assert_eq!(both.dropped_for(DropReason::StaleAck), 0);
    }
}
