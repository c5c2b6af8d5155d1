//! The check of a virtio-net header against its frame.

use thiserror::Error;
use weft_wire::{GsoType, VirtioNetHeader};

use crate::{Frame, Ip, Network, Transport};

/// The work that a tenant left to its device, checked against the frame. Offsets count from the first byte of
/// the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offload {
    /// The checksum to complete.
    pub checksum: Option<PartialChecksum>,
    /// The cut into segments, if the frame is a super-frame.
    pub segmentation: Option<Segmentation>,
}

/// A checksum over `start..end`; its field holds the sum of the pseudo header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// The first byte that it covers.
    pub start: u16,
    /// The offset of its field, two bytes within the covered range.
    pub at: u16,
    /// The byte after the last covered one, at most the frame's length.
    pub end: u32,
}

/// The cut of a super-frame into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The segments' protocol.
    pub kind: GsoType,
    /// Length of the headers that each segment repeats, from Ethernet to transport, bytes.
    pub header_len: u16,
    /// Payload of each segment except the last, bytes.
    pub size: u16,
    /// Payload of all segments, bytes.
    pub payload_len: u16,
    /// The virtio-net header's ECN bit: CWR belongs to the first segment.
    ecn: bool,
}

/// The reason that a virtio-net header does not match its frame. The frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The checksum's field or start is outside the possible range.
    #[error("checksum at {start} + {offset}, expected from {min} on within {len} bytes")]
    ChecksumOutside {
        /// `csum_start`.
        start: u16,
        /// `csum_offset`.
        offset: u16,
        /// The first byte after the headers that have no such checksum.
        min: u16,
        /// The offset at which the range that can be covered ends.
        len: u32,
    },
    /// A fragment, which does not have the whole packet's checksum.
    #[error("checksum or segmentation offload on a fragment")]
    OfFragment,
    /// `hdr_len` is longer than the frame.
    #[error("hdr_len {got} of a frame of {len} bytes")]
    HeaderLength {
        /// The hint.
        got: u16,
        /// The frame's length.
        len: u32,
    },
    /// A super-frame without a checksum to fill in: the segments would have none.
    #[error("gso_type {0:?} without NEEDS_CSUM")]
    SegmentsWithoutChecksum(GsoType),
    /// The frame has another protocol than the header's segments.
    #[error("gso_type {0:?} on a frame of another protocol")]
    WrongKind(GsoType),
    /// Fragments of a UDP datagram (UFO), which are not offered to tenants.
    #[error("gso_type UDP (UFO) was not negotiated")]
    UdpFragments,
    /// The ECN bit on a protocol other than TCP.
    #[error("ECN bit with gso_type {0:?}")]
    EcnWithoutTcp(GsoType),
    /// A segment size below the smallest one.
    #[error("gso_size {got}, expected {min} or more")]
    SegmentSize {
        /// `gso_size`.
        got: u16,
        /// The smallest valid size.
        min: u16,
    },
    /// More datagrams than one super-frame may have.
    #[error("{got} datagrams in one frame, at most {}", Segmentation::MAX_DATAGRAMS)]
    TooManyDatagrams {
        /// Number of datagrams.
        got: usize,
    },
    /// Bytes after a super-frame's packet, which belong to no segment.
    #[error("{0} bytes after the packet of a super-frame")]
    TrailingBytes(u32),
}

impl Segmentation {
    /// The smallest size of a TCP segment, as in Linux (`TCP_MIN_GSO_SIZE`): smaller ones only
    /// serve to turn one frame into tens of thousands.
    pub const MIN_TCP_SIZE: u16 = 8;

    /// Maximum number of datagrams in one super-frame, as in Linux (`UDP_MAX_SEGMENTS`), for the same reason.
    pub const MAX_DATAGRAMS: usize = 128;

    /// Returns the number of segments; a super-frame without payload is one.
    pub fn count(&self) -> usize {
        usize::from(self.payload_len).div_ceil(usize::from(self.size)).max(1)
    }
}

impl Offload {
    /// Returns the work that `header` requests, checked against the frame after it.
    ///
    /// # Errors
    /// Every [`OffloadError`]; the caller drops the frame.
    pub fn check(header: &VirtioNetHeader, frame: &Frame) -> Result<Self, OffloadError> {
        if u32::from(header.hdr_len) > frame.len {
            return Err(OffloadError::HeaderLength { got: header.hdr_len, len: frame.len });
        }
        let checksum = header.needs_csum.then(|| partial_checksum(header, frame)).transpose()?;
        let segmentation = match header.gso_type {
            GsoType::None => None,
            kind => {
                checksum.ok_or(OffloadError::SegmentsWithoutChecksum(kind))?;
                Some(segmentation(header, frame)?)
            }
        };
        Ok(Self { checksum, segmentation })
    }

