//! The format of a record in the ring: one packet, and its payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_ring::records::{ALIGN, Room, Unread};
use weft_rnic::{Source, Transmit};
use weft_transport::Acknowledgement;
use weft_wire::{DataHeader, MessageHeader, Packet, RdmaHeader, U4, U24};

use super::super::memory::{self, Payload};

/// The offset of the shape: a word whose bits mark the parts of the record, and the length of the headers if they are
/// encoded as on the wire.
const SHAPE: usize = 4;
/// The offset of the payload's length, bytes.
const PAYLOAD_LEN: usize = 6;
/// The offset of the parts that the shape marks.
const REST: usize = 8;

/// The headers are the fields of a data packet, word by word; nearly all records have this form.
const IN_WORDS: u16 = 1 << 15;
/// The message has several packets: the position of this one follows.
const IN_PIECES: u16 = 1 << 14;
/// The source and destination follow: they differ from the record before, which is rare.
const ADDRESSED: u16 = 1 << 13;
/// An acknowledgement follows: the reader's connection id and the PSN base, of packets that the writer has placed.
const ACKNOWLEDGES: u16 = 1 << 12;
/// The address and key of the peer's memory follow, as for all but a SEND.
const PLACED: u16 = 1 << 11;
/// The record has immediate data.
const IMMEDIATE: u16 = 1 << 10;
/// The bits of the length of headers that are encoded as on the wire.
const LENGTH: u16 = IMMEDIATE - 1;

/// Number of words of a data packet's headers, and of the optional parts: the position in a message of several packets,
/// the range in the peer's memory.
const WORDS: usize = 6;
const PIECE: usize = 2;
const PLACE: usize = 3;

/// Maximum length of a record before its payload, bytes.
const MAX_HEAD_LEN: usize =
    (REST + 32 + 8 + Packet::MAX_LEN + RdmaHeader::MAX_LEN).next_multiple_of(ALIGN);

/// The source and destination of a record.
pub(super) type Addresses = (IpAddr, IpAddr);

/// A parsed record.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) packet: Packet,
    pub(crate) rdma: Option<RdmaHeader>,
    pub(crate) payload_len: u16,
    pub(crate) payload: Payload<'a>,
    pub(crate) acknowledged: Option<Acknowledgement>,
}

/// A packet in the encoding of a record, before its payload.
#[derive(Debug)]
pub(super) struct Head {
    bytes: [u8; MAX_HEAD_LEN],
    len: usize,
    payload_len: usize,
}

