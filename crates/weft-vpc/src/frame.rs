//! A tenant's frame as the switch sees it: who sends what to whom, and where each header lies.
//!
//! Nothing here believes a length: each is held against the bytes that are there and against the
//! frame's own length, so what is parsed lies within the frame. Checksums are not looked at, they
//! are the receiver's matter. A frame that is not
//! understood is not an error, [`Network::Other`]; one that contradicts itself is.

use core::net::Ipv4Addr;

use thiserror::Error;
use weft_wire::{EtherType, EthernetHeader, MacAddr, ParseError, VirtioNetHeader};

pub(crate) mod ecn;
mod flow;
mod ip;
mod transport;

pub use ip::{Fragment, Ip, protocol};
pub use transport::{Icmp, Tcp, TcpFlags, Transport, Udp};

/// A frame's headers. Offsets count from the first byte of the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whom it is for, perhaps a group.
    pub destination: MacAddr,
    /// Who sent it, never a group.
    pub source: MacAddr,
    /// The outermost VLAN, where there is a tag (IEEE 802.1Q).
    pub vlan: Option<u16>,
    /// What follows the Ethernet header and up to two tags; below 1,536 a length (IEEE 802.3).
    pub ethertype: EtherType,
    /// Where that begins.
    pub network_offset: u16,
    /// Length of the whole frame, bytes.
    pub len: u32,
    /// What follows.
    pub network: Network,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Address resolution for IPv4 over Ethernet.
    Arp(Arp),
    /// An IPv4 or IPv6 packet, or a part of one.
    Ip(Ip),
    /// Anything else.
    Other,
}

/// An ARP packet (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// 1 asks, 2 answers.
    pub operation: u16,
    /// The sender's address on Ethernet, as the packet has it.
    pub sender_mac: MacAddr,
    /// The sender's address.
    pub sender: Ipv4Addr,
    /// The target's address on Ethernet; nothing in a request.
    pub target_mac: MacAddr,
    /// Who is asked for, or answered.
    pub target: Ipv4Addr,
}

/// Why a frame is refused. The switch drops it and counts it by [`reason`](Self::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header of virtio or of Ethernet is none.
    #[error(transparent)]
    Header(#[from] ParseError),
    /// A header ends after the packet, or after the bytes that were given.
    #[error("truncated: headers take {needed} bytes of the frame, got {got}")]
    Truncated {
        /// Bytes needed, from the Ethernet header.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// More bytes were given than the frame is said to have.
    #[error("{got} bytes of a frame of {len}")]
    LongerThanFrame {
        /// Bytes given.
        got: usize,
        /// The frame's length.
        len: usize,
    },
    /// A group's address as the source (IEEE 802.3, clause 3.2.3).
    #[error("the source {source_mac} is the address of a group")]
    GroupSource {
        /// The address.
        source_mac: MacAddr,
    },
    /// An IP header of another version than the EtherType announces.
    #[error("IP version {got}, expected {expected}")]
    WrongIpVersion {
        /// What the EtherType says.
        expected: u8,
        /// What the header says.
        got: u8,
    },
    /// A length that does not cover its own header, or reaches past the frame or packet.
    #[error("{field} says {got} bytes, expected {least} to {most}")]
    WrongLength {
        /// Which one.
        field: &'static str,
        /// What it says, bytes.
        got: usize,
        /// What its header takes.
        least: usize,
        /// What there is.
        most: usize,
    },
    /// More extension headers than [`Ip::MAX_EXTENSIONS`].
    #[error("more than {} IPv6 extension headers", Ip::MAX_EXTENSIONS)]
    TooManyExtensions,
    /// A routing header of type 0 with stops to come (RFC 5095).
    #[error("IPv6 routing header of type 0 (RFC 5095 forbids it)")]
    SourceRoute,
    /// A fragment that cuts a transport header in two, or overwrites one (RFC 3128; RFC 7112).
    #[error("fragment at byte {offset} that cuts or overwrites the transport's header")]
    TinyFragment {
        /// Where it begins in its packet, bytes.
        offset: u16,
    },
}

impl Frame {
    /// As many bytes as [`parse`](Self::parse) should be given of a longer frame: an IPv6 packet with
    /// tags and some extension headers fits. What does not fit is refused as `Truncated`.
    pub const LOOK_AHEAD: usize = 256;

    /// Parses a frame of `len` bytes from its first ones, all or at least
    /// [`LOOK_AHEAD`](Self::LOOK_AHEAD) of them.
    ///
    /// # Errors
    /// Every [`FrameError`]: the frame contradicts itself and is to be dropped.
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

    /// The same for a frame behind its virtio-net header; `len` counts both.
    ///
    /// # Errors
    /// Like [`parse`](Self::parse), and `Header` for a virtio-net header that is none.
    pub fn parse_virtio(first: &[u8], len: usize) -> Result<(VirtioNetHeader, Self), FrameError> {
        let (virtio, ethernet) = VirtioNetHeader::parse(first)?;
        let len = len
            .checked_sub(VirtioNetHeader::LEN)
            .ok_or(FrameError::LongerThanFrame { got: first.len(), len })?;
        Ok((virtio, Self::parse(ethernet, len)?))
    }

    /// The IP packet, if it is one.
    pub const fn ip(&self) -> Option<&Ip> {
        match &self.network {
            Network::Ip(ip) => Some(ip),
            _ => None,
        }
    }
}

impl FrameError {
    /// A short name for counters: one word a variant, whatever its numbers.
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

/// The tag of a provider around the customer's (IEEE 802.1ad).
const SERVICE_TAG: EtherType = EtherType(0x88a8);
const MAX_TAGS: usize = 2;
const TAG_LEN: usize = 4;
/// The low bits of a tag; those above are priority and eligibility to be dropped.
const VLAN_ID: u16 = 0xfff;

/// The `N` bytes at `offset`.
#[inline]
fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Result<&[u8; N], FrameError> {
    let found = bytes.get(offset..).and_then(<[u8]>::first_chunk);
    found.ok_or(FrameError::Truncated { needed: offset + N, got: bytes.len() })
}

/// ARP for IPv4 over Ethernet (hardware type 1, 6 bytes; protocol type 0x0800, 4 bytes). Others are
/// no business of the switch.
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