    /// Returns the virtio-net header with this request and no other, for a frame in one buffer.
    pub fn header(&self) -> VirtioNetHeader {
        let mut header = VirtioNetHeader { num_buffers: 1, ..VirtioNetHeader::default() };
        if let Some(checksum) = self.checksum {
            header.needs_csum = true;
            header.csum_start = checksum.start;
            header.csum_offset = checksum.at - checksum.start;
        }
        if let Some(segmentation) = self.segmentation {
            header.gso_type = segmentation.kind;
            header.ecn = segmentation.ecn;
            header.hdr_len = segmentation.header_len;
            header.gso_size = segmentation.size;
        }
        header
    }
}

impl OffloadError {
    /// Returns a short name for counters: one word for each variant, independent of its fields.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::ChecksumOutside { .. } => "checksum_outside",
            Self::OfFragment => "of_fragment",
            Self::HeaderLength { .. } => "header_length",
            Self::SegmentsWithoutChecksum(_) => "segments_without_checksum",
            Self::WrongKind(_) => "wrong_kind",
            Self::UdpFragments => "udp_fragments",
            Self::EcnWithoutTcp(_) => "ecn_without_tcp",
            Self::SegmentSize { .. } => "segment_size",
            Self::TooManyDatagrams { .. } => "too_many_datagrams",
            Self::TrailingBytes(_) => "trailing_bytes",
        }
    }
}

/// Returns the checksum's range after the headers that the switch parses. It need not be the outermost
/// transport's: guests have tunnels of their own.
fn partial_checksum(
    header: &VirtioNetHeader,
    frame: &Frame,
) -> Result<PartialChecksum, OffloadError> {
    let (min, end) = match &frame.network {
        Network::Ip(ip) if ip.fragment.is_some() => return Err(OffloadError::OfFragment),
        Network::Ip(ip) => (ip.transport_offset, packet_end(ip)),
        Network::Arp(_) | Network::Other => (frame.network_offset, frame.len),
    };
    let (start, offset) = (header.csum_start, header.csum_offset);
    match start.checked_add(offset) {
        Some(at) if start >= min && u32::from(at) + 2 <= end => {
            Ok(PartialChecksum { start, at, end })
        }
        _ => Err(OffloadError::ChecksumOutside { start, offset, min, len: end }),
    }
}

/// Returns the offset of the packet's end, before Ethernet's padding.
fn packet_end(ip: &Ip) -> u32 {
    u32::from(ip.transport_offset) + u32::from(ip.transport_len)
}

