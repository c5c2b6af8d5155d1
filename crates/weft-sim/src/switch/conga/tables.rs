//! The congestion tables of CONGA's leaves.

use std::collections::BTreeMap;

use super::Metric;
use crate::time::{SimSpan, SimTime};

/// The tables of one leaf.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Congestion of the path there, by leaf and own uplink: Congestion-To-Leaf.
    to: BTreeMap<(u32, u16), Reported>,
    /// Congestion of the paths from there, by leaf: Congestion-From-Leaf.
    from: BTreeMap<u32, From>,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    congestion: u8,
    at: SimTime,
}

/// The metrics of paths from one leaf, by that leaf's uplinks.
#[derive(Debug, Default)]
struct From {
    ways: BTreeMap<u16, Seen>,
    /// The uplink that was fed back last.
    told: u16,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    congestion: u8,
    at: SimTime,
    /// `true` until the metric has been fed back to the other leaf.
    is_news: bool,
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
        let seen = self.from.entry(leaf).or_default().ways.entry(uplink);
        let seen = seen.or_insert(Seen { congestion, at: now, is_news: true });
        let is_news = seen.is_news || seen.congestion != congestion;
        *seen = Seen { congestion, at: now, is_news };
    }

    /// Returns the next feedback for `leaf` about the paths from it: round robin, changed metrics first.
    pub(super) fn poll_feedback(
        &mut self,
        leaf: u32,
        now: SimTime,
        aging: SimSpan,
    ) -> Option<Metric> {
        let from = self.from.get_mut(&leaf)?;
        from.ways.retain(|_, seen| now.since(seen.at) <= aging);
        let told = from.told;
        let in_turn = |from: &From, wanted: fn(&Seen) -> bool| {
            let later = from.ways.range(told.saturating_add(1)..);
            let mut all = later.chain(from.ways.range(..=told));
            all.find(|(_, seen)| wanted(seen)).map(|(&uplink, _)| uplink)
        };
        let uplink = in_turn(from, |seen| seen.is_news).or_else(|| in_turn(from, |_| true))?;
        let seen = from.ways.get_mut(&uplink)?;
        seen.is_news = false;
        from.told = uplink;
        Some(Metric { uplink, congestion: seen.congestion })
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
    fn what_was_heard_counts_until_it_is_old() {
        let mut tables = Tables::default();
        tables.on_feedback(3, metric(2, 6), at(10));
        assert_eq!(tables.congestion_to(3, 2, at(110), AGING), 6);
        assert_eq!(tables.congestion_to(3, 2, at(111), AGING), 0);
        assert_eq!(tables.congestion_to(3, 1, at(20), AGING), 0);
        assert_eq!(tables.congestion_to(4, 2, at(20), AGING), 0);
    }

    #[test]
    fn ways_are_told_in_turn_news_first_until_they_are_old() {
        let mut tables = Tables::default();
        assert_eq!(tables.poll_feedback(3, at(0), AGING), None);
        (0..3).for_each(|uplink| tables.on_metric(3, metric(uplink, 1), at(1)));
        let told = |tables: &mut Tables, now| {
            tables.poll_feedback(3, at(now), AGING).map(|metric| (metric.uplink, metric.congestion))
        };
        assert_eq!([told(&mut tables, 2), told(&mut tables, 2)], [Some((1, 1)), Some((2, 1))]);
        assert_eq!([told(&mut tables, 2), told(&mut tables, 2)], [Some((0, 1)), Some((1, 1))]);
        tables.on_metric(3, metric(0, 1), at(50));
        tables.on_metric(3, metric(1, 5), at(50));
        assert_eq!([told(&mut tables, 60), told(&mut tables, 60)], [Some((1, 5)), Some((2, 1))]);
        assert_eq!([told(&mut tables, 120), told(&mut tables, 120)], [Some((0, 1)), Some((1, 5))]);
        assert_eq!(told(&mut tables, 151), None);
    }
}
