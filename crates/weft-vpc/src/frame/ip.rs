//! IPv4 and IPv6 packets in a frame, up to their transport header.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fragment::Fragment;
use super::transport::{self, Transport};
use super::{FrameError, chunk};

/// An IPv4 or IPv6 packet, or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The protocol after the header with its options or extension headers (see [`protocol`](super::protocol)).
    pub protocol: u8,
    /// The number of routers that the packet may still pass.
    pub hop_limit: u8,
    /// The fragment's place in its packet; `None` for a whole packet.
    pub fragment: Option<Fragment>,
    /// The offset of the transport header from the frame's first byte.
    pub transport_offset: u16,
    /// Length of the transport header and payload, bytes: never past the frame, without Ethernet's padding.
    pub transport_len: u16,
    /// The parsed transport header.
    pub transport: Transport,
}

impl Ip {
    /// Maximum number of extension headers of a packet. Hosts send three at most; longer chains only hide the payload
    /// or keep parsers busy.
    pub const MAX_EXTENSIONS: usize = 8;
}

/// Returns the frame's given bytes up to the end of a packet. `span` is the packet's offset, the packet's length and
/// the frame's length, bytes; `least` is the smallest valid length of the packet.
///
/// # Errors
/// The packet is shorter than `least` or reaches past the frame; `field` names the length.
#[inline]
fn packet<'a>(
    first: &'a [u8],
    field: &'static str,
    span: (usize, usize, usize),
    min: usize,
) -> Result<&'a [u8], FrameError> {
    let (offset, packet_len, frame_len) = span;
    let max = frame_len.saturating_sub(offset);
    if !(min..=max).contains(&packet_len) {
        return Err(FrameError::WrongLength { field, got: packet_len, min, max });
    }
    Ok(&first[..first.len().min(offset + packet_len)])
}

#[inline]
pub(super) fn parse_v4(first: &[u8], offset: usize, frame_len: usize) -> Result<Ip, FrameError> {
    let &[
        version_ihl,
        _,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        hop_limit,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = chunk::<20>(first, offset)?;
    if version_ihl >> 4 != 4 {
        return Err(FrameError::WrongIpVersion { expected: 4, got: version_ihl >> 4 });
    }
    let header_len = 4 * usize::from(version_ihl & 0xf);
    let total_len = usize::from(u16::from_be_bytes([l0, l1]));
    let span = (offset, total_len, frame_len);
    let bytes = packet(first, "IPv4 total length", span, header_len.max(20))?;
    if header_len < 20 {
        let wrong = FrameError::WrongLength {
            field: "IPv4 header length",
            got: header_len,
            min: 20,
            max: total_len,
        };
        return Err(wrong);
    }
    let flags_offset = u16::from_be_bytes([f0, f1]);
    let fragment = Fragment {
        identification: u32::from(u16::from_be_bytes([i0, i1])),
        offset: (flags_offset & 0x1fff) << 3,
        more: flags_offset & 0x2000 != 0,
    };
    let range = TransportRange { offset: offset + header_len, end: offset + total_len };
    let ends = (Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(d0, d1, d2, d3).into());
    finish(bytes, ends, hop_limit, protocol, fragment.unless_whole(), range)
}

#[inline]
pub(super) fn parse_v6(first: &[u8], offset: usize, frame_len: usize) -> Result<Ip, FrameError> {
    const LEN: usize = 40;
    let header = chunk::<LEN>(first, offset)?;
    let &[version, _, _, _, l0, l1, next, hop_limit, ref addresses @ ..] = header;
    if version >> 4 != 6 {
        return Err(FrameError::WrongIpVersion { expected: 6, got: version >> 4 });
    }
    let payload_len = usize::from(u16::from_be_bytes([l0, l1]));
    let total_len = LEN + payload_len;
    let span = (offset, total_len, frame_len);
    let bytes = packet(first, "IPv6 payload length", span, LEN)?;
    let (source, destination) = addresses.split_at(16);
    let address = |bytes: &[u8]| -> IpAddr {
        Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("half of 32 bytes")).into()
    };
    let ends = (address(source), address(destination));
    let chain = extensions(bytes, offset + LEN, next)?;
    let range = TransportRange { offset: chain.end, end: offset + total_len };
    finish(bytes, ends, hop_limit, chain.protocol, chain.fragment, range)
}

/// The end of a chain of extension headers.
struct Chain {
    protocol: u8,
    /// The offset after the last extension header, from the frame's first byte.
    end: usize,
    fragment: Option<Fragment>,
}

/// Walks the extension headers (RFC 8200, section 4; RFC 4302; IANA's list) up to a transport
/// header or the bytes of a later fragment.
fn extensions(bytes: &[u8], start: usize, next: u8) -> Result<Chain, FrameError> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    const MOBILITY: u8 = 135;
    const HOST_IDENTITY: u8 = 139;
    const SHIM6: u8 = 140;

    let mut chain = Chain { protocol: next, end: start, fragment: None };
    for _ in 0..=Ip::MAX_EXTENSIONS {
        let len = match chain.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6 => {
                let &[_, words, kind, segments_left] = chunk(bytes, chain.end)?;
                if chain.protocol == ROUTING && kind == 0 && segments_left > 0 {
                    return Err(FrameError::SourceRoute);
                }
                8 * (usize::from(words) + 1)
            }
            AUTHENTICATION => {
                let &[_, words] = chunk(bytes, chain.end)?;
                4 * (usize::from(words) + 2)
            }
            FRAGMENT => {
                let &[_, _, f0, f1, i0, i1, i2, i3] = chunk(bytes, chain.end)?;
                let offset_more = u16::from_be_bytes([f0, f1]);
                let fragment = Fragment {
                    identification: u32::from_be_bytes([i0, i1, i2, i3]),
                    offset: offset_more & 0xfff8,
                    more: offset_more & 1 != 0,
                };
                chain.fragment = chain.fragment.or_else(|| fragment.unless_whole());
                8
            }
            _ => return Ok(chain),
        };
        let &[next] = chunk(bytes, chain.end)?;
        chain = Chain { protocol: next, end: chain.end + len, ..chain };
        if chain.fragment.is_some_and(|fragment| fragment.is_later()) {
            return Ok(chain);
        }
    }
    Err(FrameError::TooManyExtensions)
}

/// The range of a packet's transport in the frame.
struct TransportRange {
    offset: usize,
    end: usize,
}

#[inline]
fn finish(
    bytes: &[u8],
    (source, destination): (IpAddr, IpAddr),
    hop_limit: u8,
    protocol: u8,
    fragment: Option<Fragment>,
    range: TransportRange,
) -> Result<Ip, FrameError> {
    let Some(len) = range.end.checked_sub(range.offset) else {
        return Err(FrameError::Truncated { needed: range.offset, got: range.end });
    };
    let transport = transport::parse(bytes, range.offset, len, protocol, fragment)?;
    let narrow = |value| u16::try_from(value).map_err(|_| FrameError::TooManyExtensions);
    Ok(Ip {
        source,
        destination,
        protocol,
        hop_limit,
        fragment,
        transport_offset: narrow(range.offset)?,
        transport_len: narrow(len)?,
        transport,
    })
}
