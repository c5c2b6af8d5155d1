//! Tenants' frames: TCP segments over IPv4 and Ethernet behind a virtio-net header. They are longer than the network's
//! MTU if the tenant leaves segmentation to its device.
//!
//! Sequence numbers are those of a byte stream (RFC 9293). A SACK option reports ranges that arrived out of order (RFC
//! 2018). The timestamp option (RFC 7323) holds the number of the frame itself: every frame of a flow has its own, so
//! that a frame which arrives twice, or before an older one, is distinguished from a retransmission by its tenant.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use weft_units::Seed;
use weft_vpc::{TcpFlags, protocol};
use weft_wire::checksum::Checksum;
use weft_wire::{
    Ecn, EtherType, EthernetHeader, GsoType, Ipv4Header, Ipv4Options, MacAddr, U6, U13,
    VirtioNetHeader,
};

/// The number of a tenant's interface, unique among all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vnic(pub(super) u32);

impl Vnic {
    pub(super) fn mac(self) -> MacAddr {
        let [a, b, c, d] = self.0.to_be_bytes();
        MacAddr([2, 0, a, b, c, d])
    }

    fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 | self.0)
    }
}

/// The fields of a frame that its sender and receiver use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// TCP ports of the sender and the receiver.
    pub(super) ports: (u16, u16),
    /// Low half of the number of its first byte.
    pub(super) sequence: u32,
    /// Low half of the number of the byte expected next.
    pub(super) acknowledged: u32,
    /// The frame's own number.
    pub(super) serial: u32,
    /// The number of the frame that this one acknowledges.
    pub(super) echo: u32,
    /// Ranges that arrived out of order, as low halves; an empty range is none.
    pub(super) sacks: [(u32, u32); MAX_SACKS],
    /// Number of the stream's bytes in it.
    pub(super) payload_len: u16,
}

/// Maximum number of SACK ranges beside a timestamp (RFC 2018, section 3).
pub(super) const MAX_SACKS: usize = 3;

/// Offset of the IPv4 header in a frame with its virtio-net header.
const IP: usize = VirtioNetHeader::LEN + EthernetHeader::LEN;
/// Offset of the TCP header.
const TCP: usize = IP + Ipv4Header::LEN;
/// Offset of the TCP options.
const OPTIONS: usize = TCP + 20;
/// Length of the timestamp option: two NOPs, then kind, length and two values.
const TIMESTAMP: usize = 12;
/// Bytes of the headers of a frame with payload, which carries no SACK.
pub(super) const HEADERS: usize = OPTIONS + TIMESTAMP;
/// Maximum length of the headers, bytes.
pub(super) const MAX_HEADERS: usize = HEADERS + 4 + 8 * MAX_SACKS;
/// Bytes of an IP packet around a data segment's payload.
pub(crate) const PACKET_HEADERS: u16 = 52;
const _: () = assert!(PACKET_HEADERS as usize == HEADERS - IP);
/// Maximum payload of a frame, bytes: an IP packet has at most 65,535.
pub(crate) const MAX_PAYLOAD: u16 = u16::MAX - PACKET_HEADERS;

