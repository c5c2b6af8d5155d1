//! A cache of translations: sets of a few entries, and a replacement policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{Rng, Seed};

use crate::time::SimTime;

weft_units::registry! {
    /// The entry of a full set that is replaced.
    #[non_exhaustive]
    pub enum Replacement: "replacement" {
        Lru => "lru", "the one that was used longest ago";
        Random => "random", "any";
    }
}

/// Configuration of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Number of entries in all.
    pub entries: u32,
    /// Number of entries of a set; a hash chooses the set.
    pub ways: u32,
    /// The replacement policy.
    #[serde(default = "lru")]
    pub replacement: Replacement,
}

fn lru() -> Replacement {
    Replacement::Lru
}

impl CacheConfig {
    pub(super) const fn lru(entries: u32, ways: u32) -> Self {
        Self { entries, ways, replacement: Replacement::Lru }
    }

    /// Returns `true` if the entries form whole sets.
    pub(super) const fn has_whole_sets(&self) -> bool {
        let Self { entries, ways, .. } = *self;
        ways != 0 && entries != 0 && entries.is_multiple_of(ways)
    }
}

/// The entries, set by set.
#[derive(Debug)]
pub(super) struct Cache {
    entries: Vec<Entry>,
    ways: usize,
    replacement: Replacement,
    key: u64,
    uses: u64,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    used: u64,
    /// The time at which its translation arrives, or arrived.
    known_at: SimTime,
}

const EMPTY: Entry = Entry { tag: u64::MAX, used: 0, known_at: SimTime::EPOCH };

impl Cache {
    pub(super) fn new(config: &CacheConfig, seed: Seed) -> Self {
        let mut rng = seed.rng();
        Self {
            entries: vec![EMPTY; config.entries as usize],
            ways: config.ways as usize,
            replacement: config.replacement,
            key: rng.next_u64(),
            uses: 0,
            rng,
        }
    }

    fn set(&mut self, tag: u64) -> &mut [Entry] {
        let sets = self.entries.len() / self.ways;
        let set = Seed(self.key ^ tag).rng().index(sets);
        &mut self.entries[set * self.ways..][..self.ways]
    }

    /// Returns the time at which `tag`'s translation is known, if it is present or requested.
    pub(super) fn look_up(&mut self, tag: u64) -> Option<SimTime> {
        self.uses += 1;
        let uses = self.uses;
        let entry = self.set(tag).iter_mut().find(|entry| entry.tag == tag)?;
        entry.used = uses;
        Some(entry.known_at)
    }

    /// Inserts the translation of `tag`, which is not present.
    pub(super) fn insert(&mut self, tag: u64, known_at: SimTime) {
        let (used, draw) = (self.uses, self.rng.index(self.ways));
        let replacement = self.replacement;
        let set = self.set(tag);
        let oldest = (0..set.len()).min_by_key(|&way| set[way].used).expect("sets are not empty");
        let is_full = set[oldest].tag != EMPTY.tag;
        let way = if is_full && replacement == Replacement::Random { draw } else { oldest };
        set[way] = Entry { tag, used, known_at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of misses in each of `rounds` rounds through tags `0..tags`.
    fn misses(config: &CacheConfig, tags: u64, rounds: u32) -> Vec<u64> {
        let mut cache = Cache::new(config, Seed(1));
        let mut round = || {
            let mut missed = 0;
            for tag in 0..tags {
                if cache.look_up(tag).is_none() {
                    missed += 1;
                    cache.insert(tag, SimTime::EPOCH);
                }
            }
            missed
        };
        (0..rounds).map(|_| round()).collect()
    }

    #[test]
    fn cyclic_use_of_one_set_hits_always_or_never() {
        let config = CacheConfig { entries: 64, ways: 64, replacement: Replacement::Lru };
        assert_eq!(misses(&config, 64, 3), [64, 0, 0]);
        assert_eq!(misses(&config, 65, 3), [65, 65, 65]);
    }

    #[test]
    fn random_replacement_keeps_some_entries_of_a_larger_set() {
        let config = CacheConfig { entries: 64, ways: 64, replacement: Replacement::Random };
        assert_eq!(misses(&config, 64, 3), [64, 0, 0]);
        let last = *misses(&config, 128, 50).last().unwrap();
        // A tag survives 127 + misses draws with probability (1 - 1/64)^misses: 102 of 128 miss.
        assert!((90..115).contains(&last), "{last}");
    }

    #[test]
    fn sets_overflow_before_the_cache_is_full_and_not_long_before() {
        let config = CacheConfig { entries: 4096, ways: 16, replacement: Replacement::Lru };
        let share = |tags: u64| misses(&config, tags, 3)[2] * 100 / tags;
        let (half, most, twice) = (share(2048), share(3072), share(8192));
        assert!(half <= 2 && (2..40).contains(&most) && twice > 95, "{half} {most} {twice}");
    }
}
