//! Counters of an endpoint: one table, from which the structure, its sums and every report of them come.

use core::ops::AddAssign;

use crate::DropReason;

/// A row of the table: one counter of [`Stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name in reports and, as the label `event`, in metrics. It stays when the field is renamed.
    pub key: &'static str,
    /// The counted unit.
    pub unit: CounterUnit,
    /// One or two sentences on what is counted.
    pub about: &'static str,
}

weft_units::registry! {
    /// The unit of a counter.
    pub enum CounterUnit: "unit of a counter" {
        /// Packets of the transport.
        Packets => "packets";
        /// Occurrences of an event.
        Events => "events";
        /// Bytes.
        Bytes => "bytes";
        /// Nanoseconds.
        Nanoseconds => "ns";
    }
}

/// Declares [`Stats`] from a row for each counter: its documentation, its field, its unit and its key in reports.
macro_rules! counters {
    ($($(#[doc = $about:literal])+ $field:ident: $unit:ident => $key:literal;)+) => {
        /// Counters since the endpoint was created. All of them only grow.
        ///
        /// With the feature `serde`, a structure of the table's keys; a missing key is zero. The refused packets are not
        /// part of it, because reports name them by reason.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct Stats {
            $($(#[doc = $about])+ #[cfg_attr(feature = "serde", serde(rename = $key))] pub $field: u64,)+
            /// Number of packets refused, by [`DropReason`] in the order of [`DropReason::ALL`]. The report of `weft perf`
            /// calls the same counts `dropped`, that of the simulator and the records of a device `refused`.
            #[cfg_attr(feature = "serde", serde(skip))]
            pub dropped: [u64; DropReason::ALL.len()],
        }

        impl Stats {
            /// The table, except for the refused packets.
            pub const COUNTERS: &'static [Counter] = &[$(Counter {
                key: $key,
                unit: CounterUnit::$unit,
                about: concat!($($about),+).trim_ascii_start(),
            }),+];

            /// Returns the key and the value of each counter, in the order of [`COUNTERS`](Self::COUNTERS).
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$(($key, self.$field)),+].into_iter()
            }
        }

        impl AddAssign<&Self> for Stats {
            /// Adds another endpoint's counters.
            fn add_assign(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
                for (sum, count) in self.dropped.iter_mut().zip(other.dropped) {
                    *sum += count;
                }
            }
        }
    };
}

counters! {
    /// Number of data packets sent, first transmissions and retransmissions.
    data_sent: Packets => "data_sent";
    /// Number of data packets received and accepted.
    data_received: Packets => "data_received";
    /// Number of ACK packets sent.
    acks_sent: Packets => "acks_sent";
    /// Number of ACK packets received.
    acks_received: Packets => "acks_received";
    /// Number of data packets retransmitted because a later one of the same path was acknowledged, or because the
    /// reordering window passed.
    fast_retransmits: Packets => "fast_retransmits";
    /// Number of data packets retransmitted because their retransmission timeout passed.
    timeout_retransmits: Packets => "timeout_retransmits";
    /// Number of data packets retransmitted before that timeout, as tail loss probes that request an ACK.
    tail_loss_probes: Packets => "tail_loss_probes";
    /// Number of packets retransmitted that had arrived.
    spurious_retransmits: Packets => "spurious_retransmits";
    /// Number of packets accepted that carried a congestion mark.
    ecn_marks: Packets => "ecn_marks";
    /// Number of congestion marks that peers reported on packets of this endpoint.
    ecn_marks_reported: Packets => "ecn_marks_reported";
    /// Number of NACKs received; each reports a packet that arrived too early, or without its payload.
    nacks_received: Packets => "nacks_received";
    /// Number of packets for which the owner had no room; the peer retransmits them.
    declined: Packets => "declined";
    /// Number of packets that the owner discarded because they exceeded their rate.
    policed: Packets => "shed";
    /// Number of packets accepted before one with a lower number.
    out_of_order: Packets => "out_of_order";
    /// Number of times a path went down.
    paths_down: Events => "paths_down";
    /// Number of times a path was closed for a while because it lost more than the others.
    paths_lossy: Events => "paths_lossy";
    /// Number of times a path came back.
    paths_up: Events => "paths_up";
    /// Number of times a new packet took another path than the connection's new packet before it.
    path_switches: Events => "path_switches";
    /// Time for which connections with payload to send waited for a change of path, summed over connections,
    /// nanoseconds.
    switch_stall_nanos: Nanoseconds => "switch_stall_nanos";
    /// Number of probes sent.
    probes_sent: Packets => "probes_sent";
    /// Bytes of probes and of probe answers sent, as UDP payload.
    probe_bytes: Bytes => "probe_bytes";
}

impl Stats {
    /// Returns the number of packets refused for `reason`.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the number of data packets retransmitted, for any reason, tail loss probes included. The simulator's
    /// `retransmit_share` leaves those out.
    pub fn retransmissions(&self) -> u64 {
        self.fast_retransmits + self.timeout_retransmits + self.tail_loss_probes
    }

    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
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

    #[test]
    fn keys_are_named_once_and_belong_to_their_rows() {
        let mut keys: Vec<_> = Stats::COUNTERS.iter().map(|counter| counter.key).collect();
        let stats = Stats { data_sent: 1, ecn_marks_reported: 2, ..Stats::default() };
        let set: Vec<_> = stats.rows().filter(|(_, count)| *count > 0).collect();
        assert_eq!(set, [("data_sent", 1), ("ecn_marks_reported", 2)]);
        assert!(stats.rows().map(|(key, _)| key).eq(keys.iter().copied()));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), Stats::COUNTERS.len());
    }
}
