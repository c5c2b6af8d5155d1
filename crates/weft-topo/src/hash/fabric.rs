//! One hash for a whole fabric, arranged for a simulator's inner loop.

use alloc::boxed::Box;
use alloc::vec;

use super::{FiveTuple, Function, HashAlgorithm, linux, modulo, rotate_right};

/// A hash function prepared for asking at every hop.
///
/// An affine hash of a tuple of fixed length is `H(seed, tuple) = C ^ Z(seed) ^ T0[byte 0] ^ … ^
/// T12[byte 12]`: `C` is the hash of thirteen zero bytes under seed 0, `Z` the change a seed makes
/// to it, and each table the change its byte makes. [`base`](Self::base) is everything but `Z`,
/// computed once a packet; a [`SwitchSalt`] is `Z` and the switch's rotation, computed once a
/// switch; [`select`](Self::select) is an XOR, a rotation and a modulus. For a CRC `Z(seed)` is the
/// seed pushed through thirteen zero bytes, which is not the seed itself: the result is the same
/// as starting the register with `init ^ seed`.
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

/// For each byte of the tuple and each value of it, what it changes in the hash.
type Tables = [[u32; 256]; FiveTuple::LEN];

/// What one switch adds to the fabric's hash. Made by [`FabricHash::salt`] for that hash only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchSalt {
    /// `Z(seed)`, or Linux's seed.
    value: u32,
    rotate: u32,
}

/// How one switch chooses where the hash is affine: [`FabricHash::choice`].
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    salt: SwitchSalt,
    width: u32,
}

impl Choice {
    /// Which of `count` equal-cost links a packet with this base takes.
    ///
    /// # Panics
    /// If `count` is zero.
    #[inline(always)] // Every hop of a simulation.
    pub fn of(&self, base: u32, count: usize) -> usize {
        modulo(rotate_right(base ^ self.salt.value, self.salt.rotate, self.width), count)
    }
}

impl FabricHash {
    /// Prepares `algorithm`: 13 KiB of tables for an affine one.
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

    /// The function.
    pub const fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// What a switch with this seed and rotation adds; both as in
    /// [`SwitchHash`](super::SwitchHash).
    pub fn salt(&self, seed: u32, rotate: u32) -> SwitchSalt {
        let value = match &self.kind {
            Kind::Affine { hash, constant, .. } => hash(seed, &[0; FiveTuple::LEN]) ^ constant,
            Kind::Linux(_) => seed,
        };
        SwitchSalt { value, rotate }
    }

    /// The part of the hash that all switches share.
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

    /// What a switch with this salt does to every packet's base; `None` where that is not enough, as the
    /// hash is not affine.
    #[inline]
    pub fn choice(&self, salt: SwitchSalt) -> Option<Choice> {
        match self.kind {
            Kind::Affine { width, .. } => Some(Choice { salt, width }),
            Kind::Linux(_) => None,
        }
    }

    /// The number from which the switch makes its choice: what
    /// [`SwitchHash::value`](super::SwitchHash::value) gives. Arguments as for
    /// [`select`](Self::select).
    #[inline]
    pub fn value(&self, base: u32, tuple: impl FnOnce() -> FiveTuple, salt: SwitchSalt) -> u32 {
        match &self.kind {
            Kind::Affine { width, .. } => rotate_right(base ^ salt.value, salt.rotate, *width),
            Kind::Linux(policy) => linux::multipath_hash(*policy, salt.value, &tuple()),
        }
    }

    /// Which of `count` equal-cost links the switch takes: what
    /// [`SwitchHash::select`](super::SwitchHash::select) gives. `base` must be the tuple's; the tuple
    /// itself is looked at only where the hash is not affine.
    ///
    /// # Panics
    /// If `count` is zero.
    #[inline(always)] // Every hop of a simulation.
    pub fn select(
        &self,
        base: u32,
        tuple: impl FnOnce() -> FiveTuple,
        salt: SwitchSalt,
        count: usize,
    ) -> usize {
        match &self.kind {
            Kind::Affine { width, .. } => Choice { salt, width: *width }.of(base, count),
            Kind::Linux(policy) => {
                linux::select(linux::multipath_hash(*policy, salt.value, &tuple()), count)
            }
        }
    }
}

/// The change each byte makes, from the change each bit makes.
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
    tables.try_into().expect("made with one table a byte")
}