impl Segment {
    /// Writes the headers of a frame whose segments have at most `mss` bytes of payload; returns their length,
    /// the virtio-net header's included.
    pub(super) fn emit(
        &self,
        from: Vnic,
        to: Vnic,
        mss: u16,
        out: &mut [u8; MAX_HEADERS],
    ) -> usize {
        let sacks = self.sacks.iter().filter(|(start, end)| start != end);
        let sack_len = match sacks.clone().count() {
            0 => 0,
            count => 4 + 8 * count,
        };
        let end = HEADERS + sack_len;
        let segment_len = u16::try_from(end - TCP).expect("headers are short") + self.payload_len;
        self.emit_virtio(mss, end, out);
        EthernetHeader { destination: to.mac(), source: from.mac(), ethertype: EtherType::IPV4 }
            .emit(&mut out[VirtioNetHeader::LEN..]);
        let header = ip_header(from, to, self.serial, segment_len);
        header.emit(&mut out[IP..]);
        let tcp = &mut out[TCP..end];
        tcp[..2].copy_from_slice(&self.ports.0.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.ports.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledged.to_be_bytes());
        let words = u8::try_from(tcp.len() / 4).expect("at most 15");
        tcp[12..16].copy_from_slice(&[words << 4, TcpFlags::ACK.0, 0xff, 0xff]);
        // The device completes the sum over the pseudo header (virtio 1.2, section 5.1.6.2).
        let sum = Checksum::new()
            .with_pseudo_header(header.pseudo_header(), protocol::TCP, segment_len.into())
            .finish();
        tcp[16..18].copy_from_slice(&(!sum).to_be_bytes());
        tcp[18..20].copy_from_slice(&[0, 0]);
        tcp[20..24].copy_from_slice(&[NOP, NOP, TIMESTAMP_KIND, 10]);
        tcp[24..28].copy_from_slice(&self.serial.to_be_bytes());
        tcp[28..32].copy_from_slice(&self.echo.to_be_bytes());
        if sack_len > 0 {
            let len = u8::try_from(sack_len - 2).expect("at most 26");
            tcp[32..36].copy_from_slice(&[NOP, NOP, SACK_KIND, len]);
        }
        for (index, (start, end)) in sacks.enumerate() {
            let place = &mut tcp[36 + 8 * index..44 + 8 * index];
            place[..4].copy_from_slice(&start.to_be_bytes());
            place[4..].copy_from_slice(&end.to_be_bytes());
        }
        end
    }

    fn emit_virtio(&self, mss: u16, headers: usize, out: &mut [u8; MAX_HEADERS]) {
        let is_long = self.payload_len > mss;
        let offset =
            |at: usize| u16::try_from(at - VirtioNetHeader::LEN).expect("headers are short");
        let header = VirtioNetHeader {
            needs_csum: true,
            gso_type: if is_long { GsoType::TcpV4 } else { GsoType::None },
            hdr_len: if is_long { offset(headers) } else { 0 },
            gso_size: if is_long { mss } else { 0 },
            csum_start: offset(TCP),
            csum_offset: 16,
            ..VirtioNetHeader::default()
        };
        header.emit(out);
    }

    /// Parses a frame; returns it with its payload, or `None` if no simulated tenant sends such a frame.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let len = IP + usize::from(half(IP + 2)?);
        let payload = TCP + usize::from(*bytes.get(TCP + 12)? >> 4) * 4;
        let is_ours = bytes.get(IP) == Some(&0x45) && bytes.get(IP + 9) == Some(&protocol::TCP);
        if !is_ours || word(OPTIONS)? != u32::from_be_bytes([NOP, NOP, TIMESTAMP_KIND, 10]) {
            return None;
        }
        let mut sacks = [(0, 0); MAX_SACKS];
        for (index, sack) in sacks.iter_mut().enumerate() {
            let at = HEADERS + 4 + 8 * index;
            if at + 8 <= payload {
                *sack = (word(at)?, word(at + 4)?);
            }
        }
        let body = bytes.get(payload..len)?;
        let segment = Self {
            ports: (half(TCP)?, half(TCP + 2)?),
            sequence: word(TCP + 4)?,
            acknowledged: word(TCP + 8)?,
            serial: word(OPTIONS + 4)?,
            echo: word(OPTIONS + 8)?,
            sacks,
            payload_len: u16::try_from(body.len()).ok()?,
        };
        Some((segment, body))
    }
}

const NOP: u8 = 1;
const SACK_KIND: u8 = 5;
const TIMESTAMP_KIND: u8 = 8;

fn ip_header(from: Vnic, to: Vnic, serial: u32, payload_len: u16) -> Ipv4Header {
    Ipv4Header {
        dscp: U6::default(),
        ecn: Ecn::NotCapable,
        payload_len,
        identification: (serial & 0xffff) as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: U13::default(),
        ttl: 64,
        protocol: protocol::TCP,
        source: from.address(),
        destination: to.address(),
        options: Ipv4Options::NONE,
    }
}

