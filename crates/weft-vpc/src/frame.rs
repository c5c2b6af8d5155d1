//! A tenant's frame as the switch parses it: its addresses and the offset of each header.
//!
//! The parser trusts no length: it checks each against the given bytes and the frame's own length, so all parsed
//! headers lie within the frame. It does not check checksums; the receiver does. A protocol that it does not parse
//! is no error but [`Network::Other`]; a frame that contradicts itself is an error.

use core::net::Ipv4Addr;

use thiserror::Error;
use weft_wire::{EtherType, EthernetHeader, MacAddr, ParseError, VirtioNetHeader};

pub(crate) mod ecn;
mod flow;
mod fragment;
mod ip;
pub mod protocol;
mod transport;

pub use fragment::Fragment;
pub use ip::Ip;
pub use transport::{Icmp, Tcp, TcpFlags, Transport, Udp};

/// The headers of a frame. Offsets count from the first byte of the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The destination; may be a group address.
    pub destination: MacAddr,
    /// The sender, never a group address.
    pub source: MacAddr,
    /// The ID of the outermost VLAN if there is a tag (IEEE 802.1Q).
    pub vlan: Option<u16>,
    /// The type of the payload after the Ethernet header and up to two tags; below 1,536 it is a length (IEEE
    /// 802.3).
    pub ethertype: EtherType,
    /// The offset of that payload.
    pub network_offset: u16,
    /// Length of the whole frame, bytes.
    pub len: u32,
    /// The parsed payload.
    pub network: Network,
}

/// The payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Address resolution for IPv4 over Ethernet.
    Arp(Arp),
    /// An IPv4 or IPv6 packet, or a fragment of one.
    Ip(Ip),
    /// Anything else.
    Other,
}

/// An ARP packet (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// The operation: 1 is a request, 2 a reply.
    pub operation: u16,
    /// The sender's Ethernet address as the packet states it.
    pub sender_mac: MacAddr,
    /// The sender's address.
    pub sender: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: MacAddr,
    /// The address that is requested, or replied to.
    pub target: Ipv4Addr,
}

/// The reason that a frame is refused. The switch drops it and counts it by [`reason`](Self::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The virtio-net or Ethernet header is invalid.
    #[error(transparent)]
    Header(#[from] ParseError),
    /// A header ends after the packet, or after the given bytes.
    #[error("truncated: headers take {needed} bytes of the frame, got {got}")]
    Truncated {
        /// Bytes needed, from the Ethernet header.
        needed: usize,
        /// Bytes available.
        got: usize,
    },
    /// More bytes were given than the frame has.
    #[error("{got} bytes of a frame of {len}")]
    LongerThanFrame {
        /// Bytes given.
        got: usize,
        /// The frame's length.
        len: usize,
    },
    /// A group address as the source (IEEE 802.3, clause 3.2.3).
    #[error("the source {source_mac} is the address of a group")]
    GroupSource {
        /// The address.
        source_mac: MacAddr,
    },
    /// An IP header of another version than the EtherType announces.
    #[error("IP version {got}, expected {expected}")]
    WrongIpVersion {
        /// The version that the EtherType announces.
        expected: u8,
        /// The version in the header.
        got: u8,
    },
    /// A length that does not cover its own header, or reaches past the frame or packet.
    #[error("{field} is {got} bytes, expected {min} to {max}")]
    WrongLength {
        /// The field's name.
        field: &'static str,
        /// The field's value, bytes.
        got: usize,
        /// The smallest valid value, bytes.
        min: usize,
        /// The largest valid value, bytes.
        max: usize,
    },
    /// More extension headers than [`Ip::MAX_EXTENSIONS`].
    #[error("more than {} IPv6 extension headers", Ip::MAX_EXTENSIONS)]
    TooManyExtensions,
    /// A routing header of type 0 with segments left (RFC 5095).
    #[error("IPv6 routing header of type 0 (RFC 5095 forbids it)")]
    SourceRoute,
    /// A fragment that splits a transport header, or overwrites one (RFC 3128; RFC 7112).
    #[error("fragment at byte {offset} that cuts or overwrites the transport's header")]
    TinyFragment {
        /// The fragment's offset in its packet, bytes.
        offset: u16,
    },
}

impl Frame {
    /// Number of bytes that [`parse`](Self::parse) needs of a longer frame: an IPv6 packet with
    /// tags and some extension headers fits. Headers that do not fit are refused as `Truncated`.
    pub const MIN_PARSE_BYTES: usize = 256;

