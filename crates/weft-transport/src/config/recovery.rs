//! The settings of loss detection, beside the retransmission timeout.

use weft_units::Duration;

use crate::recovery;

/// The parameters of loss detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct RecoveryConfig {
    /// The loss detection mechanism.
    pub kind: recovery::Kind,
    /// For `irn`: the number of packets beyond the first missing one that are acknowledged as usual; a packet further
    /// ahead is answered with a NACK. Zero in IRN itself; Hopper allows some (section 4.1.1).
    pub out_of_order: u16,
    /// For `irn` and `go-back-n`: the minimum interval between NACKs for the same missing packet. 4 us in the ns-3
    /// models.
    pub nack_interval: Duration,
    /// For `irn`: the shortest timeout while at most three packets are unacknowledged, so that a NACK cannot come
    /// (IRN's `RTO_low`).
    pub rto_low: Duration,
    /// For `irn` and `go-back-n`: `true` recovers as the public ns-3 models of HPCC and ConWeave do. Every early packet
    /// is answered with a NACK, every NACK and every mark on a duplicate is a congestion notification, the sender
    /// rewinds to the first missing packet instead of retransmitting only missing ones, and no NACK takes a path down
    /// (`docs/design/loss.md`).
    pub rewind: bool,
    /// For `per-path`: `true` suspends a path on which a packet is missing for two round trips, with all sent on it since:
    /// it is probed at once, and carries no new packets until it answers (`docs/design/loss.md`).
    pub suspend_silent: bool,
}

impl RecoveryConfig {
    /// Returns `true` if silent paths are suspended.
    #[inline]
    pub(crate) fn suspends(&self) -> bool {
        self.suspend_silent && self.kind == recovery::Kind::PerPath
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            kind: recovery::Kind::PerPath,
            out_of_order: 0,
            nack_interval: Duration::from_micros(4),
            rto_low: Duration::from_micros(100),
            rewind: false,
            suspend_silent: false,
        }
    }
}
