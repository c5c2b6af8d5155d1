//! The settings of Hopper.

use super::Range;

/// Hopper's parameters, with the values of its table 1. Percentages are of the base round-trip time: the shortest seen,
/// at most [`base_rtt`](super::TransportConfig::base_rtt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct HopperConfig {
    /// The weight of an epoch's mean in the moving average, per cent; the previous average has the rest.
    pub gain_percent: u16,
    /// th_probe: the average above which alternatives are probed, per cent of the base.
    pub th_probe_percent: u16,
    /// th_cong: the average above which the path counts as congested, per cent of the base.
    pub th_cong_percent: u16,
    /// ttl_probe: the time during which a probed path is not probed again, per cent of the base.
    pub ttl_probe_percent: u16,
    /// The flow moves to a path only if its round trip is below this part of the current path's average, per cent.
    pub margin_percent: u16,
    /// The time a change of path waits for the packets in flight, per cent of the difference between the estimated
    /// round trip of the last of them and the new path's round trip (section 3.3); zero does not wait.
    pub delay_percent: u16,
}

impl Default for HopperConfig {
    fn default() -> Self {
        Self {
            gain_percent: 100,
            th_probe_percent: 150,
            th_cong_percent: 250,
            ttl_probe_percent: 400,
            margin_percent: 80,
            delay_percent: 100,
        }
    }
}

impl HopperConfig {
    pub(super) fn ranges(&self) -> [Range; 6] {
        let threshold = "100 to 10000 per cent";
        let (gain, margin) = (self.gain_percent.into(), self.margin_percent.into());
        let probe = u64::from(self.th_probe_percent);
        let congested = u64::from(self.th_cong_percent);
        [
            ("hopper.gain_percent", gain, 1, 100, "1 to 100 per cent"),
            ("hopper.th_probe_percent", probe, 100, 10_000, threshold),
            ("hopper.th_cong_percent", congested, probe, 10_000, "th_probe_percent to 10000"),
            ("hopper.ttl_probe_percent", self.ttl_probe_percent.into(), 100, 10_000, threshold),
            ("hopper.margin_percent", margin, 1, 100, "1 to 100 per cent"),
            ("hopper.delay_percent", self.delay_percent.into(), 0, 1_000, "0 to 1000 per cent"),
        ]
    }
}
