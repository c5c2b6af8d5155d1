//! The routers' hash functions, arranged so that their common part is computed once per packet.

use alloc::vec::Vec;

use weft_topo::hash::linux::{Fields, Keyed, Policy, multipath_hash, multipath_hash6};
use weft_topo::hash::{FabricHash, FiveTuple, FiveTuple6, SwitchHash, SwitchSalt};

use crate::installed::RouterHash;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// Every hash function of switch chips that some router has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions(Vec<FabricHash>);

/// The hash function of one router with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hash {
    Linux { policy: Policy, seed: u32, udp: Keyed, tcp: Keyed },
    Switch { function: usize, salt: SwitchSalt, hash: SwitchHash },
}

/// The part of a packet's hash that is equal for all switches with one function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    function: usize,
    value: u32,
}

impl Base {
    pub(super) const fn none() -> Self {
        Self { function: usize::MAX, value: 0 }
    }
}

impl Functions {
    /// Converts a router's hash and adds its function to those known.
    ///
    /// # Errors
    /// Returns the reason why the hash cannot be computed.
    pub(super) fn add(&mut self, hash: &RouterHash) -> Result<Hash, &'static str> {
        match *hash {
            RouterHash::Linux { policy, fields, seed } => {
                let policy = match policy {
                    0 => Policy::Layer3,
                    1 => Policy::Layer4,
                    2 => Policy::InnerLayer3,
                    3 => Policy::Fields(Fields(fields)),
                    _ => {
                        return Err("hash policy is not 0 to 3; set fib_multipath_hash_policy=3");
                    }
                };
                let [udp, tcp] = [UDP, TCP].map(|protocol| Keyed::new(policy, seed, protocol));
                Ok(Hash::Linux { policy, seed, udp, tcp })
            }
            RouterHash::Switch { algorithm, seed, rotate } => {
                let known = self.0.iter().position(|known| known.algorithm() == algorithm);
                let function = known.unwrap_or_else(|| {
                    self.0.push(FabricHash::new(algorithm));
                    self.0.len() - 1
                });
                let salt = self.0[function].salt(seed, rotate);
                let hash = SwitchHash { algorithm, seed, rotate };
                Ok(Hash::Switch { function, salt, hash })
            }
        }
    }

    /// Returns the hash of an IPv4 packet at a router.
    #[inline]
    pub(super) fn value(&self, hash: &Hash, tuple: &FiveTuple, base: &mut Base) -> u32 {
        match *hash {
            Hash::Linux { policy, seed, ref udp, ref tcp } => match tuple.protocol {
                UDP => udp.hash(tuple),
                TCP => tcp.hash(tuple),
                _ => multipath_hash(policy, seed, tuple),
            },
            Hash::Switch { function, salt, .. } => {
                let known = &self.0[function];
                if base.function != function {
                    *base = Base { function, value: known.base(tuple) };
                }
                known.value(base.value, || *tuple, salt)
            }
        }
    }
}

impl Hash {
    /// Returns the hash of an IPv6 packet at a router.
    pub(super) fn value6(&self, tuple: &FiveTuple6) -> u32 {
        match *self {
            Self::Linux { policy, seed, .. } => multipath_hash6(policy, seed, tuple),
            Self::Switch { ref hash, .. } => hash.value6(tuple),
        }
    }

    /// Returns `true` if groups are divided by thresholds, as in Linux, and `false` if by a modulus.
    pub(super) const fn by_threshold(&self) -> bool {
        match *self {
            Self::Linux { .. } => true,
            Self::Switch { hash, .. } => !hash.algorithm.is_affine(),
        }
    }
}
