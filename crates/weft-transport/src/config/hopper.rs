//! When Hopper probes and switches.

use super::Range;

/// Hopper's parameters, with the values of its table 1. Per cent of the base round-trip time, which
/// is the shortest seen, at most [`base_rtt`](super::TransportConfig::base_rtt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct HopperConfig {
    /// What an epoch's mean counts for in the moving average, per cent; the rest is the average
    /// before.
    pub gain_percent: u16,
    /// Average above which alternatives are probed, per cent of the base: th_probe.
    pub th_probe_percent: u16,
    /// Average above which the path counts as congested, per cent of the base: th_cong.
    pub th_cong_percent: u16,
    /// How long a path that was probed is not probed again, per cent of the base: ttl_probe.
    pub ttl_probe_percent: u16,
    /// A path is taken only below this part of the average on the present one, per cent.
    pub margin_percent: u16,
    /// How long a change of path waits for the packets under way, per cent of the difference between the last of
    /// their round trips, estimated, and the new path's (section 3.3); zero leaves at once.
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
