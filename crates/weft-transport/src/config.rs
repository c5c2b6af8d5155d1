//! All settings of the transport, with default, unit and source.

use alloc::vec::Vec;

use weft_units::{BitRate, ByteCount, Duration};

use crate::congestion;
use crate::external::External;
use crate::path;

mod recovery;
mod rows;

pub use recovery::RecoveryConfig;
pub(crate) use rows::Settings;
pub use rows::SettingsTable;
use rows::{with_default_settings, with_settings};

/// A field's name, its value, its minimum, its maximum, and its range in words.
pub(crate) type Range = (&'static str, u64, u64, u64, &'static str);

with_settings! {
    /// The configuration of a connection. The papers' systems are values of this struct: [`Self::stellar`],
    /// [`Self::bifrost`], [`Self::ecmp`].
    #[derive(Clone, Debug, PartialEq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
    pub struct TransportConfig {
        /// The largest payload of one packet, bytes. STELLAR and htsim use 4 KB; an Ethernet MTU of 1500 bytes leaves 1440
        /// beside IPv4, UDP and the headers of this protocol.
        pub mtu: u16,
        /// The number of paths (entropies) a connection spreads over, 1 to 4096.
        pub paths: u16,
        /// The policy that chooses the path of each spray unit.
        pub policy: path::Kind,
        /// The number of packets that take one path before the policy selects again, at most: `unit` may shorten it. BIFROST:
        /// 50 (section 4.1); STELLAR: 1.
        pub spray_unit: u16,
        /// The unit policy, which shortens spray units under policies that use several paths at a time.
        pub unit: path::unit::Kind,
        /// For `rtt-groups` and `shortest-queue`: the number of paths in use at a time. BIFROST: 4 (section 4.1).
        pub top_k: u16,
        /// The congestion control, which limits the bytes in flight.
        pub congestion: congestion::Kind,
        /// The rate of the sender's port; with `base_rtt` it gives the bandwidth-delay product that windows start from.
        pub line_rate: BitRate,
        /// The bytes that a packet occupies on the port beside its payload: headers of this protocol 32, UDP 8, IPv4 20,
        /// Ethernet with its checksum 18. Rates include them.
        pub packet_overhead: u16,
        /// The round-trip time of an empty network.
        pub base_rtt: Duration,
        /// The maximum number of bytes in flight before the first ACK, from which slow start continues. No bound is needed
        /// where `line_rate` and `base_rtt` are those of the network; where they are estimates, it keeps a new connection
        /// from filling queues.
        pub first_window: u32,
        /// `true` divides the first window by the number of connections that open to the same receiver at once, and runs
        /// slow start from there. RDMA NICs and simulators of them have nothing similar: with `false` a connection begins
        /// with all that `first_window` and its congestion control allow.
        pub share_first_window: bool,
        /// For the `weft` congestion control: the target length of a standing queue, as a delay; at least half of the empty
        /// network's round trip. Hosts that wait for a processor need a queue as long as that wait.
        pub queue_target: Duration,
        /// Maximum number of packets in flight, 1 to 8192. BIFROST: 512 (section 7.4).
        pub send_window: u16,
        /// The number of packets accepted beyond the first missing one, 1 to 8192. A packet past it is dropped and counted;
        /// the two ends agree on the smaller of this and the peer's send window.
        pub reorder_window: u16,
        /// The number of packets placed before an ACK is sent.
        pub ack_every: u16,
        /// The longest time a placed packet waits for its ACK.
        pub ack_delay: Duration,
        /// The timeouts after which an unacknowledged packet is retransmitted.
        pub retransmission: Retransmission,
        /// Loss detection before those timeouts.
        pub recovery: RecoveryConfig,
        /// The number of consecutive losses on one path, without an acknowledgement between them, after which the path is
        /// down.
        pub path_down_after: u8,
        /// The interval between probes of a path that is down, or idle under a policy that compares paths.
        pub probe_interval: Duration,
        /// The bytes of padding in a probe, at most `mtu`; zero sends headers alone. A probe as long as a data packet takes
        /// as long on a slow link, so an idle slow path is not mistaken for an idle fast one (Hopper, sections 3.2 and
        /// 4.2.1: a few data packets, or a chunk of some kilobytes).
        pub probe_bytes: u16,
        /// The time without any packet sent or received after which a connection is closed.
        pub idle_timeout: Duration,
        /// The interval between keepalives on a silent connection; zero sends none.
        pub keepalive_interval: Duration,
        /// The time without a packet from a peer that owes an answer, after which the peer is considered gone.
        pub peer_timeout: Duration,
        /// Maximum number of queued messages on one connection.
        pub message_queue: u32,
        /// The owner's own path policy and congestion control, in place of `policy` and `congestion`.
        #[cfg_attr(feature = "serde", serde(skip))]
        pub external: External,
    }
}

