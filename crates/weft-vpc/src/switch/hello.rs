//! The first message of each direction of a connection, which names the two vNICs it joins (BIFROST, 5.2).

use weft_wire::MacAddr;

use super::Vni;

/// Operations of the overlay's messages.
pub(super) mod opcode {
    /// A [`Hello`](super::Hello).
    pub(crate) const HELLO: u8 = 1;
    /// A tenant's frame with its virtio-net header.
    pub(crate) const FRAME: u8 = 2;
}

/// Returns the service number of a vNIC in a request for a connection, the FNV-1a hash of its address. With it a
/// host finds the thread that has the port before the [`Hello`] comes.
pub(super) fn service_of(address: MacAddr) -> u64 {
    weft_units::fnv1a_32(address.0).into()
}

/// The names of a pair of vNICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) vni: Vni,
    /// The vNIC of the hello's sender.
    pub(super) source: MacAddr,
    /// The vNIC of the hello's receiver.
    pub(super) destination: MacAddr,
}

impl Hello {
    pub(super) const LEN: u32 = 16;

    pub(super) fn emit(self) -> [u8; Self::LEN as usize] {
        let mut bytes = [0; Self::LEN as usize];
        bytes[..4].copy_from_slice(&self.vni.get().to_be_bytes());
        bytes[4..10].copy_from_slice(&self.source.0);
        bytes[10..].copy_from_slice(&self.destination.0);
        bytes
    }

    /// Parses a hello; `None` for other bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[v0, v1, v2, v3, s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5] =
            <&[u8; Self::LEN as usize]>::try_from(bytes).ok()?;
        let vni = Vni::new(u32::from_be_bytes([v0, v1, v2, v3]))?;
        let source = MacAddr([s0, s1, s2, s3, s4, s5]);
        let destination = MacAddr([d0, d1, d2, d3, d4, d5]);
        let single = !source.is_group() && !destination.is_group();
        single.then_some(Self { vni, source, destination })
    }
}
