//! The hashes by which switches choose among equal-cost links.
//!
//! [`SwitchHash`] is the hash of one switch, computed directly from the bytes, for planning and tests.
//! [`FabricHash`] computes the same functions for a simulator, which calls it at every hop: with an
//! affine function a packet is hashed once and each switch only adds its constant.
//!
//! *Affine* (over GF(2)) means `H(x ^ y ^ z) = H(x) ^ H(y) ^ H(z)`: all CRCs, folds and Toeplitz.
//! In these functions a change of the header determines the change of the hash for every seed, so equal
//! functions at two tiers polarise unless the tiers take different bits. [`SwitchHash::rotate`] models the offset at
//! which switch ASICs take a bit field of the hash (Broadcom's RTAG7).

pub mod crc;
pub mod linux;
pub mod toeplitz;
pub mod xor;

mod fabric;
mod five_tuple6;
mod registry;

pub use fabric::{FabricHash, SwitchChoice, SwitchSalt};
pub use five_tuple6::FiveTuple6;
pub use registry::HashAlgorithm;

/// The fields of an IPv4 packet that a switch hashes: addresses, ports and protocol, as native integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// Source address; 10.0.0.1 is `0x0a00_0001`.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Source port: the path's entropy.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// IP protocol: 17 for UDP, 6 for TCP.
    pub protocol: u8,
}

impl FiveTuple {
    /// Length of [`Self::to_bytes`] in bytes.
    pub const LEN: usize = 13;

    /// Returns source, destination, source port, destination port and protocol, each in network order.
    /// All functions except Linux's hash the tuple in this order.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [s0, s1, s2, s3] = self.src.to_be_bytes();
        let [d0, d1, d2, d3] = self.dst.to_be_bytes();
        let ([p0, p1], [q0, q1]) = (self.src_port.to_be_bytes(), self.dst_port.to_be_bytes());
        [s0, s1, s2, s3, d0, d1, d2, d3, p0, p1, q0, q1, self.protocol]
    }
}

/// The implementation of a hash; one for each row of the registry.
#[derive(Clone, Copy, Debug)]
enum Function {
    /// A function of seed and tuple bytes, affine in both. The seed is XORed into the CRC register's
    /// initial value, into the start of a fold, or into Toeplitz' result.
    Affine { width: u32, hash: fn(u32, &[u8]) -> u32 },
    /// Linux's function of the router's seed and the tuple's fields.
    Linux(linux::Policy),
}

/// The hash of one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchHash {
    /// The function.
    pub algorithm: HashAlgorithm,
    /// The switch's seed; for Linux the sysctl `net.ipv4.fib_multipath_hash_seed`.
    pub seed: u32,
    /// Number of bits by which the hash is rotated right, within its width, before the modulus; bit
    /// `rotate` becomes bit 0. Linux has no such offset and ignores it.
    pub rotate: u32,
}

impl SwitchHash {
    /// Returns the number from which the index is computed: 16 or 32 bits for a switch chip, 31 for Linux.
    pub fn value(&self, tuple: &FiveTuple) -> u32 {
        match self.algorithm.function() {
            Function::Affine { width, hash } => {
                rotate_right(hash(self.seed, &tuple.to_bytes()), self.rotate, width)
            }
            Function::Linux(policy) => linux::multipath_hash(policy, self.seed, tuple),
        }
    }

    /// Returns the index of the link, of `count` equal-cost links, that the packet takes: `value % count`,
    /// or the member that Linux's thresholds select.
    ///
    /// # Panics
    /// Panics if `count` is zero.
    pub fn select(&self, tuple: &FiveTuple, count: usize) -> usize {
        match self.algorithm.function() {
            Function::Affine { .. } => modulo(self.value(tuple), count),
            Function::Linux(_) => linux::select(self.value(tuple), count),
        }
    }

    /// Returns the index of the link that the packet takes among links with weights; `None` if all weights are zero. In
    /// a switch chip a link of weight `w` has `w` consecutive entries of its group; Linux sets thresholds by weight.
    pub fn select_weighted(&self, tuple: &FiveTuple, weights: &[u32]) -> Option<usize> {
        let value = self.value(tuple);
        if let Function::Linux(_) = self.algorithm.function() {
            return linux::select_weighted(value, weights);
        }
        let entries: u64 = weights.iter().copied().map(u64::from).sum();
        let mut entry = u64::from(value).checked_rem(entries)?;
        weights.iter().position(|&weight| match entry.checked_sub(weight.into()) {
            Some(rest) => {
                entry = rest;
                false
            }
            None => true,
        })
    }

    /// Returns [`value`](Self::value) for an IPv6 packet.
    pub fn value6(&self, tuple: &FiveTuple6) -> u32 {
        match self.algorithm.function() {
            Function::Affine { width, hash } => {
                rotate_right(hash(self.seed, &tuple.to_bytes()), self.rotate, width)
            }
            Function::Linux(policy) => linux::multipath_hash6(policy, self.seed, tuple),
        }
    }

    /// Returns [`select`](Self::select) for an IPv6 packet.
    ///
    /// # Panics
    /// Panics if `count` is zero.
    pub fn select6(&self, tuple: &FiveTuple6, count: usize) -> usize {
        match self.algorithm.function() {
            Function::Affine { .. } => modulo(self.value6(tuple), count),
            Function::Linux(_) => linux::select(self.value6(tuple), count),
        }
    }
}

/// Rotates the low `width` bits (16 or 32) of `value` right by `bits`.
#[inline]
const fn rotate_right(value: u32, bits: u32, width: u32) -> u32 {
    if width == 32 {
        return value.rotate_right(bits);
    }
    // A rotation of 32 bits whose halves are equal is a rotation of each half within 16 bits.
    (value | value << 16).rotate_right(bits) & 0xffff
}

/// Returns `value % count`. A division costs tens of cycles, and most groups are powers of two.
#[inline]
fn modulo(value: u32, count: usize) -> usize {
    assert!(count > 0, "a choice needs at least one link");
    let value = value as usize;
    if count.is_power_of_two() { value & (count - 1) } else { value % count }
}

#[cfg(test)]
mod tests;
