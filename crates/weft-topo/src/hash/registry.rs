//! The table of hash functions. A new hash needs a function and a row.

use super::linux::{Fields, Policy};
use super::{Function, crc, toeplitz, xor};

/// Declares every hash once: name in files and on the command line, function, description.
macro_rules! hash_algorithms {
    ($($kind:ident, $name:literal, $function:expr, $about:literal;)+) => {
        weft_units::registry! {
            /// A hash function of switches and routers.
            #[non_exhaustive]
            pub enum HashAlgorithm: "hash" { $($kind => $name, $about;)+ }
        }

        impl HashAlgorithm {
            pub(super) const fn function(self) -> Function {
                match self { $(Self::$kind => $function),+ }
            }
        }
    };
}

hash_algorithms! {
    Crc16Ccitt, "crc16-ccitt", affine(16, |seed, bytes| crc::CRC16_CCITT.checksum(seed, bytes)),
        "CRC-16 of CCITT, initial value of ones (SAI CRC_CCITT, Dell crc16cc)";
    Crc16Bisync, "crc16-bisync", affine(16, |seed, bytes| crc::CRC16_BISYNC.checksum(seed, bytes)),
        "CRC-16 of BISYNC, also ARC (Dell crc16, the default of flow-based hashing)";
    Crc32, "crc32", affine(32, |seed, bytes| crc::CRC32.checksum(seed, bytes)),
        "CRC-32 of Ethernet (SAI CRC_32LO, Dell crc32LSB)";
    Crc32c, "crc32c", affine(32, |seed, bytes| crc::CRC32C.checksum(seed, bytes)),
        "CRC-32 of Castagnoli";
    Xor16, "xor16", affine(16, xor::xor16),
        "exclusive or of the tuple's 16-bit words (SAI XOR, Dell xor16)";
    Crc16Xor8, "crc16-xor8", affine(16, xor::crc16_xor8),
        "upper byte of CRC-16 BISYNC above the exclusive or of all bytes (Dell xor8)";
    Toeplitz, "toeplitz", affine(32, |seed, bytes| toeplitz::toeplitz(seed, &bytes[..bytes.len() - 1])),
        "Toeplitz hash of receive-side scaling with Microsoft's key, over addresses and ports";
    Linux, "linux", Function::Linux(Policy::Layer4),
        "Linux routers, fib_multipath_hash_policy=1 (SipHash of the five-tuple)";
    LinuxFields, "linux-l3l4-fields", Function::Linux(Policy::Fields(Fields::FIVE_TUPLE)),
        "Linux routers, fib_multipath_hash_policy=3 with fields 0x37";
}

const fn affine(width: u32, hash: fn(u32, &[u8]) -> u32) -> Function {
    Function::Affine { width, hash }
}

impl HashAlgorithm {
    /// Returns `true` if the function is affine over GF(2): then the change of the header alone determines the change
    /// of the choice among 2^k links.
    pub const fn is_affine(self) -> bool {
        matches!(self.function(), Function::Affine { .. })
    }

    /// Returns the policy of Linux routers with this function; `None` for functions of switch chips.
    pub const fn linux_policy(self) -> Option<Policy> {
        match self.function() {
            Function::Linux(policy) => Some(policy),
            Function::Affine { .. } => None,
        }
    }
}
