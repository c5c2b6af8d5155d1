//! How DCQCN cuts and raises its rate.

use weft_units::{BitRate, Duration};

use super::Range;
use crate::congestion::Scope;

/// DCQCN's parameters. The defaults are those of the ns-3 models that papers compare with (HPCC,
/// ConWeave, Hopper), at 100 Gb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct DcqcnConfig {
    /// 1/g: how many updates alpha looks back.
    pub g_inverse: u16,
    /// How often alpha is updated.
    pub alpha_interval: Duration,
    /// How often the rate is cut, if a congestion notification came since.
    pub decrease_interval: Duration,
    /// How long after a cut, and after each increase, the rate increases.
    pub increase_interval: Duration,
    /// Increases after a cut that go halfway back and no further.
    pub fast_recovery: u8,
    /// What the first increase after those adds to the target: R_AI.
    pub additive_increase: BitRate,
    /// What each later one adds: R_HAI.
    pub hyper_increase: BitRate,
    /// The rate is never cut below this.
    pub min_rate: BitRate,
    /// Whether at most a bandwidth-delay product may be in flight, as with IRN. Without, nothing but
    /// the rate and the send window hold packets back: RoCE over a lossless fabric.
    pub bdp_cap: bool,
    /// What a rate is of. `connection`: the queue pair keeps its rate when its packets take another
    /// path. `path`: each path is a queue pair of its own, as Hopper's are, which starts at the port's
    /// rate; while it is not used its rate climbs by its timers (`docs/design/hopper.md`).
    pub scope: Scope,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        let mbps = |mega: u64| BitRate::bps(mega * 1_000_000).expect("not zero");
        Self {
            g_inverse: 256,
            alpha_interval: Duration::from_micros(1),
            decrease_interval: Duration::from_micros(4),
            increase_interval: Duration::from_micros(300),
            fast_recovery: 1,
            additive_increase: mbps(40),
            hyper_increase: mbps(100),
            min_rate: mbps(100),
            bdp_cap: true,
            scope: Scope::Connection,
        }
    }
}

impl DcqcnConfig {
    pub(super) fn ranges(&self) -> [Range; 4] {
        let interval = |name, span: Duration| (name, span.as_nanos(), 100, SECOND, "100ns to 1s");
        [
            ("dcqcn.g_inverse", self.g_inverse.into(), 1, 65_535, "at least 1"),
            interval("dcqcn.alpha_interval", self.alpha_interval),
            interval("dcqcn.decrease_interval", self.decrease_interval),
            interval("dcqcn.increase_interval", self.increase_interval),
        ]
    }
}

const SECOND: u64 = 1_000_000_000;