    /// Parses a frame of `len` bytes. `first` holds its first bytes: all, or at least
    /// [`MIN_PARSE_BYTES`](Self::MIN_PARSE_BYTES) of them.
    ///
    /// # Errors
    /// Every [`FrameError`]: the frame contradicts itself, and the caller drops it.
    #[inline]
    pub fn parse(first: &[u8], len: usize) -> Result<Self, FrameError> {
        if first.len() > len {
            return Err(FrameError::LongerThanFrame { got: first.len(), len });
        }
        let (ethernet, _) = EthernetHeader::parse(first)?;
        let EthernetHeader { destination, source, ethertype } = ethernet;
        if source.is_group() {
            return Err(FrameError::GroupSource { source_mac: source });
        }
        let mut frame = Self {
            destination,
            source,
            vlan: None,
            ethertype,
            network_offset: 0,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            network: Network::Other,
        };
        let mut offset = EthernetHeader::LEN;
        for _ in 0..MAX_TAGS {
            if !matches!(frame.ethertype, EtherType::VLAN | SERVICE_TAG) {
                break;
            }
            let &[t0, t1, e0, e1] = chunk(first, offset)?;
            frame.vlan = frame.vlan.or_else(|| Some(u16::from_be_bytes([t0, t1]) & VLAN_ID));
            frame.ethertype = EtherType(u16::from_be_bytes([e0, e1]));
            offset += TAG_LEN;
        }
        frame.network_offset = u16::try_from(offset).expect("a header and two tags");
        frame.network = match frame.ethertype {
            EtherType::IPV4 => Network::Ip(ip::parse_v4(first, offset, len)?),
            EtherType::IPV6 => Network::Ip(ip::parse_v6(first, offset, len)?),
            EtherType::ARP => parse_arp(first, offset)?,
            _ => Network::Other,
        };
        Ok(frame)
    }

    /// Parses a frame after its virtio-net header; `len` counts both, bytes.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse), and `Header` for an invalid virtio-net header.
    pub fn parse_virtio(first: &[u8], len: usize) -> Result<(VirtioNetHeader, Self), FrameError> {
        let (virtio, ethernet) = VirtioNetHeader::parse(first)?;
        let len = len
            .checked_sub(VirtioNetHeader::LEN)
            .ok_or(FrameError::LongerThanFrame { got: first.len(), len })?;
        Ok((virtio, Self::parse(ethernet, len)?))
    }

    /// Returns the IP packet, if the frame carries one.
    pub const fn ip(&self) -> Option<&Ip> {
        match &self.network {
            Network::Ip(ip) => Some(ip),
            _ => None,
        }
    }
}

impl FrameError {
    /// Returns a short name for counters: one word for each variant, independent of its fields.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Header(error) => error.reason(),
            Self::Truncated { .. } => "truncated",
            Self::LongerThanFrame { .. } => "longer_than_frame",
            Self::GroupSource { .. } => "group_source",
            Self::WrongIpVersion { .. } => "wrong_ip_version",
            Self::WrongLength { .. } => "wrong_length",
            Self::TooManyExtensions => "too_many_extensions",
            Self::SourceRoute => "source_route",
            Self::TinyFragment { .. } => "tiny_fragment",
        }
    }
}

/// The EtherType of a service provider's tag, which precedes the customer's (IEEE 802.1ad).
const SERVICE_TAG: EtherType = EtherType(0x88a8);
const MAX_TAGS: usize = 2;
const TAG_LEN: usize = 4;
/// The mask of the VLAN ID in a tag; the higher bits are priority and drop eligibility.
const VLAN_ID: u16 = 0xfff;

/// Returns the `N` bytes at `offset`.
#[inline]
fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Result<&[u8; N], FrameError> {
    let found = bytes.get(offset..).and_then(<[u8]>::first_chunk);
    found.ok_or(FrameError::Truncated { needed: offset + N, got: bytes.len() })
}

/// Parses ARP for IPv4 over Ethernet (hardware type 1, 6 bytes; protocol type 0x0800, 4 bytes). Other kinds of ARP
/// are [`Network::Other`].
fn parse_arp(first: &[u8], offset: usize) -> Result<Network, FrameError> {
    const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
    let &[
        kind @ ..,
        o0,
        o1,
        s0,
        s1,
        s2,
        s3,
        s4,
        s5,
        a0,
        a1,
        a2,
        a3,
        t0,
        t1,
        t2,
        t3,
        t4,
        t5,
        b0,
        b1,
        b2,
        b3,
    ] = chunk::<28>(first, offset)?;
    if kind != ETHERNET_AND_IPV4 {
        return Ok(Network::Other);
    }
    Ok(Network::Arp(Arp {
        operation: u16::from_be_bytes([o0, o1]),
        sender_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
        sender: Ipv4Addr::new(a0, a1, a2, a3),
        target_mac: MacAddr([t0, t1, t2, t3, t4, t5]),
        target: Ipv4Addr::new(b0, b1, b2, b3),
    }))
}

#[cfg(test)]
mod tests;
