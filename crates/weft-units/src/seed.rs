//! Seeds that are derived by name. A run has one seed, and each part draws from a child named after it, so a new part
//! never changes another part's stream.

use crate::{Fnv1a, Rng};

/// The one number from which all random draws of a run derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the child seed of a named part. A further part does not change it.
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
    fn one_more_host_leaves_the_other_hosts_draws_alone() {
        let run = Seed(42);
        let draw = |host| run.child("host", host).rng().next_u64();
        let before: Vec<_> = (0..4).map(draw).collect();
        let after: Vec<_> = (0..5).map(draw).collect();
        assert_eq!(before, after[..4]);
    }

    #[test]
    fn names_and_indices_both_matter() {
        let run = Seed(1);
        assert_ne!(run.child("link", 0), run.child("loss", 0));
        assert_ne!(run.child("link", 0), run.child("link", 1));
        assert_ne!(Seed(1).child("link", 0), Seed(2).child("link", 0));
    }
}
