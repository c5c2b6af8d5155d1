//! The settings of TIMELY.

use weft_units::{BitRate, Duration};

use super::Range;

/// TIMELY's parameters, with the values of its section 6 (Mittal et al., SIGCOMM 2015). Its minimum round-trip time is
/// [`base_rtt`](super::TransportConfig::base_rtt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct TimelyConfig {
    /// T_low: the round-trip time below which the rate increases, whatever the gradient.
    pub t_low: Duration,
    /// T_high: the round-trip time above which the rate is cut, whatever the gradient.
    pub t_high: Duration,
    /// delta: the amount that an increase adds.
    pub additive_increase: BitRate,
    /// beta: the fraction that a cut takes off, per cent of the gradient.
    pub beta_percent: u16,
    /// alpha: the weight of a new difference in the gradient, per mille.
    pub alpha_permille: u16,
    /// The minimum rate; cuts stop there.
    pub min_rate: BitRate,
    /// `true` limits the bytes in flight to a bandwidth-delay product. The paper has no limit, and needs 40 ms of an
    /// incast of 127 flows to bring its rates down: 44 % of the packets are sent twice.
    pub bdp_cap: bool,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        let mbps = |mega: u64| BitRate::bps(mega * 1_000_000).expect("not zero");
        Self {
            t_low: Duration::from_micros(50),
            t_high: Duration::from_micros(500),
            additive_increase: mbps(10),
            beta_percent: 80,
            alpha_permille: 875,
            min_rate: mbps(100),
            bdp_cap: true,
        }
    }
}

impl TimelyConfig {
    pub(super) fn ranges(&self) -> [Range; 3] {
        let (low, high) = (self.t_low.as_nanos(), self.t_high.as_nanos());
        [
            ("timely.t_high", high, low, u64::MAX, "at least t_low"),
            ("timely.beta_percent", self.beta_percent.into(), 1, 100, "1 to 100 per cent"),
            ("timely.alpha_permille", self.alpha_permille.into(), 1, 1000, "1 to 1000 per mille"),
        ]
    }
}
