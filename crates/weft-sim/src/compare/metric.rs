//! The metrics of a comparison, read from each run: a row each.

use Show::{Decimals, Percent};
use Shown::{Always, IfAny, Never};

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// A number with this many decimals.
    Decimals(usize),
    /// A share of one, as a percentage.
    Percent,
}

/// One number of each run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The metric's key for programs, with the unit as its last word.
    pub key: &'static str,
    /// The metric's heading in tables.
    pub heading: &'static str,
    /// The dotted key in the run's report. A run without it lacks the metric.
    pub value: &'static str,
    /// The format of the value.
    pub show: Show,
    /// The condition under which tables show the metric.
    pub shown: Shown,
}

/// The condition under which tables show a metric; output for programs always has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Tables always show it.
    Always,
    /// Tables show it if at least one row's mean is not zero.
    IfAny,
    /// Tables never show it.
    Never,
}

const fn metric(
    key: &'static str,
    heading: &'static str,
    value: &'static str,
    show: Show,
    shown: Shown,
) -> Metric {
    Metric { key, heading, value, show, shown }
}

/// All metrics, in the order of columns.
pub const METRICS: &[Metric] = &[
    metric("flows", "flows", "slowdown.count", Decimals(0), Always),
    metric("unfinished", "unfinished", "unfinished", Decimals(0), IfAny),
    metric("slowdown_mean", "slowdown", "slowdown.mean", Decimals(3), Always),
    metric("slowdown_p50", "p50", "slowdown.p50", Decimals(3), Always),
    metric("slowdown_p95", "p95", "slowdown.p95", Decimals(3), Always),
    metric("slowdown_p99", "p99", "slowdown.p99", Decimals(3), Always),
    metric("slowdown_p999", "p99.9", "slowdown.p999", Decimals(2), Always),
    metric("fct_mean_us", "FCT us", "fct_us.mean", Decimals(1), Never),
    metric("fct_p99_us", "p99 us", "fct_us.p99", Decimals(1), Never),
    metric("round_mean_us", "round us", "rounds.mean", Decimals(1), IfAny),
    metric("training_ms", "training ms", "training_ms", Decimals(1), IfAny),
    metric("slow_uplink_share", "by slow", "ports.slow_uplinks.share", Percent, IfAny),
    metric("slow_uplink_load", "slow load", "ports.slow_uplinks.load", Percent, IfAny),
    metric("fast_uplink_load", "fast load", "ports.slow_uplinks.fast_load", Percent, IfAny),
    metric("retransmit_share", "retransmits", "transport.retransmit_share", Percent, IfAny),
    metric("out_of_order_share", "out of order", "transport.out_of_order_share", Percent, IfAny),
    metric("path_switches", "switches", "transport.path_switches", Decimals(0), IfAny),
    metric("probe_share", "probes", "transport.probe_share", Percent, IfAny),
    metric("marked_packets", "marked", "marked", Decimals(0), Never),
    metric("lost_packets", "lost", "lost", Decimals(0), IfAny),
    metric("uplink_load_mean", "uplinks", "ports.tiers.leaf-up.mean", Percent, IfAny),
    metric("uplink_load_max", "fullest", "ports.tiers.leaf-up.max", Percent, IfAny),
    metric("uplink_queue_p99_bytes", "queue p99", "uplink_queue_p99_bytes", Decimals(0), Never),
    metric("uplink_imbalance", "max/mean", "ports.max_over_mean.mean", Decimals(3), Never),
    metric("reordering_p99_packets", "ahead p99", "reordering.p99_distance", Decimals(0), Never),
    metric("reordering_held_bytes", "held bytes", "reordering.held_bytes.max", Decimals(0), Never),
];

impl Metric {
    /// Returns the value as text for tables.
    pub fn text(&self, value: f64) -> String {
        match self.show {
            Decimals(places) => format!("{value:.places$}"),
            Percent => format!("{:.2}%", value * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_once() {
        let mut keys: Vec<_> = METRICS.iter().map(|metric| metric.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), METRICS.len());
    }
}
