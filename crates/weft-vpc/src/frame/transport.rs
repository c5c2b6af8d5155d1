//! TCP, UDP and ICMP headers in a packet.

use core::fmt;

use super::fragment::Fragment;
use super::{FrameError, chunk, protocol};

/// The payload of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP segment.
    Tcp(Tcp),
    /// A UDP datagram, or its first fragment.
    Udp(Udp),
    /// An ICMP message; the packet's protocol selects the version of ICMP.
    Icmp(Icmp),
    /// A fragment whose transport header is in another one.
    LaterFragment,
    /// Anything else.
    Other,
}

/// A TCP header (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// The byte expected next; valid if the ACK flag is set.
    pub acknowledgement: u32,
    /// The segment's flags.
    pub flags: TcpFlags,
    /// Length of the header with its options, bytes; at most the packet's length.
    pub header_len: u8,
}

/// A UDP header (RFC 768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Length of header and payload, bytes.
    pub len: u16,
}

/// The first bytes of an ICMP message (RFC 792; RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// The message's type.
    pub kind: u8,
    /// The message's code, a subtype.
    pub code: u8,
    /// The identifier that relates an echo reply to its request; meaningless in other messages.
    pub identifier: u16,
}

/// The flags of a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Synchronises sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// The receiver passes the data to its application at once.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// Echoes a congestion mark (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Reports that the sender reduced its congestion window (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Returns `true` if one of `others` is set.
    pub const fn any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns these flags and `others`.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns these flags without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The letters that tcpdump prints, without its dot for ACK.
        for (flag, letter) in "FSRPAUEW".chars().enumerate() {
            if self.0 & (1 << flag) != 0 {
                write!(out, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// Parses the transport at `offset` of `bytes`. It has `len` bytes in the packet, of which `bytes` may hold only
/// the first.
#[inline]
pub(super) fn parse(
    bytes: &[u8],
    offset: usize,
    len: usize,
    protocol: u8,
    fragment: Option<Fragment>,
) -> Result<Transport, FrameError> {
    if let Some(fragment) = fragment.filter(Fragment::is_later) {
        let overwrites = protocol == protocol::TCP && usize::from(fragment.offset) < TCP_LEN;
        let tiny = FrameError::TinyFragment { offset: fragment.offset };
        return if overwrites { Err(tiny) } else { Ok(Transport::LaterFragment) };
    }
    let parsed = match protocol {
        protocol::TCP => parse_tcp(bytes, offset, len),
        protocol::UDP => parse_udp(bytes, offset, len, fragment.is_some()),
        protocol::ICMP | protocol::ICMPV6 => parse_icmp(bytes, offset),
        _ => Ok(Transport::Other),
    };
    match (parsed, fragment) {
        (Err(_), Some(_)) => Err(FrameError::TinyFragment { offset: 0 }),
        (parsed, _) => parsed,
    }
}

const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;

#[inline]
fn parse_tcp(bytes: &[u8], offset: usize, len: usize) -> Result<Transport, FrameError> {
    let &[s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, words, flags, ..] =
        chunk::<TCP_LEN>(bytes, offset)?;
    let header_len = 4 * (words >> 4);
    if !(TCP_LEN..=len).contains(&usize::from(header_len)) {
        return Err(FrameError::WrongLength {
            field: "TCP data offset",
            got: usize::from(header_len),
            min: TCP_LEN,
            max: len,
        });
    }
    let needed = offset + usize::from(header_len);
    if bytes.len() < needed {
        return Err(FrameError::Truncated { needed, got: bytes.len() });
    }
    Ok(Transport::Tcp(Tcp {
        source: u16::from_be_bytes([s0, s1]),
        destination: u16::from_be_bytes([d0, d1]),
        sequence: u32::from_be_bytes([q0, q1, q2, q3]),
        acknowledgement: u32::from_be_bytes([a0, a1, a2, a3]),
        flags: TcpFlags(flags),
        header_len,
    }))
}

#[inline]
fn parse_udp(
    bytes: &[u8],
    offset: usize,
    len: usize,
    fragmented: bool,
) -> Result<Transport, FrameError> {
    let &[s0, s1, d0, d1, l0, l1, ..] = chunk::<UDP_LEN>(bytes, offset)?;
    let udp_len = u16::from_be_bytes([l0, l1]);
    // The first fragment of a datagram is shorter than the datagram.
    let max = if fragmented { usize::from(u16::MAX) } else { len };
    if !(UDP_LEN..=max).contains(&usize::from(udp_len)) {
        let got = usize::from(udp_len);
        return Err(FrameError::WrongLength { field: "UDP length", got, min: UDP_LEN, max });
    }
    Ok(Transport::Udp(Udp {
        source: u16::from_be_bytes([s0, s1]),
        destination: u16::from_be_bytes([d0, d1]),
        len: udp_len,
    }))
}

#[inline]
fn parse_icmp(bytes: &[u8], offset: usize) -> Result<Transport, FrameError> {
    let &[kind, code, _, _, i0, i1, _, _] = chunk(bytes, offset)?;
    Ok(Transport::Icmp(Icmp { kind, code, identifier: u16::from_be_bytes([i0, i1]) }))
}