impl Head {
    /// Encodes a packet with the source `from`. `known` are the addresses of the record before.
    pub(super) fn new(transmit: &Transmit, from: IpAddr, known: &mut Option<Addresses>) -> Self {
        let mut head = Self { bytes: [0; MAX_HEAD_LEN], len: REST, payload_len: 0 };
        let mut shape = 0;
        let addresses = (from, transmit.to.ip());
        if *known != Some(addresses) {
            *known = Some(addresses);
            shape |= ADDRESSED;
            head.put(&octets(addresses.0));
            head.put(&octets(addresses.1));
        }
        if let Some(Acknowledgement { destination_cid, psn_base }) = transmit.acknowledged {
            shape |= ACKNOWLEDGES;
            head.put_words([destination_cid, psn_base]);
        }
        if let Some(words) = Words::of(transmit) {
            shape |= IN_WORDS;
            head.put_words(words.all);
            if words.piece != [0, transmit.payload_len.into()] {
                shape |= IN_PIECES;
                head.put_words(words.piece);
            }
            if words.place != [0; PLACE] {
                shape |= PLACED;
                head.put_words(words.place);
            }
            if words.immediate != 0 {
                shape |= IMMEDIATE;
                head.put_words([words.immediate]);
            }
        } else {
            let before = head.len;
            head.len += transmit.packet.emit(&mut head.bytes[before..]);
            if let Some(header) = &transmit.rdma {
                head.len += header.emit(&mut head.bytes[head.len..]);
            }
            shape |= u16::try_from(head.len - before).expect("headers of a packet");
        }
        head.len = payload_at(head.len, transmit.payload_len);
        head.payload_len = transmit.payload_len.into();
        head.bytes[SHAPE..][..2].copy_from_slice(&shape.to_ne_bytes());
        head.bytes[PAYLOAD_LEN..][..2].copy_from_slice(&transmit.payload_len.to_ne_bytes());
        head
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn put_words<const N: usize>(&mut self, words: [u32; N]) {
        let to = self.bytes[self.len..][..4 * N].chunks_exact_mut(4);
        to.zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        self.len += 4 * N;
    }

    /// Returns the length of the record, bytes.
    pub(super) const fn record_len(&self) -> usize {
        self.len + self.payload_len
    }

    /// Writes the record.
    pub(super) fn write(&self, source: Source<'_>, room: &mut Room) {
        room.put(&self.bytes[SHAPE..self.len]);
        match source {
            Source::Memory(places) => places.iter().for_each(|&place| {
                let to = room.take(place.len as usize);
                // SAFETY: the room was reserved for that many bytes.
                let read = unsafe { memory::fetch(place, to) };
                assert!(
                    read.is_ok(),
                    "a device that has neighbours has memory of its own process only"
                );
            }),
            Source::Inline(bytes) => room.put(bytes),
            // The bytes of an earlier record suffice.
            Source::Anything => {}
        }
    }
}

/// The headers of a data packet, word by word. Packets on a link have no other fields.
#[derive(Clone, Copy, Debug)]
struct Words {
    all: [u32; WORDS],
    piece: [u32; PIECE],
    place: [u32; PLACE],
    immediate: u32,
}

impl Words {
    /// Returns the words of a data packet; `None` for any other packet, or for an atomic.
    #[inline]
    fn of(transmit: &Transmit) -> Option<Self> {
        let (Packet::Data(data, Some(message)), Some(rdma)) = (&transmit.packet, &transmit.rdma)
        else {
            return None;
        };
        if rdma.operands.is_some() {
            return None;
        }
        let tag = message.tag.to_ne_bytes();
        let address = rdma.address.to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| address[at + byte]));
        let all = [
            data.destination_cid,
            data.psn,
            message.id,
            u32::from_ne_bytes([message.opcode, data.version.get(), tag[0], tag[1]]),
            rdma.destination_qp.get() | u32::from(rdma.solicited) << 31,
            rdma.psn.get(),
        ];
        let piece = [message.offset, message.length];
        let words =
            Self { all, piece, place: [half(0), half(4), rdma.key], immediate: rdma.immediate };
        debug_assert_eq!(words.headers(), (transmit.packet, *rdma));
        Some(words)
    }

    #[inline]
    fn headers(self) -> (Packet, RdmaHeader) {
        let [destination_cid, psn, id, kind, qp, request] = self.all;
        let [offset, length] = self.piece;
        let [low, high, key] = self.place;
        let [opcode, version, tag @ ..] = kind.to_ne_bytes();
        let version = U4::truncate(version.into());
        let data = DataHeader { version, psn, destination_cid, ..DataHeader::default() };
        let message = MessageHeader { opcode, tag: u16::from_ne_bytes(tag), id, offset, length };
        let mut address = [0; 8];
        address[..4].copy_from_slice(&low.to_ne_bytes());
        address[4..].copy_from_slice(&high.to_ne_bytes());
        let rdma = RdmaHeader {
            solicited: qp >> 31 != 0,
            destination_qp: U24::truncate(qp),
            psn: U24::truncate(request),
            address: u64::from_ne_bytes(address),
            key,
            immediate: self.immediate,
            operands: None,
        };
        (Packet::data(data, Some(message)).with_rdma(), rdma)
    }
}

/// Parses headers encoded as on the wire. Returns `None` if they are invalid.
fn parse_headers(headers: &[u8]) -> Option<(Packet, Option<RdmaHeader>)> {
    let (packet, rest) = Packet::parse(headers).ok()?;
    if !packet.announces_rdma() {
        return rest.is_empty().then_some((packet, None));
    }
    let (rdma, rest) = RdmaHeader::parse(rest).ok()?;
    rest.is_empty().then_some((packet, Some(rdma)))
}

/// Returns the offset of a payload of this length after `after` bytes: short payload follows at once, long payload
/// starts on its own cache line, because copies that begin within a line continue across lines.
const fn payload_at(after: usize, payload_len: u16) -> usize {
    after.next_multiple_of(if payload_len < 256 { 8 } else { ALIGN })
}

/// The unparsed rest of a record's start.
struct Beginning<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Beginning<'a> {
    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at + len)?;
        self.at += len;
        Some(taken)
    }

    #[inline]
    fn words<const N: usize>(&mut self) -> Option<[u32; N]> {
        let bytes = self.take(4 * N)?;
        let byte = |word: usize, byte: usize| bytes[4 * word + byte];
        Some(core::array::from_fn(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|b| byte(at, b)))))
    }
}