/// The timeouts after which an unacknowledged packet is retransmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = as_overrides))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Retransmission {
    /// The shortest timeout, and the timeout before a round trip was measured. STELLAR: 250 us (section 7.2); BIFROST:
    /// 4 ms (section 4.3).
    pub rto_min: Duration,
    /// The longest timeout.
    pub rto_max: Duration,
    /// `true` doubles the timeout each time the same packet is retransmitted (BIFROST, section 4.3).
    pub backoff: bool,
    /// A missing packet is lost, if one sent later *on any path* was placed, when this long has passed since it was
    /// sent; the smoothed round-trip time and four times its variation are added, and spurious retransmissions lengthen
    /// it (RFC 8985, section 6.2; `docs/design/loss.md`).
    pub reorder_bound: Duration,
}

/// Makes every key optional: files override keys of a profile, which has them all.
#[cfg(feature = "schema")]
fn as_overrides(schema: &mut schemars::Schema) {
    schema.remove("required");
}

/// The reason a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}, expected {expected}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// The field's value.
    pub got: u64,
    /// The field's valid range, in words.
    pub expected: &'static str,
}

impl Retransmission {
    /// Returns the timeout of a packet that was retransmitted `retransmissions` times; `first` is the timeout of its
    /// first transmission.
    pub(crate) fn backed_off(&self, first: Duration, retransmissions: u8) -> Duration {
        let doublings = if self.backoff { retransmissions.min(16) } else { 0 };
        (first * (1 << doublings)).min(self.rto_max)
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self::stellar()
    }
}

impl TransportConfig {
    /// STELLAR (section 7.2): 128 paths, oblivious spray, one window from ECN and RTT, RTO 250 us.
    pub fn stellar() -> Self {
        with_default_settings! {
            Self {
                mtu: 4096,
                paths: 128,
                policy: path::Kind::Oblivious,
                spray_unit: 1,
                unit: path::unit::Kind::Window,
                top_k: 4,
                congestion: congestion::Kind::Stellar,
                line_rate: BitRate::gbps(200).expect("not zero"),
                packet_overhead: 78,
                base_rtt: Duration::from_micros(12),
                first_window: u32::MAX,
                share_first_window: true,
                queue_target: Duration::ZERO,
                send_window: 4096,
                reorder_window: 4096,
                ack_every: 4,
                ack_delay: Duration::from_micros(5),
                retransmission: Retransmission {
                    rto_min: Duration::from_micros(250),
                    rto_max: Duration::from_millis(4),
                    backoff: false,
                    reorder_bound: Duration::from_micros(10),
                },
                recovery: RecoveryConfig::default(),
                path_down_after: 3,
                probe_interval: Duration::from_millis(1),
                probe_bytes: 0,
                idle_timeout: Duration::from_secs(60),
                keepalive_interval: Duration::ZERO,
                peer_timeout: Duration::from_secs(2),
                message_queue: 65_536,
                external: External::default(),
            }
        }
    }

    /// BIFROST (sections 4 and 7.4, appendix D): groups of 50 packets over the best 4 of 8 paths,
    /// Swift per path, RTO 4 ms doubling, window 512.
    pub fn bifrost() -> Self {
        Self {
            mtu: 1440,
            paths: 8,
            policy: path::Kind::RttGroups,
            spray_unit: 50,
            congestion: congestion::Kind::Swift,
            line_rate: BitRate::gbps(10).expect("not zero"),
            base_rtt: Duration::from_micros(100),
            send_window: 512,
            reorder_window: 512,
            ack_every: 16,
            ack_delay: Duration::from_micros(100),
            retransmission: Retransmission {
                rto_min: Duration::from_millis(4),
                rto_max: Duration::from_millis(64),
                backoff: true,
                reorder_bound: Duration::from_micros(500),
            },
            probe_interval: Duration::from_millis(10),
            keepalive_interval: Duration::from_secs(10),
            ..Self::stellar()
        }
    }

    /// One path chosen by the fabric's hash, as RoCE uses today.
    pub fn ecmp() -> Self {
        Self { paths: 1, policy: path::Kind::Single, ..Self::stellar() }
    }

    /// Returns the bandwidth-delay product of the sender's port.
    pub fn bdp(&self) -> ByteCount {
        self.line_rate.bytes_in(self.base_rtt)
    }

    /// Returns `true` if the congestion control sends by the receiver's credit.
    pub(crate) fn takes_credit(&self) -> bool {
        match self.congestion {
            congestion::Kind::Rccc => true,
            congestion::Kind::Nscc => self.nscc.credits,
            _ => false,
        }
    }

    /// Returns the scope of the congestion control: one window or rate for all paths, or one for each.
    pub(crate) fn congestion_scope(&self) -> congestion::Scope {
        self.congestion.scope_under(self)
    }

