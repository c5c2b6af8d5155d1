//! The settings of DCQCN.

use weft_units::{BitRate, Duration};

use super::Range;
use crate::congestion::Scope;

/// DCQCN's parameters. The defaults are those of the ns-3 models that papers compare with (HPCC, ConWeave, Hopper), at
/// 100 Gb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct DcqcnConfig {
    /// 1/g: the number of updates over which alpha averages.
    pub g_inverse: u16,
    /// The interval between updates of alpha.
    pub alpha_interval: Duration,
    /// The interval between cuts of the rate; a cut needs a congestion notification since the last one.
    pub decrease_interval: Duration,
    /// The time from a cut, and from each increase, to the next increase of the rate.
    pub increase_interval: Duration,
    /// The number of increases after a cut that only go halfway back to the rate before it.
    pub fast_recovery: u8,
    /// R_AI: the amount that the first increase after those adds to the target.
    pub additive_increase: BitRate,
    /// R_HAI: the amount that each later increase adds.
    pub hyper_increase: BitRate,
    /// The minimum rate; cuts stop there.
    pub min_rate: BitRate,
    /// `true` limits the bytes in flight to a bandwidth-delay product, as with IRN. With `false` only the rate and the
    /// send window hold packets back: RoCE over a lossless fabric.
    pub bdp_cap: bool,
    /// The scope of a rate. `connection`: the queue pair keeps its rate when its packets take another path. `path`:
    /// each path is a queue pair of its own, as in Hopper, which starts at the port's rate; while it is unused its rate
    /// increases by its timers (`docs/design/hopper.md`).
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