/// Parses a record. `known` are the addresses of the record before. Returns `None` if it is invalid.
pub(super) fn parse(record: &Unread, known: Option<Addresses>) -> Option<Record<'_>> {
    let mut bytes = [0; MAX_HEAD_LEN];
    let before = record.copy_to(&mut bytes);
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let (shape, payload_len) = (half(SHAPE), half(PAYLOAD_LEN));
    let has = |flag: u16| shape & flag != 0;
    let mut rest = Beginning { bytes: &bytes[..before], at: REST };
    let (from, to) =
        if has(ADDRESSED) { (ip(rest.take(16)?)?, ip(rest.take(16)?)?) } else { known? };
    let acknowledged = if has(ACKNOWLEDGES) {
        let [destination_cid, psn_base] = rest.words()?;
        Some(Acknowledgement { destination_cid, psn_base })
    } else {
        None
    };
    let (packet, rdma) = if has(IN_WORDS) {
        let all = rest.words()?;
        let piece = if has(IN_PIECES) { rest.words()? } else { [0, payload_len.into()] };
        let place = if has(PLACED) { rest.words()? } else { [0; PLACE] };
        let [immediate] = if has(IMMEDIATE) { rest.words()? } else { [0] };
        let (packet, rdma) = Words { all, piece, place, immediate }.headers();
        (packet, Some(rdma))
    } else {
        parse_headers(rest.take((shape & LENGTH).into())?)?
    };
    let len = usize::from(payload_len);
    let start = record.bytes(payload_at(rest.at, payload_len), len)?;
    // SAFETY: the bytes stay in the ring until the record is passed, and the record is borrowed until then.
    let payload = unsafe { Payload::shared(start, len) };
    Some(Record { from, to, packet, rdma, payload_len, payload, acknowledged })
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = octets.try_into().ok()?;
    // The usual case: an IPv4 address, mapped.
    if octets[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] {
        return Some(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]).into());
    }
    Some(Ipv6Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use weft_ring::Mapped;
    use weft_ring::records::{MAX_RECORD, RING_BYTES, Reader, Writer};
    use weft_rnic::Place;
    use weft_transport::{ConnectionId, LinkId, path::PathId};
    use weft_wire::{AckHeader, AtomicOperands};

    use super::*;
    use crate::engine::OWNER;

    fn transmit(to: &str, payload_len: u16) -> Transmit {
        let length = payload_len.into();
        let message = MessageHeader { opcode: 4, tag: 0x102, id: 3, offset: 1 << 31, length };
        let version = U4::truncate(1);
        let data = DataHeader { version, psn: 11, destination_cid: 12, ..DataHeader::default() };
        Transmit {
            to: to.parse().unwrap(),
            link: Some(LinkId(1)),
            connection: Some(ConnectionId(1)),
            context: None,
            path: PathId(0),
            marking: weft_rnic::Marking::default(),
            packet: Packet::data(data, Some(message)).with_rdma(),
            rdma: Some(RdmaHeader {
                solicited: true,
                destination_qp: U24::MAX,
                psn: U24::truncate(5),
                address: 0x0102_0304_0506_0708,
                key: 7,
                immediate: 9,
                operands: None,
            }),
            payload_len,
            acknowledged: Some(Acknowledgement { destination_cid: 9, psn_base: u32::MAX }),
        }
    }

    /// Writes a record, changes it with `spoil`, and parses it.
    fn through<R>(
        transmit: &Transmit,
        source: Source<'_>,
        spoil: impl FnOnce(&mut [u8]),
        look: impl FnOnce(Option<Record<'_>>) -> R,
    ) -> R {
        let mut bytes = vec![0_u64; RING_BYTES / 8];
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap().cast();
        // SAFETY: the memory lives as long as both ends.
        let memory = unsafe { Mapped::new(start, RING_BYTES) };
        let head = Head::new(transmit, "fd00::1".parse().unwrap(), &mut None);
        assert!(head.record_len() <= MAX_RECORD);
        Writer::new(memory).write(head.record_len(), |room| head.write(source, room));
        let mut reader = Reader::new(memory);
        let record = reader.peek().unwrap().unwrap();
        let whole = record.bytes(0, record.len()).unwrap().cast_mut();
        // SAFETY: nothing else accesses it now.
        spoil(unsafe { core::slice::from_raw_parts_mut(whole, record.len()) });
        look(parse(&record, None))
    }

    fn copied(payload: &Payload<'_>) -> Vec<u8> {
        payload.to_boxed().into_vec()
    }

    #[test]
    fn a_packet_is_parsed_as_it_was_written() {
        let expected = transmit("10.0.0.1:5", 5);
        through(
            &expected,
            Source::Inline(b"hello"),
            |_| (),
            |record| {
                let record = record.unwrap();
                assert_eq!(copied(&record.payload), b"hello");
                assert_eq!(
                    (record.from, record.to),
                    ("fd00::1".parse().unwrap(), [10, 0, 0, 1].into())
                );
                assert_eq!((record.packet, record.rdma), (expected.packet, expected.rdma));
                assert_eq!(record.acknowledged, expected.acknowledged);
            },
        );
        let there: Vec<u8> = (0..65_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let place = |from: usize, len: usize| {
            let address = there[from..].as_ptr().expose_provenance() as u64;
            Place { owner: OWNER, address, len: u32::try_from(len).unwrap() }
        };
        let places = [place(60_000, 5000), place(0, 60_000)];
        let packet = transmit("[fd00::2]:5", 65_000);
        through(
            &packet,
            Source::Memory(&places),
            |_| (),
            |record| {
                let expected = [&there[60_000..], &there[..60_000]].concat();
                assert!(copied(&record.unwrap().payload) == expected);
            },
        );
    }

    /// Headers of an atomic, and those without memory, are encoded as on the wire.
    #[test]
    fn headers_encoded_as_on_the_wire_are_parsed_as_they_were_written() {
        let operands = Some(AtomicOperands { swap_or_add: 1, compare: u64::MAX });
        let atomic = Transmit {
            rdma: Some(RdmaHeader { operands, ..RdmaHeader::default() }),
            ..transmit("10.0.0.1:5", 0)
        };
        let ack = AckHeader { psn_base: 7, ..AckHeader::default() };
        let alone = Transmit { packet: Packet::Ack(ack), rdma: None, ..transmit("10.0.0.1:5", 0) };
        for expected in [atomic, alone] {
            through(
                &expected,
                Source::Inline(&[]),
                |_| (),
                |record| {
                    let record = record.unwrap();
                    assert_eq!((record.packet, record.rdma), (expected.packet, expected.rdma));
                },
            );
        }
    }

    #[test]
    fn a_short_payload_with_an_acknowledgement_fits_a_cache_line_once_addresses_are_known() {
        let mut bytes = vec![0_u64; RING_BYTES / 8];
        // SAFETY: the memory lives as long as both ends.
        let memory =
            unsafe { Mapped::new(NonNull::new(bytes.as_mut_ptr()).unwrap().cast(), RING_BYTES) };
        let (mut writer, mut reader) = (Writer::new(memory), Reader::new(memory));
        let from = [10, 0, 0, 2].into();
        let (mut last_sent, mut last_received) = (None, None);
        let payload: Vec<u8> = (0..32).collect();
        let mut pass = |expected: &Transmit| {
            let payload = &payload[..expected.payload_len.into()];
            let head = Head::new(expected, from, &mut last_sent);
            writer.write(head.record_len(), |room| head.write(Source::Inline(payload), room));
            let unread = reader.peek().unwrap().unwrap();
            let record = parse(&unread, last_received).unwrap();
            assert_eq!((record.from, record.to), (from, expected.to.ip()));
            assert_eq!((record.packet, record.rdma), (expected.packet, expected.rdma));
            assert_eq!(record.acknowledged, expected.acknowledged);
            assert_eq!(copied(&record.payload), payload);
            last_received = Some((record.from, record.to));
            let lost = parse(&unread, None).is_none();
            reader.release(unread.len());
            (unread.len(), lost)
        };
        let whole = |len: u16| {
            let mut packet = transmit("10.0.0.1:5", len);
            let Packet::Data(_, Some(message)) = &mut packet.packet else { panic!("it has one") };
            (message.offset, message.length) = (0, len.into());
            packet
        };
        let short = whole(8);
        assert!(pass(&short).0 > 64);
        assert_eq!(pass(&short), (64, true), "with addresses included");
        let rdma = short.rdma.map(|header| RdmaHeader { address: 0, key: 0, ..header });
        assert_eq!(pass(&Transmit { rdma, ..whole(16) }).0, 64, "a SEND with immediate data");
        let rdma = rdma.map(|header| RdmaHeader { immediate: 0, ..header });
        assert_eq!(pass(&Transmit { rdma, ..whole(24) }).0, 64, "a SEND");
        assert!(pass(&Transmit { rdma, ..whole(25) }).0 > 64);
        assert!(pass(&Transmit { to: "10.0.0.3:5".parse().unwrap(), ..short }).0 > 64);
    }

    #[test]
    fn a_record_changed_anywhere_is_parsed_or_refused() {
        let packet = transmit("10.0.0.1:5", 100);
        for at in 0..MAX_HEAD_LEN {
            for value in [0, 1, 0x7f, 0xff] {
                through(
                    &packet,
                    Source::Anything,
                    |bytes| bytes[at] = value,
                    |record| {
                        let len = |record: Record<'_>| {
                            (copied(&record.payload).len(), record.payload_len)
                        };
                        let len = record.map(len);
                        assert!(len.is_none_or(|(copied, stated)| copied == usize::from(stated)));
                    },
                );
            }
        }
        let long = |bytes: &mut [u8]| bytes[PAYLOAD_LEN..][..2].fill(0xff);
        through(&packet, Source::Anything, long, |record| assert!(record.is_none()));
    }
}
