//! What a record of the ring says: one packet, and its payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_rnic::{Source, Transmit};
use weft_transport::Acknowledged;
use weft_wire::{DataHeader, MessageHeader, Packet, RdmaHeader, U4, U24};

use super::super::memory::{self, Payload};
use super::ring::{Room, Unread};

const HEADERS_LEN: usize = 4;
const PAYLOAD_LEN: usize = 6;
const FROM: usize = 8;
const TO: usize = 24;
/// Which of the reader's connections the writer has placed packets of, zero for none, and up to which.
const ACKNOWLEDGED: usize = 40;
const HEADERS: usize = 48;

/// In place of the length of headers: they are the fields of a data packet, as nearly all are, word by word.
const IN_WORDS: u16 = 0;
const WORDS: usize = 12;

/// What there is of a record before its payload, at most.
const MOST_BEFORE: usize = HEADERS + Packet::MAX_LEN + RdmaHeader::MAX_LEN + 7;

/// A record, taken apart.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) packet: Packet,
    pub(crate) rdma: Option<RdmaHeader>,
    pub(crate) payload_len: u16,
    pub(crate) payload: Payload<'a>,
    pub(crate) acknowledged: Option<Acknowledged>,
}

/// A packet that says it comes from `from`, as it stands in a record before its payload.
#[derive(Debug)]
pub(super) struct Head {
    bytes: [u8; MOST_BEFORE],
    len: usize,
    payload_len: usize,
}

impl Head {
    pub(super) fn new(transmit: &Transmit, from: IpAddr) -> Self {
        let mut bytes = [0; MOST_BEFORE];
        let (len, headers_len) = match to_words(transmit) {
            Some(words) => {
                let to = bytes[HEADERS..].chunks_exact_mut(4);
                to.zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
                (4 * WORDS, IN_WORDS)
            }
            None => {
                let mut len = transmit.packet.emit(&mut bytes[HEADERS..]);
                if let Some(header) = &transmit.rdma {
                    len += header.emit(&mut bytes[HEADERS + len..]);
                }
                (len, u16::try_from(len).expect("headers of a packet"))
            }
        };
        bytes[HEADERS_LEN..][..2].copy_from_slice(&headers_len.to_ne_bytes());
        bytes[PAYLOAD_LEN..][..2].copy_from_slice(&transmit.payload_len.to_ne_bytes());
        bytes[FROM..][..16].copy_from_slice(&octets(from));
        bytes[TO..][..16].copy_from_slice(&octets(transmit.to.ip()));
        if let Some(Acknowledged { destination_cid, psn_base }) = transmit.acknowledged {
            bytes[ACKNOWLEDGED..][..4].copy_from_slice(&destination_cid.to_ne_bytes());
            bytes[ACKNOWLEDGED + 4..][..4].copy_from_slice(&psn_base.to_ne_bytes());
        }
        Self { bytes, len: body(len), payload_len: transmit.payload_len.into() }
    }

    /// Bytes of the record.
    pub(super) const fn record_len(&self) -> usize {
        self.len + self.payload_len
    }

    /// Writes the record.
    pub(super) fn write(&self, source: Source<'_>, room: &mut Room) {
        room.put(&self.bytes[HEADERS_LEN..self.len]);
        match source {
            Source::Memory(places) => places.iter().for_each(|&place| {
                let to = room.take(place.len as usize);
                // SAFETY: it was taken for as many bytes.
                let read = unsafe { memory::fetch(place, to) };
                assert!(
                    read.is_ok(),
                    "a device that has neighbours has memory of its own process only"
                );
            }),
            Source::Inline(bytes) => room.put(bytes),
            // What a record before it said will do.
            Source::Anything => {}
        }
    }
}

/// The headers of a data packet, if they are. A link's say nothing but this.
#[inline]
fn to_words(transmit: &Transmit) -> Option<[u32; WORDS]> {
    let (Packet::Data(data, Some(message)), Some(rdma)) = (&transmit.packet, &transmit.rdma) else {
        return None;
    };
    if rdma.operands.is_some() {
        return None;
    }
    let tag = message.tag.to_ne_bytes();
    let kind = u32::from_ne_bytes([message.opcode, data.version.get(), tag[0], tag[1]]);
    let address = rdma.address.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| address[at + byte]));
    let words = [
        data.destination_cid,
        data.psn,
        message.id,
        message.offset,
        message.length,
        kind,
        rdma.destination_qp.get() | u32::from(rdma.solicited) << 31,
        rdma.psn.get(),
        half(0),
        half(4),
        rdma.key,
        rdma.immediate,
    ];
    debug_assert_eq!(from_words(words), (transmit.packet, *rdma));
    Some(words)
}

