//! The choice of ports for affine hashes by linear equations over GF(2).
//!
//! A group of 2^k links is indexed by k bits of the hash, and each bit of an affine hash is a sum of bits of
//! the source port and a constant. So all choices on a path together have a matrix A, and a port for the wanted
//! links is a solution of `A · x = wanted ^ base`. Astral (section 3.4) takes this property from Zhang et al.
//! (USENIX ATC 2021). The paper omits two facts: the condition concerns the bits that form the index, and it
//! must hold for every *pair* of flows, not only against the first.

use alloc::vec::Vec;

/// A matrix over GF(2), reduced for solving. Its columns correspond to bits of the source port.
#[derive(Clone, Debug)]
pub struct Solver {
    /// Images of port bits, each with a leading bit of its own, and the port bits that produce it.
    basis: Vec<(u64, u16)>,
    /// Port changes that change no choice.
    kernel: Vec<u16>,
}

impl Solver {
    /// Builds the matrix whose column `i` is the change of the choices by bit `i` of the port.
    ///
    /// # Panics
    /// If there are more than 16 columns.
    pub fn new(columns: impl IntoIterator<Item = u64>) -> Self {
        let mut solver = Self { basis: Vec::new(), kernel: Vec::new() };
        for (bit, column) in columns.into_iter().enumerate() {
            assert!(bit < 16, "a port has 16 bits");
            match solver.reduce(column, 1 << bit) {
                (0, port) => solver.kernel.push(port),
                reduced => solver.insert(reduced),
            }
        }
        solver
    }

    /// Returns the number of choice bits that the port controls: flows can be distributed over 2 to this many paths.
    pub fn rank(&self) -> u32 {
        u32::try_from(self.basis.len()).expect("at most 16")
    }

    /// Returns a port change that changes the choices by exactly `wanted`, if there is one.
    pub fn solve(&self, wanted: u64) -> Option<u16> {
        let (rest, port) = self.reduce(wanted, 0);
        (rest == 0).then_some(port)
    }

    /// Returns the port change with this number among those that change no choice, modulo their number; the
    /// first is zero.
    pub fn silent(&self, number: u32) -> u16 {
        let chosen = |(bit, &port): (usize, &u16)| if number >> bit & 1 == 1 { port } else { 0 };
        self.kernel.iter().enumerate().map(chosen).fold(0, |all, port| all ^ port)
    }

    /// Returns port changes that lead any two flows of one pair of addresses over different links, for any
    /// addresses, base port and switch seeds: relative path control. It returns at most `count` changes; the
    /// first is zero.
    pub fn disjoint(&self, count: usize) -> Vec<u16> {
        let max_changes = 1usize << self.rank().min(16);
        let combine = |number: usize| {
            let chosen = self.basis.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
            chosen.fold(0, |all, (_, &(_, port))| all ^ port)
        };
        (0..count.min(max_changes)).map(combine).collect()
    }

    fn reduce(&self, mut image: u64, mut port: u16) -> (u64, u16) {
        for &(vector, from) in &self.basis {
            if image ^ vector < image {
                image ^= vector;
                port ^= from;
            }
        }
        (image, port)
    }

    /// Inserts into the basis, which is sorted by leading bit, highest first, so that one pass reduces.
    fn insert(&mut self, reduced: (u64, u16)) {
        let place = self.basis.partition_point(|other| other.0 > reduced.0);
        self.basis.insert(place, reduced);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use weft_topo::hash::{FiveTuple, HashAlgorithm, SwitchHash};
    use weft_units::Seed;

    use super::*;

    fn image(columns: &[u64], port: u16) -> u64 {
        let chosen = columns.iter().enumerate().filter(|(bit, _)| port >> bit & 1 == 1);
        chosen.fold(0, |all, (_, &column)| all ^ column)
    }

    #[test]
    fn a_port_is_found_if_and_only_if_one_exists() {
        for seed in 0..300 {
            let mut rng = Seed(seed).child("matrix", 0).rng();
            let (rows, count) = (1 + rng.below(10), 1 + rng.index(10));
            let columns: Vec<u64> = (0..count).map(|_| rng.below(1 << rows)).collect();
            let solver = Solver::new(columns.iter().copied());
            let reached: BTreeSet<u64> =
                (0..1 << count).map(|port| image(&columns, port)).collect();
            assert_eq!(reached.len(), 1 << solver.rank());
            for wanted in 0..1 << rows {
                match solver.solve(wanted) {
                    Some(port) => assert_eq!(image(&columns, port), wanted, "seed {seed}"),
                    None => assert!(!reached.contains(&wanted), "seed {seed}"),
                }
            }
            let silent: BTreeSet<u16> =
                (0..1 << solver.kernel.len()).map(|n| solver.silent(n)).collect();
            assert_eq!(
                silent.len() << solver.rank(),
                1 << count,
                "kernel and image fill the space"
            );
            assert!(silent.iter().all(|&port| image(&columns, port) == 0));
        }
    }

    #[test]
    fn disjoint_offsets_separate_every_pair_of_flows_for_any_addresses_and_seed() {
        for &algorithm in HashAlgorithm::ALL.iter().filter(|algorithm| algorithm.is_affine()) {
            let index = |seed, src, port: u16| {
                let switch = SwitchHash { algorithm, seed, rotate: 3 };
                let tuple = FiveTuple {
                    src,
                    dst: 0x0a00_0009,
                    src_port: port,
                    dst_port: 4791,
                    protocol: 17,
                };
                switch.select(&tuple, 64) as u64
            };
            let column = |bit: u32| index(0, 1, 0xc000 | 1 << bit) ^ index(0, 1, 0xc000);
            let solver = Solver::new((0..14).map(column));
            assert_eq!(solver.rank(), 6, "{algorithm:?}");
            let offsets = solver.disjoint(64);
            let mut rng = Seed(7).rng();
            for _ in 0..20 {
                let (seed, src) = (rng.next_u32(), rng.next_u32());
                let base = 0xc000 | u16::try_from(rng.below(1 << 14)).unwrap();
                let taken: BTreeSet<u64> =
                    offsets.iter().map(|offset| index(seed, src, base ^ offset)).collect();
                assert_eq!(taken.len(), 64, "{algorithm:?}");
            }
        }
    }

    #[test]
    fn the_papers_small_offsets_do_not_separate_four_flows_for_every_rotation() {
        // Section 3.4 takes δ = 1 to 4 with H(δ) ≠ H(0); this condition covers neither pairs nor index bits.
        let index = |rotate, port| {
            let switch = SwitchHash { algorithm: HashAlgorithm::Crc16Bisync, seed: 1, rotate };
            let tuple = FiveTuple { src: 1, dst: 2, src_port: port, dst_port: 4791, protocol: 17 };
            switch.select(&tuple, 4)
        };
        let distinct = |rotate| {
            (1..=4).map(|delta| index(rotate, 50_000 ^ delta)).collect::<BTreeSet<_>>().len()
        };
        assert!((0..16).any(|rotate| distinct(rotate) < 4));
    }
}
