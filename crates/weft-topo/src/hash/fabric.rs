//! One hash function for a whole fabric, precomputed for a simulator's inner loop.

use alloc::boxed::Box;
use alloc::vec;

use super::{FiveTuple, Function, HashAlgorithm, linux, modulo, rotate_right};

/// A hash function, precomputed so that it is cheap at every hop.
///
/// An affine hash of a tuple of fixed length is `H(seed, tuple) = C ^ Z(seed) ^ T0[byte 0] ^ … ^
/// T12[byte 12]`: `C` is the hash of thirteen zero bytes under seed 0, `Z` the change that a seed makes
/// to it, and each table the change that its byte makes. [`base`](Self::base) is the hash without `Z`,
/// computed once for each packet; a [`SwitchSalt`] is `Z` and the switch's rotation, computed once
/// for each switch; [`select`](Self::select) is an XOR, a rotation and a modulus. For a CRC `Z(seed)`
/// is the seed shifted through thirteen zero bytes, which is not the seed itself: the result is the
/// same as for a register that starts with `init ^ seed`.
///
/// Linux's hash is not affine. Its base is zero and `select` hashes the tuple at every hop.
#[derive(Clone, Debug)]
pub struct FabricHash {
    algorithm: HashAlgorithm,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Affine { width: u32, hash: fn(u32, &[u8]) -> u32, constant: u32, tables: Box<Tables> },
    Linux(linux::Policy),
}

/// The change of the hash for each byte position of the tuple and each value of that byte.
type Tables = [[u32; 256]; FiveTuple::LEN];

/// The seed and rotation of one switch, as [`FabricHash::salt`] returns it; valid for that hash only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchSalt {
    /// `Z(seed)`, or Linux's seed.
    value: u32,
    rotate: u32,
}

/// The choice function of one switch with an affine hash, as [`FabricHash::choice`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct SwitchChoice {
    salt: SwitchSalt,
    width: u32,
}

impl SwitchChoice {
    /// Returns the index of the link, of `count` equal-cost links, that a packet with this base takes.
    ///
    /// # Panics
    /// Panics if `count` is zero.
    #[inline(always)] // Called at every hop of a simulation.
    pub fn of(&self, base: u32, count: usize) -> usize {
        modulo(rotate_right(base ^ self.salt.value, self.salt.rotate, self.width), count)
    }
}

impl FabricHash {
    /// Returns `algorithm` in its precomputed form; an affine function has 13 KiB of tables.
    pub fn new(algorithm: HashAlgorithm) -> Self {
        let kind = match algorithm.function() {
            Function::Affine { width, hash } => {
                let constant = hash(0, &[0; FiveTuple::LEN]);
                Kind::Affine { width, hash, constant, tables: tabulate(hash, constant) }
            }
            Function::Linux(policy) => Kind::Linux(policy),
        };
        Self { algorithm, kind }
    }

    /// Returns the hash algorithm.
    pub const fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// Returns the salt of a switch with this seed and rotation, both as in
    /// [`SwitchHash`](super::SwitchHash).
    pub fn salt(&self, seed: u32, rotate: u32) -> SwitchSalt {
        let value = match &self.kind {
            Kind::Affine { hash, constant, .. } => hash(seed, &[0; FiveTuple::LEN]) ^ constant,
            Kind::Linux(_) => seed,
        };
        SwitchSalt { value, rotate }
    }

    /// Returns the part of the hash that all switches share; zero if the function is not affine.
    #[inline]
    pub fn base(&self, tuple: &FiveTuple) -> u32 {
        match &self.kind {
            Kind::Affine { constant, tables, .. } => tables
                .iter()
                .zip(tuple.to_bytes())
                .fold(*constant, |hash, (table, byte)| hash ^ table[usize::from(byte)]),
            Kind::Linux(_) => 0,
        }
    }

    /// Returns the choice function of a switch with this salt, whose only input is a packet's base; `None` if the hash
    /// is not affine, because then the choice requires the tuple.
    #[inline]
    pub fn choice(&self, salt: SwitchSalt) -> Option<SwitchChoice> {
        match self.kind {
            Kind::Affine { width, .. } => Some(SwitchChoice { salt, width }),
            Kind::Linux(_) => None,
        }
    }

    /// Returns the number from which the switch chooses, equal to
    /// [`SwitchHash::value`](super::SwitchHash::value). The arguments are those of
    /// [`select`](Self::select).
    #[inline]
    pub fn value(&self, base: u32, tuple: impl FnOnce() -> FiveTuple, salt: SwitchSalt) -> u32 {
        match &self.kind {
            Kind::Affine { width, .. } => rotate_right(base ^ salt.value, salt.rotate, *width),
            Kind::Linux(policy) => linux::multipath_hash(*policy, salt.value, &tuple()),
        }
    }

    /// Returns the index of the link, of `count` equal-cost links, that the switch takes, equal to
    /// [`SwitchHash::select`](super::SwitchHash::select). `base` must be the tuple's; the tuple itself
    /// is read only if the hash is not affine.
    ///
    /// # Panics
    /// Panics if `count` is zero.
    #[inline(always)] // Called at every hop of a simulation.
    pub fn select(
        &self,
        base: u32,
        tuple: impl FnOnce() -> FiveTuple,
        salt: SwitchSalt,
        count: usize,
    ) -> usize {
        match &self.kind {
            Kind::Affine { width, .. } => SwitchChoice { salt, width: *width }.of(base, count),
            Kind::Linux(policy) => {
                linux::select(linux::multipath_hash(*policy, salt.value, &tuple()), count)
            }
        }
    }
}

/// Returns the change that each byte makes, computed from the change that each bit makes.
fn tabulate(hash: fn(u32, &[u8]) -> u32, constant: u32) -> Box<Tables> {
    let mut tables = vec![[0u32; 256]; FiveTuple::LEN];
    for (position, table) in tables.iter_mut().enumerate() {
        for value in 1..=255u8 {
            let rest = value & (value - 1);
            let lowest = value ^ rest;
            table[usize::from(value)] = if rest == 0 {
                let mut bytes = [0; FiveTuple::LEN];
                bytes[position] = lowest;
                hash(0, &bytes) ^ constant
            } else {
                table[usize::from(rest)] ^ table[usize::from(lowest)]
            };
        }
    }
    let tables: Box<[[u32; 256]]> = tables.into_boxed_slice();
    tables.try_into().expect("one table for each byte of the tuple")
}
