//! The congestion tables of CONGA's leaves.

use std::collections::BTreeMap;

use super::tag::Metric;
use crate::time::{SimSpan, SimTime};

/// The tables of one leaf.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Congestion of the path there, by leaf and own uplink: Congestion-To-Leaf.
    to: BTreeMap<(u32, u16), Reported>,
    /// Congestion of the paths from there, by leaf: Congestion-From-Leaf.
    from: BTreeMap<u32, FromLeaf>,
}

/// The feedback about a path, with its time.
#[derive(Clone, Copy, Debug)]
struct Reported {
    congestion: u8,
    at: SimTime,
}

/// The metrics of paths from one leaf, by that leaf's uplinks.
#[derive(Debug, Default)]
struct FromLeaf {
    metrics: BTreeMap<u16, Measured>,
    /// The uplink that was fed back last.
    last_reported: u16,
}

/// The latest metric of a path, with its time.
#[derive(Clone, Copy, Debug)]
struct Measured {
    congestion: u8,
    at: SimTime,
    /// `true` until the metric has been fed back to the other leaf.
    is_unreported: bool,
}

impl Tables {
    /// Returns the congestion of the path to `leaf` by `uplink`; zero if no feedback arrived within `aging`.
    pub(super) fn congestion_to(&self, leaf: u32, uplink: u16, now: SimTime, aging: SimSpan) -> u8 {
        let reported =
            self.to.get(&(leaf, uplink)).filter(|reported| now.since(reported.at) <= aging);
        reported.map_or(0, |reported| reported.congestion)
    }

    /// Stores feedback from `leaf` about a path to it.
    pub(super) fn on_feedback(&mut self, leaf: u32, metric: Metric, now: SimTime) {
        let Metric { uplink, congestion } = metric;
        self.to.insert((leaf, uplink), Reported { congestion, at: now });
    }

    /// Stores the metric that a packet from `leaf` measured on its path.
    pub(super) fn on_metric(&mut self, leaf: u32, metric: Metric, now: SimTime) {
        let Metric { uplink, congestion } = metric;
        let measured = self.from.entry(leaf).or_default().metrics.entry(uplink);
        let measured = measured.or_insert(Measured { congestion, at: now, is_unreported: true });
        let is_unreported = measured.is_unreported || measured.congestion != congestion;
        *measured = Measured { congestion, at: now, is_unreported };
    }

    /// Returns the next feedback for `leaf` about the paths from it: round robin, changed metrics first.
    pub(super) fn poll_feedback(
        &mut self,
        leaf: u32,
        now: SimTime,
        aging: SimSpan,
    ) -> Option<Metric> {
        let from = self.from.get_mut(&leaf)?;
        from.metrics.retain(|_, measured| now.since(measured.at) <= aging);
        let last_reported = from.last_reported;
        let in_turn = |from: &FromLeaf, wanted: fn(&Measured) -> bool| {
            let later = from.metrics.range(last_reported.saturating_add(1)..);
            let mut all = later.chain(from.metrics.range(..=last_reported));
            all.find(|(_, measured)| wanted(measured)).map(|(&uplink, _)| uplink)
        };
        let uplink =
            in_turn(from, |measured| measured.is_unreported).or_else(|| in_turn(from, |_| true))?;
        let measured = from.metrics.get_mut(&uplink)?;
        measured.is_unreported = false;
        from.last_reported = uplink;
        Some(Metric { uplink, congestion: measured.congestion })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGING: SimSpan = SimSpan::from_picos(100);

    fn at(picos: u64) -> SimTime {
        SimTime::from_picos(picos)
    }

    fn metric(uplink: u16, congestion: u8) -> Metric {
        Metric { uplink, congestion }
    }

    #[test]
    fn feedback_counts_until_it_is_old() {
        let mut tables = Tables::default();
        tables.on_feedback(3, metric(2, 6), at(10));
        assert_eq!(tables.congestion_to(3, 2, at(110), AGING), 6);
        assert_eq!(tables.congestion_to(3, 2, at(111), AGING), 0);
        assert_eq!(tables.congestion_to(3, 1, at(20), AGING), 0);
        assert_eq!(tables.congestion_to(4, 2, at(20), AGING), 0);
    }

    #[test]
    fn metrics_are_fed_back_in_turn_changed_ones_first_until_they_are_old() {
        let mut tables = Tables::default();
        assert_eq!(tables.poll_feedback(3, at(0), AGING), None);
        (0..3).for_each(|uplink| tables.on_metric(3, metric(uplink, 1), at(1)));
        let next = |tables: &mut Tables, now| {
            tables.poll_feedback(3, at(now), AGING).map(|metric| (metric.uplink, metric.congestion))
        };
        assert_eq!([next(&mut tables, 2), next(&mut tables, 2)], [Some((1, 1)), Some((2, 1))]);
        assert_eq!([next(&mut tables, 2), next(&mut tables, 2)], [Some((0, 1)), Some((1, 1))]);
        tables.on_metric(3, metric(0, 1), at(50));
        tables.on_metric(3, metric(1, 5), at(50));
        assert_eq!([next(&mut tables, 60), next(&mut tables, 60)], [Some((1, 5)), Some((2, 1))]);
        assert_eq!([next(&mut tables, 120), next(&mut tables, 120)], [Some((0, 1)), Some((1, 5))]);
        assert_eq!(next(&mut tables, 151), None);
    }
}
