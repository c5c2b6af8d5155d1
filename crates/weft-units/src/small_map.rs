//! A map that takes little memory while it has few entries.

use alloc::collections::{BTreeMap, btree_map};
use alloc::vec::Vec;
use core::mem;
use core::ops::{Bound, RangeBounds};

/// Maximum number of entries in a vector.
const MAX_FEW: usize = 8;

/// An ordered map: a sorted vector of up to eight entries, a [`BTreeMap`] from the ninth on.
///
/// The smallest [`BTreeMap`] allocates a node of eleven entries. For maps that most owners have and few fill, such as the
/// connections of a simulated host, that is most of their memory. The vector has no room to spare, so the first entries
/// are moved when one is added.
///
/// ```
/// let mut map = weft_units::SmallMap::new();
/// assert_eq!(map.insert(7, "seven"), None);
/// assert_eq!(map.insert(3, "three"), None);
/// assert_eq!(map.get(&7), Some(&"seven"));
/// assert_eq!(map.range(..5).collect::<Vec<_>>(), [(&3, &"three")]);
/// assert_eq!(map.remove(&3), Some("three"));
/// ```
#[derive(Clone, Debug)]
pub struct SmallMap<K, V>(Entries<K, V>);

#[derive(Clone, Debug)]
enum Entries<K, V> {
    Few(Vec<(K, V)>),
    Many(BTreeMap<K, V>),
}

impl<K, V> SmallMap<K, V> {
    /// Returns an empty map, which allocates nothing.
    pub const fn new() -> Self {
        Self(Entries::Few(Vec::new()))
    }
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        match &self.0 {
            Entries::Few(few) => find(few, key).ok().map(|place| &few[place].1),
            Entries::Many(many) => many.get(key),
        }
    }

    /// Sets the value of a key; returns its former value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let few = match &mut self.0 {
            Entries::Few(few) => few,
            Entries::Many(many) => return many.insert(key, value),
        };
        match find(few, &key) {
            Ok(place) => return Some(mem::replace(&mut few[place].1, value)),
            Err(place) if few.len() < MAX_FEW => {
                few.reserve_exact(1);
                few.insert(place, (key, value));
            }
            Err(_) => {
                let entries = mem::take(few).into_iter().chain([(key, value)]);
                self.0 = Entries::Many(entries.collect());
            }
        }
        None
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match &mut self.0 {
            Entries::Few(few) => find(few, key).ok().map(|place| few.remove(place).1),
            Entries::Many(many) => many.remove(key),
        }
    }

    /// Returns the entries whose keys are in `range`, in the order of keys.
    ///
    /// # Panics
    /// If the range ends before it starts.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = match &self.0 {
            Entries::Few(few) => (slice(few, &range), btree_map::Range::default()),
            Entries::Many(many) => (&[][..], many.range(range)),
        };
        few.iter().map(|(key, value)| (key, value)).chain(many)
    }

    /// Returns the values, in the order of keys.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        let (few, many) = match self.0 {
            Entries::Few(few) => (few, BTreeMap::new()),
            Entries::Many(many) => (Vec::new(), many),
        };
        few.into_iter().map(|(_, value)| value).chain(many.into_values())
    }
}

/// Returns the place of a key, or the one where it belongs.
fn find<K: Ord, V>(few: &[(K, V)], key: &K) -> Result<usize, usize> {
    few.binary_search_by(|(other, _)| other.cmp(key))
}

/// Returns the entries whose keys are in `range`.
fn slice<'a, K: Ord, V>(few: &'a [(K, V)], range: &impl RangeBounds<K>) -> &'a [(K, V)] {
    let start = match range.start_bound() {
        Bound::Included(start) => few.partition_point(|(key, _)| key < start),
        Bound::Excluded(start) => few.partition_point(|(key, _)| key <= start),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => few.partition_point(|(key, _)| key <= end),
        Bound::Excluded(end) => few.partition_point(|(key, _)| key < end),
        Bound::Unbounded => few.len(),
    };
    &few[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn it_holds_what_a_tree_holds_whatever_is_added_and_removed() {
        for (seed, keys) in [(1, 6), (2, 12), (3, 40)] {
            let mut rng = Seed(seed).rng();
            let (mut map, mut tree) = (SmallMap::new(), BTreeMap::new());
            for step in 0..2_000 {
                let key = rng.below(keys);
                if rng.chance(1, 2) {
                    assert_eq!(map.insert(key, step), tree.insert(key, step));
                } else {
                    assert_eq!(map.remove(&key), tree.remove(&key));
                }
                let (start, end) = (rng.below(keys), keys - 1);
                assert_eq!(map.get(&key), tree.get(&key));
                assert!(map.range(start..=end).eq(tree.range(start..=end)), "step {step}");
                assert!(map.range(..start).eq(tree.range(..start)), "step {step}");
            }
            assert_eq!(matches!(map.0, Entries::Many(_)), keys > 6);
            assert!(map.into_values().eq(tree.into_values()));
        }
    }

    #[test]
    fn few_entries_take_no_room_to_spare() {
        let mut map = SmallMap::new();
        for key in 0..3_u32 {
            map.insert(key, ());
        }
        let Entries::Few(few) = &map.0 else { panic!("three are few") };
        assert_eq!(few.capacity(), 3);
    }
}