fn segmentation(header: &VirtioNetHeader, frame: &Frame) -> Result<Segmentation, OffloadError> {
    let kind = header.gso_type;
    let ip = frame.ip().ok_or(OffloadError::WrongKind(kind))?;
    let (transport_len, checksum_offset, min) = match (kind, ip.transport) {
        (GsoType::UdpFragments, _) => return Err(OffloadError::UdpFragments),
        (GsoType::TcpV4, Transport::Tcp(tcp)) if ip.source.is_ipv4() => {
            (tcp.header_len, 16, Segmentation::MIN_TCP_SIZE)
        }
        (GsoType::TcpV6, Transport::Tcp(tcp)) if ip.source.is_ipv6() => {
            (tcp.header_len, 16, Segmentation::MIN_TCP_SIZE)
        }
        (GsoType::Udp, Transport::Udp(_)) => (8, 6, 1),
        _ => return Err(OffloadError::WrongKind(kind)),
    };
    if header.ecn && kind == GsoType::Udp {
        return Err(OffloadError::EcnWithoutTcp(kind));
    }
    if header.gso_size < min {
        return Err(OffloadError::SegmentSize { got: header.gso_size, min });
    }
    let (start, offset) = (header.csum_start, header.csum_offset);
    if (start, offset) != (ip.transport_offset, checksum_offset) {
        let (min, len) = (ip.transport_offset, frame.len);
        return Err(OffloadError::ChecksumOutside { start, offset, min, len });
    }
    let trailing = frame.len - packet_end(ip);
    if trailing > 0 {
        return Err(OffloadError::TrailingBytes(trailing));
    }
    let segmentation = Segmentation {
        kind,
        header_len: ip.transport_offset + u16::from(transport_len),
        size: header.gso_size,
        payload_len: ip.transport_len - u16::from(transport_len),
        ecn: header.ecn,
    };
    let count = segmentation.count();
    if kind == GsoType::Udp && count > Segmentation::MAX_DATAGRAMS {
        return Err(OffloadError::TooManyDatagrams { got: count });
    }
    Ok(segmentation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{packet, parsed, syn, tcp, udp};
    use crate::{TcpFlags, protocol};

    fn tcp_header(size: u16) -> VirtioNetHeader {
        VirtioNetHeader {
            needs_csum: true,
            gso_type: GsoType::TcpV4,
            hdr_len: 54,
            gso_size: size,
            csum_start: 34,
            csum_offset: 16,
            ..VirtioNetHeader::default()
        }
    }

    fn tcp_frame(payload: usize) -> Frame {
        let segment = tcp((40_000, 80), TcpFlags::ACK, &[], &vec![0; payload]);
        parsed(&packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment))
    }

    fn refused(header: VirtioNetHeader, frame: &Frame) -> OffloadError {
        Offload::check(&header, frame).unwrap_err()
    }

    #[test]
    fn a_checked_header_is_written_back_unchanged() {
        let header = VirtioNetHeader { num_buffers: 1, ..tcp_header(1448) };
        let offload = Offload::check(&header, &tcp_frame(60_000)).unwrap();
        assert_eq!(offload.checksum, Some(PartialChecksum { start: 34, at: 50, end: 60_054 }));
        let segmentation = offload.segmentation.unwrap();
        assert_eq!((segmentation.header_len, segmentation.payload_len), (54, 60_000));
        assert_eq!(segmentation.count(), 42);
        assert_eq!(offload.header(), header);
    }

    #[test]
    fn a_hint_is_not_trusted_and_nothing_else_is_passed_on() {
        let frame = tcp_frame(3000);
        let header = VirtioNetHeader { hdr_len: 20, data_valid: true, ..tcp_header(1000) };
        let written = Offload::check(&header, &frame).unwrap().header();
        assert_eq!(written, VirtioNetHeader { num_buffers: 1, ..tcp_header(1000) });
        let header = VirtioNetHeader { hdr_len: 3055, ..header };
        assert_eq!(refused(header, &frame), OffloadError::HeaderLength { got: 3055, len: 3054 });
    }

    #[test]
    fn a_checksum_lies_behind_the_headers_and_within_the_frame() {
        let frame = tcp_frame(2);
        let at = |csum_start, csum_offset| {
            let header = VirtioNetHeader {
                needs_csum: true,
                csum_start,
                csum_offset,
                ..VirtioNetHeader::default()
            };
            Offload::check(&header, &frame)
        };
        assert!(at(34, 16).is_ok() && at(34, 20).is_ok() && at(54, 0).is_ok());
        for (start, offset) in [(33, 16), (34, 21), (55, 0), (0, 24), (u16::MAX, 16), (34, 65_520)]
        {
            let outside = OffloadError::ChecksumOutside { start, offset, min: 34, len: 56 };
            assert_eq!(at(start, offset), Err(outside));
        }
    }

    #[test]
    fn padding_is_not_covered_and_not_cut() {
        let [mut bytes, _] = syn();
        bytes.resize(60, 0xff);
        let frame = parsed(&bytes);
        let header = VirtioNetHeader { gso_type: GsoType::None, ..tcp_header(0) };
        let offload = Offload::check(&header, &frame).unwrap();
        assert_eq!(offload.checksum, Some(PartialChecksum { start: 34, at: 50, end: 54 }));
        assert_eq!(refused(tcp_header(8), &frame), OffloadError::TrailingBytes(6));
    }

    #[test]
    fn segmentation_that_contradicts_the_frame_is_refused() {
        let frame = tcp_frame(3000);
        let header = tcp_header(1000);
        let with = |gso_type| VirtioNetHeader { gso_type, ..header };
        for kind in [GsoType::TcpV6, GsoType::Udp] {
            assert_eq!(refused(with(kind), &frame), OffloadError::WrongKind(kind));
        }
        assert_eq!(refused(with(GsoType::UdpFragments), &frame), OffloadError::UdpFragments);
        let bare = VirtioNetHeader { needs_csum: false, ..header };
        let expected = OffloadError::SegmentsWithoutChecksum(GsoType::TcpV4);
        assert_eq!(refused(bare, &frame), expected);
        let small = VirtioNetHeader { gso_size: 7, ..header };
        assert_eq!(refused(small, &frame), OffloadError::SegmentSize { got: 7, min: 8 });
        let inner = VirtioNetHeader { csum_start: 54, ..header };
        assert_eq!(refused(inner, &frame).reason(), "checksum_outside");
    }

    #[test]
    fn the_number_of_datagrams_is_bounded() {
        let bytes = packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &[0; 1290]));
        let frame = parsed(&bytes);
        let header = VirtioNetHeader {
            gso_type: GsoType::Udp,
            csum_offset: 6,
            hdr_len: 42,
            ..tcp_header(10)
        };
        assert_eq!(refused(header, &frame), OffloadError::TooManyDatagrams { got: 129 });
        let header = VirtioNetHeader { gso_size: 11, ..header };
        assert_eq!(Offload::check(&header, &frame).unwrap().segmentation.unwrap().count(), 118);
        let marked = VirtioNetHeader { ecn: true, ..header };
        assert_eq!(refused(marked, &frame), OffloadError::EcnWithoutTcp(GsoType::Udp));
        let nothing = VirtioNetHeader { gso_size: 0, ..header };
        assert_eq!(refused(nothing, &frame), OffloadError::SegmentSize { got: 0, min: 1 });
    }

    #[test]
    fn a_fragment_has_no_checksum_offload() {
        let [mut bytes, _] = syn();
        bytes[20] = 0x20;
        let frame = parsed(&bytes);
        let header = VirtioNetHeader { gso_type: GsoType::None, ..tcp_header(0) };
        assert_eq!(refused(header, &frame), OffloadError::OfFragment);
    }
}
