//! The header before each frame of a virtio network device (`virtio_net_hdr_v1`, virtio 1.2, section
//! 5.1.6; `linux/virtio_net.h`): the offloads that the sender requests from the device. TAP devices use
//! the same header (`TUNSETVNETHDRSZ` 12, `TUNSETVNETLE`). Its integers are little-endian, unlike those
//! of all other headers in this crate.
//!
//! The header is untrusted and not checked against the frame.

use crate::ParseError;
use crate::layout::{Field, Header};

mod field {
    use super::Field;

    pub(super) const FLAGS: Field =
        Field::new("flags", 0, 8, "1: a checksum must be completed; 2: checksums were verified");
    pub(super) const GSO_TYPE: Field = Field::new(
        "gso_type",
        8,
        8,
        "0 none, 1 TCP over IPv4, 3 UDP fragments, 4 TCP over IPv6, 5 UDP; bit 7: CWR is set (ECN)",
    );
    pub(super) const HDR_LEN: Field = Field::new(
        "hdr_len",
        16,
        16,
        "length of the headers that each segment repeats, bytes; a hint",
    );
    pub(super) const GSO_SIZE: Field =
        Field::new("gso_size", 32, 16, "payload of each segment except the last, bytes");
    pub(super) const CSUM_START: Field = Field::new(
        "csum_start",
        48,
        16,
        "offset of the first byte of the frame that the checksum covers",
    );
    pub(super) const CSUM_OFFSET: Field =
        Field::new("csum_offset", 64, 16, "offset of the checksum from csum_start");
    pub(super) const NUM_BUFFERS: Field = Field::new(
        "num_buffers",
        80,
        16,
        "number of buffers that the frame uses in the guest's queue",
    );
}

pub(crate) const SPEC: Header = Header {
    name: "virtio-net",
    source: "virtio 1.2, section 5.1.6",
    about: "Precedes a tenant's frame and requests offloads from the device. Little-endian.",
    fields: &[
        field::FLAGS,
        field::GSO_TYPE,
        field::HDR_LEN,
        field::GSO_SIZE,
        field::CSUM_START,
        field::CSUM_OFFSET,
        field::NUM_BUFFERS,
    ],
};

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const ECN: u8 = 0x80;

/// The header that a guest or a TAP device puts before a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VirtioNetHeader {
    /// `true` if the checksum at `csum_start + csum_offset` holds a pseudo header's sum and must be
    /// completed (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub needs_csum: bool,
    /// `true` if checksums were verified, so that the receiver need not (`VIRTIO_NET_HDR_F_DATA_VALID`).
    pub data_valid: bool,
    /// Type of the segments if the frame is a super-frame.
    pub gso_type: GsoType,
    /// `true` if the TCP segment has the CWR flag, which belongs to the first segment only
    /// (`VIRTIO_NET_HDR_GSO_ECN`).
    pub ecn: bool,
    /// Length of the headers that each segment repeats in bytes; a hint.
    pub hdr_len: u16,
    /// Payload of each segment except the last in bytes.
    pub gso_size: u16,
    /// Offset of the first byte of the frame that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum from `csum_start` in bytes.
    pub csum_offset: u16,
    /// Number of buffers that the frame uses in the guest's queue.
    pub num_buffers: u16,
}

/// The type of the segments of a super-frame (virtio 1.2, section 5.1.6, `gso_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum GsoType {
    /// The frame is not a super-frame.
    #[default]
    None,
    /// TCP segments over IPv4.
    TcpV4,
    /// Fragments of one UDP datagram (UFO).
    UdpFragments,
    /// TCP segments over IPv6.
    TcpV6,
    /// UDP datagrams (USO).
    Udp,
}

impl GsoType {
    const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TcpV4 => 1,
            Self::UdpFragments => 3,
            Self::TcpV6 => 4,
            Self::Udp => 5,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::TcpV4),
            3 => Some(Self::UdpFragments),
            4 => Some(Self::TcpV6),
            5 => Some(Self::Udp),
            _ => None,
        }
    }
}

impl VirtioNetHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = SPEC.bits() / 8;

    /// Splits `bytes` into header and frame. Unknown flags are ignored (section 5.1.6.2.1).
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes, or `UnknownGsoType`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some((&[flags, gso, h0, h1, g0, g1, s0, s1, o0, o1, n0, n1], frame)) =
            bytes.split_first_chunk::<{ Self::LEN }>()
        else {
            return Err(ParseError::Truncated { needed: Self::LEN, got: bytes.len() });
        };
        let Some(gso_type) = GsoType::from_number(gso & !ECN) else {
            return Err(ParseError::UnknownGsoType { got: gso });
        };
        let header = Self {
            needs_csum: flags & NEEDS_CSUM != 0,
            data_valid: flags & DATA_VALID != 0,
            gso_type,
            ecn: gso & ECN != 0,
            hdr_len: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([g0, g1]),
            csum_start: u16::from_le_bytes([s0, s1]),
            csum_offset: u16::from_le_bytes([o0, o1]),
            num_buffers: u16::from_le_bytes([n0, n1]),
        };
        Ok((header, frame))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        let flag = |set, bit| if set { bit } else { 0 };
        out[0] = flag(self.needs_csum, NEEDS_CSUM) | flag(self.data_valid, DATA_VALID);
        out[1] = self.gso_type.number() | flag(self.ecn, ECN);
        for (field, value) in [
            (field::HDR_LEN, self.hdr_len),
            (field::GSO_SIZE, self.gso_size),
            (field::CSUM_START, self.csum_start),
            (field::CSUM_OFFSET, self.csum_offset),
            (field::NUM_BUFFERS, self.num_buffers),
        ] {
            out[field.bytes()].copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn every_first_row_comes_back_as_it_went_or_is_refused() {
        let mut rng = Seed(1).child("virtio-net", 0).rng();
        for first in 0..=u16::MAX {
            let mut bytes = [0; VirtioNetHeader::LEN + 2];
            bytes.fill_with(|| rng.next_u64().to_le_bytes()[7]);
            let [flags, gso] = first.to_be_bytes();
            (bytes[0], bytes[1]) = (flags, gso);
            let known = matches!(gso & 0x7f, 0 | 1 | 3 | 4 | 5);
            let Ok((header, frame)) = VirtioNetHeader::parse(&bytes) else {
                assert!(!known, "{gso:#04x}");
                continue;
            };
            assert!(known, "{gso:#04x}");
            let mut out = bytes;
            header.emit(&mut out);
            assert_eq!((out[0], &out[1..], frame), (flags & 3, &bytes[1..], &bytes[12..]));
        }
    }

    #[test]
    fn eleven_bytes_are_no_header() {
        let truncated = ParseError::Truncated { needed: 12, got: 11 };
        assert_eq!(VirtioNetHeader::parse(&[0; 11]), Err(truncated));
    }
}
