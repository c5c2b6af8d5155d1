//! The handle that a listener gives to its peer: NCCL carries it as 128 bytes between processes.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0–7 | [`MAGIC`] |
//! | 8–23 | address, as IPv6 |
//! | 24–25 | port, little-endian |
//! | 32–47 | nonce of the listener: a connection without it is refused |
//! | 48–55 | number of the connection attempt; zero before the first call of `connect` |
//!
//! NCCL calls `connect` with the same memory until the connection is open, so the attempt's number is kept there.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use weft_nccl_abi::NCCL_NET_HANDLE_MAXSIZE;

use crate::failure::Failure;

/// The first bytes: the handles of other plugins differ.
const MAGIC: [u8; 8] = *b"weftnet1";

/// A random number that proves that a peer has the handle.
pub(crate) type Nonce = [u8; 16];

/// The content of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) address: SocketAddr,
    pub(crate) nonce: Nonce,
    /// The attempt that this memory belongs to; zero if there is none yet.
    pub(crate) attempt: u64,
}

impl Handle {
    pub(crate) fn to_bytes(self) -> [u8; NCCL_NET_HANDLE_MAXSIZE] {
        let mut bytes = [0; NCCL_NET_HANDLE_MAXSIZE];
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&ip.octets());
        bytes[24..26].copy_from_slice(&self.address.port().to_le_bytes());
        bytes[32..48].copy_from_slice(&self.nonce);
        bytes[48..56].copy_from_slice(&self.attempt.to_le_bytes());
        bytes
    }

    /// Reads a handle.
    ///
    /// # Errors
    /// The bytes are not a handle of this plugin.
    pub(crate) fn from_bytes(bytes: &[u8; NCCL_NET_HANDLE_MAXSIZE]) -> Result<Self, Failure> {
        let field = |from: usize| <[u8; 16]>::try_from(&bytes[from..from + 16]).expect("16 bytes");
        if bytes[..8] != MAGIC {
            return Err(Failure::argument(
                "the handle is not one of this plugin: do all ranks load the same libnccl-net-weft.so (NCCL_NET_PLUGIN)?",
            ));
        }
        let ip = Ipv6Addr::from(field(8)).to_canonical();
        let port = u16::from_le_bytes([bytes[24], bytes[25]]);
        let attempt = u64::from_le_bytes(bytes[48..56].try_into().expect("8 bytes"));
        Ok(Self { address: (ip, port).into(), nonce: field(32), attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_survives_its_bytes_and_others_are_refused() {
        for address in ["10.0.0.7:4791", "[2001:db8::1]:65535"] {
            let handle = Handle { address: address.parse().unwrap(), nonce: [7; 16], attempt: 9 };
            let mut bytes = handle.to_bytes();
            assert_eq!(Handle::from_bytes(&bytes).unwrap(), handle);
            bytes[0] = 0;
            assert!(
                Handle::from_bytes(&bytes).unwrap_err().to_string().contains("NCCL_NET_PLUGIN")
            );
        }
    }
}
