//! Seeds that are derived by name. A run has one seed, and each part draws from a child named after it, so a new part
//! never changes another part's stream.

use crate::{Fnv1a, Rng};

/// A seed: the number from which all random draws of a run, or of a part of it, derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the child seed of the part named `part` with number `index`. It depends on nothing else but this seed.
    pub fn child(self, part: &str, index: u64) -> Self {
        // FNV-1a over the name, then SplitMix64's finaliser: FNV alone gives neighbouring indices similar seeds.
        let hash = Fnv1a::seeded(self.0).with(part.bytes()).with(index.to_le_bytes());
        Self(crate::rng::mix(hash.finish()))
    }

    /// Returns a generator that starts from this seed.
    pub const fn rng(self) -> Rng {
        Rng::new(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_host_does_not_change_the_other_hosts_draws() {
        let run = Seed(42);
        let draw = |host| run.child("host", host).rng().next_u64();
        let before: Vec<_> = (0..4).map(draw).collect();
        let after: Vec<_> = (0..5).map(draw).collect();
        assert_eq!(before, after[..4]);
    }

    #[test]
    fn a_child_depends_on_seed_name_and_index() {
        let run = Seed(1);
        assert_ne!(run.child("link", 0), run.child("loss", 0));
        assert_ne!(run.child("link", 0), run.child("link", 1));
        assert_ne!(Seed(1).child("link", 0), Seed(2).child("link", 0));
    }
}
