//! What CONGA's leaves know of the paths between them.

use std::collections::BTreeMap;

use super::Metric;
use crate::time::{SimSpan, SimTime};

/// What one leaf knows.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By leaf and own uplink, how congested the way there is: Congestion-To-Leaf.
    to: BTreeMap<(u32, u16), Heard>,
    /// By leaf, how congested the ways from there are: Congestion-From-Leaf.
    from: BTreeMap<u32, From>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    congestion: u8,
    at: SimTime,
}

/// The ways from one leaf, by its uplinks.
#[derive(Debug, Default)]
struct From {
    ways: BTreeMap<u16, Seen>,
    /// The uplink that was told last.
    told: u16,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    congestion: u8,
    at: SimTime,
    /// Whether the other leaf has yet to be told.
    is_news: bool,
}

impl Tables {
    /// How congested the way to `leaf` by `uplink` is; not at all, as far as is known, when nothing
    /// was heard within `aging`.
    pub(super) fn congestion_to(&self, leaf: u32, uplink: u16, now: SimTime, aging: SimSpan) -> u8 {
        let heard = self.to.get(&(leaf, uplink)).filter(|heard| now.since(heard.at) <= aging);
        heard.map_or(0, |heard| heard.congestion)
    }

    /// `leaf` told about a way to it.
    pub(super) fn hear(&mut self, leaf: u32, metric: Metric, now: SimTime) {
        let Metric { uplink, congestion } = metric;
        self.to.insert((leaf, uplink), Heard { congestion, at: now });
    }

    /// A packet from `leaf` came with what it met on its way.
    pub(super) fn see(&mut self, leaf: u32, metric: Metric, now: SimTime) {
        let Metric { uplink, congestion } = metric;
        let seen = self.from.entry(leaf).or_default().ways.entry(uplink);
        let seen = seen.or_insert(Seen { congestion, at: now, is_news: true });
        let is_news = seen.is_news || seen.congestion != congestion;
        *seen = Seen { congestion, at: now, is_news };
    }

    /// What to tell `leaf` next about the ways from it: in turn, and news first.
    pub(super) fn tell(&mut self, leaf: u32, now: SimTime, aging: SimSpan) -> Option<Metric> {
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
        tables.hear(3, metric(2, 6), at(10));
        assert_eq!(tables.congestion_to(3, 2, at(110), AGING), 6);
        assert_eq!(tables.congestion_to(3, 2, at(111), AGING), 0);
        assert_eq!(tables.congestion_to(3, 1, at(20), AGING), 0);
        assert_eq!(tables.congestion_to(4, 2, at(20), AGING), 0);
    }

    #[test]
    fn ways_are_told_in_turn_news_first_until_they_are_old() {
        let mut tables = Tables::default();
        assert_eq!(tables.tell(3, at(0), AGING), None);
        (0..3).for_each(|uplink| tables.see(3, metric(uplink, 1), at(1)));
        let told = |tables: &mut Tables, now| {
            tables.tell(3, at(now), AGING).map(|metric| (metric.uplink, metric.congestion))
        };
        assert_eq!([told(&mut tables, 2), told(&mut tables, 2)], [Some((1, 1)), Some((2, 1))]);
        assert_eq!([told(&mut tables, 2), told(&mut tables, 2)], [Some((0, 1)), Some((1, 1))]);
        tables.see(3, metric(0, 1), at(50));
        tables.see(3, metric(1, 5), at(50));
        assert_eq!([told(&mut tables, 60), told(&mut tables, 60)], [Some((1, 5)), Some((2, 1))]);
        assert_eq!([told(&mut tables, 120), told(&mut tables, 120)], [Some((0, 1)), Some((1, 5))]);
        assert_eq!(told(&mut tables, 151), None);
    }
}
