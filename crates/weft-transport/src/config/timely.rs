//! Which round-trip times TIMELY answers to, and how much.

use weft_units::{BitRate, Duration};

use super::Range;

/// TIMELY's parameters, with the values of its section 6 (Mittal et al., SIGCOMM 2015). Its minimum
/// round-trip time is [`base_rtt`](super::TransportConfig::base_rtt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct TimelyConfig {
    /// Below this round-trip time the rate grows whatever the gradient: T_low.
    pub t_low: Duration,
    /// Above this one it is cut whatever the gradient: T_high.
    pub t_high: Duration,
    /// What an increase adds: delta.
    pub additive_increase: BitRate,
    /// How much a cut takes off, per cent of the gradient: beta.
    pub beta_percent: u16,
    /// What a new difference counts for in the gradient, per mille: alpha.
    pub alpha_permille: u16,
    /// The rate is never cut below this.
    pub min_rate: BitRate,
    /// `true` if at most a bandwidth-delay product may be in flight. The paper has none, and needs 40 ms of
    /// an incast of 127 flows to bring its rates down: 44 % of the packets are sent twice.
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