/// Length of the repeated pattern, bytes: a prime, so that it does not repeat after a power of two.
const PATTERN_LEN: usize = 65_521;

static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = Seed(0).child("tenants' bytes", 0).rng();
    (0..PATTERN_LEN).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
});

/// Writes the bytes of stream `key` from `position` on.
pub(super) fn write_body(key: u32, position: u64, out: &mut [u8]) {
    let mut rest = out;
    for part in body(key, position) {
        let len = part.len().min(rest.len());
        let (now, later) = rest.split_at_mut(len);
        now.copy_from_slice(&part[..len]);
        rest = later;
        if rest.is_empty() {
            return;
        }
    }
}

/// Returns `true` if `bytes` are those of stream `key` from `position` on.
pub(super) fn is_body(key: u32, position: u64, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for part in body(key, position) {
        let len = part.len().min(rest.len());
        if rest[..len] != part[..len] {
            return false;
        }
        rest = &rest[len..];
        if rest.is_empty() {
            break;
        }
    }
    true
}

/// Returns the bytes of stream `key` from `position` on, without end, in parts.
fn body(key: u32, position: u64) -> impl Iterator<Item = &'static [u8]> {
    let start = (u64::from(key).wrapping_mul(7919) + position) % PATTERN_LEN as u64;
    let (before, after) = BODY.split_at(usize::try_from(start).expect("below the table's length"));
    [after, before].into_iter().cycle()
}

#[cfg(test)]
mod tests {
    use weft_vpc::offload::verify;
    use weft_vpc::{Frame, Offload, offload};

    use super::*;

    fn segment() -> Segment {
        Segment {
            ports: (7, 80),
            sequence: u32::MAX - 3,
            acknowledged: 17,
            serial: 99,
            echo: 98,
            sacks: [(30, 40), (60, 61), (0, 0)],
            payload_len: 0,
        }
    }

    fn frame(segment: &Segment, mss: u16) -> Vec<u8> {
        let mut head = [0; MAX_HEADERS];
        let len = segment.emit(Vnic(5), Vnic(6), mss, &mut head);
        let mut bytes = head[..len].to_vec();
        bytes.resize(len + usize::from(segment.payload_len), 0);
        write_body(3, 1000, &mut bytes[len..]);
        bytes
    }

    #[test]
    fn a_frame_parses_as_emitted_and_the_switch_accepts_it() {
        let data = Segment { sacks: [(0, 0); 3], payload_len: 60_000, ..segment() };
        for (segment, mss) in [(segment(), 1448), (data, 1448), (data, 60_000)] {
            let bytes = frame(&segment, mss);
            let (read, body) = Segment::parse(&bytes).unwrap();
            assert_eq!(read, segment);
            assert!(is_body(3, 1000, body) && (body.is_empty() || !is_body(3, 1001, body)));
            let (virtio, parsed) = Frame::parse_virtio(&bytes, bytes.len()).unwrap();
            let cut = Offload::check(&virtio, &parsed).unwrap().segmentation;
            assert_eq!(cut.is_some(), segment.payload_len > mss);
        }
    }

    #[test]
    fn on_a_wire_a_long_frame_is_segments_with_their_own_numbers_and_checksums() {
        let data = Segment { sacks: [(0, 0); 3], payload_len: 5000, ..segment() };
        let (mut next, mut bytes) = (0, frame(&data, 1448));
        offload::on_wire(&mut bytes, &mut Vec::new(), |frame, ethernet| {
            assert_eq!(verify(ethernet, &Frame::parse(ethernet, ethernet.len()).unwrap()), Ok(()));
            assert_eq!(frame.source, Vnic(5).mac());
            let with_virtio = [&[0; VirtioNetHeader::LEN], ethernet].concat();
            let (segment, body) = Segment::parse(&with_virtio).unwrap();
            assert_eq!(segment.sequence, data.sequence.wrapping_add(next));
            assert!(is_body(3, 1000 + u64::from(next), body));
            assert_eq!((segment.serial, segment.echo), (99, 98));
            next += u32::from(segment.payload_len);
        })
        .unwrap();
        assert_eq!(next, 5000);
    }
}
