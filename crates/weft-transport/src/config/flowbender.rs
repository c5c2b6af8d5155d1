//! The settings of FlowBender.

use super::Range;

/// FlowBender's parameters. Its thresholds are the paper's (Kabbani et al., CoNEXT 2014).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct FlowBenderConfig {
    /// `true` counts ACKs of the path that was left for the new one, as in the published algorithm, which counts all
    /// ACKs of a connection in a round trip.
    pub stale_marks: bool,
    /// An ACK counts as marked when its round trip exceeds this percentage of `base_rtt`; zero uses congestion marks.
    /// In Hopper's testbed FlowBender used round trips (its section 4.2.1).
    pub rtt_percent: u16,
}

impl FlowBenderConfig {
    pub(super) fn ranges(&self) -> [Range; 1] {
        [("flowbender.rtt_percent", self.rtt_percent.into(), 0, 10_000, "0 to 10000 per cent")]
    }
}