    /// Returns the shortest retransmission timeout under this configuration.
    #[inline]
    pub(crate) fn shortest_timeout(&self) -> Duration {
        match self.recovery.kind {
            crate::recovery::Kind::Irn => self.retransmission.rto_min.min(self.recovery.rto_low),
            _ => self.retransmission.rto_min,
        }
    }

    /// Checks the range of every field.
    ///
    /// # Errors
    /// [`ConfigError`] for the first field that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let outside = |&(_, got, low, high, _): &Range| !(low..=high).contains(&got);
        match self.ranges().into_iter().find(outside) {
            Some((field, got, _, _, expected)) => Err(ConfigError { field, got, expected }),
            None => Ok(()),
        }
    }

    /// Returns the fields that have bounds, each with its bounds in words.
    pub fn bounds(&self) -> Vec<(&'static str, &'static str)> {
        self.ranges().into_iter().map(|(field, .., expected)| (field, expected)).collect()
    }

    fn ranges(&self) -> Vec<Range> {
        let nanos = |duration: Duration| duration.as_nanos();
        let ranges: &[Range] = &[
            ("mtu", self.mtu.into(), 64, 9000, "64 to 9000 bytes"),
            ("paths", self.paths.into(), 1, 4096, "1 to 4096"),
            ("spray_unit", self.spray_unit.into(), 1, 65_535, "at least 1 packet"),
            ("top_k", self.top_k.into(), 1, 4096, "1 to 4096"),
            ("send_window", self.send_window.into(), 1, 8192, "1 to 8192 packets"),
            ("reorder_window", self.reorder_window.into(), 1, 8192, "1 to 8192 packets"),
            ("queue_target", nanos(self.queue_target), 0, 1_000_000_000, "at most 1s"),
            ("ack_every", self.ack_every.into(), 1, 256, "1 to 256 packets"),
            ("packet_overhead", self.packet_overhead.into(), 32, 256, "32 to 256 bytes"),
            ("ack_delay", nanos(self.ack_delay), 0, 1_000_000_000, "at most 1s"),
            ("base_rtt", nanos(self.base_rtt), 1, 1_000_000_000, "above zero, at most 1s"),
            (
                "retransmission.rto_min",
                nanos(self.retransmission.rto_min),
                1_000,
                1_000_000_000,
                "1us to 1s",
            ),
            (
                "retransmission.rto_max",
                nanos(self.retransmission.rto_max),
                nanos(self.retransmission.rto_min),
                2_000_000_000,
                "at least rto_min, at most 2s",
            ),
            (
                "recovery.out_of_order",
                self.recovery.out_of_order.into(),
                0,
                8192,
                "at most 8192 packets",
            ),
            (
                "recovery.nack_interval",
                nanos(self.recovery.nack_interval),
                0,
                1_000_000_000,
                "at most 1s",
            ),
            (
                "recovery.rto_low",
                nanos(self.recovery.rto_low),
                1_000,
                nanos(self.retransmission.rto_max),
                "1us to retransmission.rto_max",
            ),
            ("path_down_after", self.path_down_after.into(), 1, 255, "at least 1"),
            ("probe_interval", nanos(self.probe_interval), 1_000, u64::MAX, "at least 1us"),
            ("probe_bytes", self.probe_bytes.into(), 0, self.mtu.into(), "at most mtu"),
            ("idle_timeout", nanos(self.idle_timeout), 1_000_000, u64::MAX, "at least 1ms"),
            ("peer_timeout", nanos(self.peer_timeout), 1_000_000, u64::MAX, "at least 1ms"),
            ("message_queue", self.message_queue.into(), 1, 1 << 24, "1 to 16777216"),
        ];
        let mut ranges = ranges.to_vec();
        ranges.extend(self.ranges_of_settings());
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HopperConfig;

    #[test]
    fn every_profile_is_valid() {
        for config in
            [TransportConfig::stellar(), TransportConfig::bifrost(), TransportConfig::ecmp()]
        {
            assert_eq!(config.validate(), Ok(()));
        }
    }

    #[test]
    fn a_bad_field_is_named_with_its_range() {
        let config = TransportConfig { ack_every: 0, ..TransportConfig::stellar() };
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "ack_every is 0, expected 1 to 256 packets");
    }

    #[test]
    fn a_bad_field_of_a_group_is_named_with_its_group() {
        let hopper = HopperConfig { th_cong_percent: 120, ..HopperConfig::default() };
        let config = TransportConfig { hopper, ..TransportConfig::stellar() };
        let message = config.validate().unwrap_err().to_string();
        let expected = "hopper.th_cong_percent is 120, expected th_probe_percent to 10000";
        assert_eq!(message, expected);
    }
}