#[inline]
fn from_words(words: [u32; WORDS]) -> (Packet, RdmaHeader) {
    let [destination_cid, psn, id, offset, length, kind, qp, request, low, high, key, immediate] =
        words;
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
        immediate,
        operands: None,
    };
    (Packet::data(data, Some(message)).with_rdma(), rdma)
}

/// Takes headers as they are on the wire apart. `None` for nonsense.
fn parse_headers(headers: &[u8]) -> Option<(Packet, Option<RdmaHeader>)> {
    let (packet, rest) = Packet::parse(headers).ok()?;
    if !packet.announces_rdma() {
        return rest.is_empty().then_some((packet, None));
    }
    let (rdma, rest) = RdmaHeader::parse(rest).ok()?;
    rest.is_empty().then_some((packet, Some(rdma)))
}

/// Where the payload is, after so many bytes of headers.
const fn body(headers_len: usize) -> usize {
    (HEADERS + headers_len).next_multiple_of(8)
}

/// Takes a record apart. `None` for nonsense.
pub(super) fn parse(record: &Unread) -> Option<Record<'_>> {
    let mut bytes = [0; MOST_BEFORE];
    let before = record.copy_to(&mut bytes);
    let bytes = &bytes[..before];
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let (headers_len, payload_len) = (half(HEADERS_LEN)?, half(PAYLOAD_LEN)?);
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (destination_cid, psn_base) = (word(ACKNOWLEDGED)?, word(ACKNOWLEDGED + 4)?);
    let acknowledged = (destination_cid != 0).then_some(Acknowledged { destination_cid, psn_base });
    let (headers_len, packet, rdma) = if headers_len == IN_WORDS {
        let headers = bytes.get(HEADERS..HEADERS + 4 * WORDS)?;
        let (packet, rdma) = from_words(core::array::from_fn(|at| {
            u32::from_ne_bytes([0, 1, 2, 3].map(|byte| headers[4 * at + byte]))
        }));
        (4 * WORDS, packet, Some(rdma))
    } else {
        let headers_len = headers_len.into();
        let (packet, rdma) = parse_headers(bytes.get(HEADERS..HEADERS + headers_len)?)?;
        (headers_len, packet, rdma)
    };
    let len = usize::from(payload_len);
    let start = record.bytes(body(headers_len), len)?;
    // SAFETY: they are in the ring for as long as the record is not passed, which it is borrowed for.
    let payload = unsafe { Payload::shared(start, len) };
    let (from, to) = (ip(bytes.get(FROM..FROM + 16)?)?, ip(bytes.get(TO..TO + 16)?)?);
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

    use weft_rnic::Place;
    use weft_transport::{ConnectionId, LinkId, path::PathId};
    use weft_wire::{AckHeader, AtomicOperands};

    use super::super::ring::{LONGEST, Memory, RING_BYTES, Reader, Writer};
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
            path: PathId(0),
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
            acknowledged: Some(Acknowledged { destination_cid: 9, psn_base: u32::MAX }),
        }
    }

    /// Writes a record, has it spoilt, and looks at it.
    fn through<R>(
        transmit: &Transmit,
        source: Source<'_>,
        spoil: impl FnOnce(&mut [u8]),
        look: impl FnOnce(Option<Record<'_>>) -> R,
    ) -> R {
        let mut bytes = vec![0_u64; RING_BYTES / 8];
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap().cast();
        // SAFETY: as long as both ends.
        let memory = unsafe { Memory::new(start) };
        let head = Head::new(transmit, "fd00::1".parse().unwrap());
        assert!(head.record_len() <= LONGEST);
        Writer::new(memory).write(head.record_len(), |room| head.write(source, room));
        let mut reader = Reader::new(memory);
        let record = reader.peek().unwrap().unwrap();
        let whole = record.bytes(0, record.len()).unwrap().cast_mut();
        // SAFETY: nobody else looks at it now.
        spoil(unsafe { core::slice::from_raw_parts_mut(whole, record.len()) });
        look(parse(&record))
    }

    fn copied(payload: &Payload<'_>) -> Vec<u8> {
        payload.to_boxed().into_vec()
    }

    #[test]
    fn a_packet_comes_out_as_it_went_in() {
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

    /// Those of an atomic, and those that say nothing of memory, are as on the wire.
    #[test]
    fn headers_that_are_not_in_words_come_out_as_they_went_in() {
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
    fn records_changed_anywhere_are_parsed_or_refused_and_nothing_else() {
        let packet = transmit("10.0.0.1:5", 100);
        for at in 0..HEADERS + Packet::MAX_LEN {
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
                        assert!(len.is_none_or(|(copied, said)| copied == usize::from(said)));
                    },
                );
            }
        }
        let long = |bytes: &mut [u8]| bytes[PAYLOAD_LEN..][..2].fill(0xff);
        through(&packet, Source::Anything, long, |record| assert!(record.is_none()));
    }
}
