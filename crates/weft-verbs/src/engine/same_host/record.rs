//! What a record of the ring says: one packet, whose payload follows it, or is still in the memory of the
//! process that sent it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_rnic::{Place, Source, Transmit};
use weft_wire::{Packet, RdmaHeader};

use super::super::memory;
use super::ring::{ALIGN, LONGEST, STATE_WORD};

/// Payload up to here is copied into the ring and out of it: reading another process's memory is a system
/// call, which takes as long as to copy this much twice.
const COPIED: usize = 4096;

/// Places of one packet that a record has room for.
pub(super) const MOST_PLACES: usize = 64;

/// Where the payload is.
pub(super) mod state {
    /// In the record.
    pub(crate) const HERE: u32 = 0;
    /// In the sender's memory, at the places in the record.
    pub(crate) const THERE: u32 = 1;
    /// Nowhere: the sender took it back.
    pub(crate) const GONE: u32 = 2;
}

const HEADERS_LEN: usize = 8;
const PAYLOAD_LEN: usize = 10;
const PLACES: usize = 12;
const FROM: usize = 16;
const TO: usize = 32;
const HEADERS: usize = 48;

/// A place in another process's memory: address and length, bytes.
pub(super) type Remote = (u64, u32);

/// A record, taken apart.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) packet: Packet,
    pub(crate) rdma: Option<RdmaHeader>,
    pub(crate) payload_len: u16,
    pub(crate) state: u32,
    /// The payload, if it is here.
    pub(crate) payload: &'a [u8],
}

/// Writes a packet into `out`. The places of its payload, if it stays where it is.
pub(super) fn write<'a>(
    transmit: &Transmit,
    source: Source<'a>,
    from: IpAddr,
    out: &mut Vec<u8>,
) -> Option<&'a [Place]> {
    out.clear();
    out.resize(HEADERS + Packet::MAX_LEN + RdmaHeader::MAX_LEN, 0);
    let mut len = transmit.packet.emit(&mut out[HEADERS..]);
    if let Some(header) = &transmit.rdma {
        len += header.emit(&mut out[HEADERS + len..]);
    }
    let payload_len = usize::from(transmit.payload_len);
    let headers_len = u16::try_from(len).expect("headers of a packet");
    let body = (HEADERS + len).next_multiple_of(ALIGN);
    out[HEADERS_LEN..][..2].copy_from_slice(&headers_len.to_ne_bytes());
    out[PAYLOAD_LEN..][..2].copy_from_slice(&transmit.payload_len.to_ne_bytes());
    out[FROM..][..16].copy_from_slice(&octets(from));
    out[TO..][..16].copy_from_slice(&octets(transmit.to.ip()));
    let mut stays = None;
    let now = match source {
        Source::Memory(places) if payload_len > COPIED && places.len() <= MOST_PLACES => {
            stays = Some(places);
            let count = u16::try_from(places.len()).expect("compared just now");
            out[PLACES..][..2].copy_from_slice(&count.to_ne_bytes());
            out.resize(body, 0);
            for place in places {
                out.extend(place.address.to_ne_bytes());
                out.extend(u64::from(place.len).to_ne_bytes());
            }
            state::THERE
        }
        _ if body + payload_len > LONGEST => {
            out.resize(body, 0);
            state::GONE
        }
        Source::Memory(places) => {
            out.resize(body + payload_len, 0);
            let read = |out, &place| memory::read(place, out);
            match places.iter().try_fold(&mut out[body..], read) {
                Ok(_) => state::HERE,
                // Not with memory of this process, which is all that neighbours' devices have.
                Err(_) => state::GONE,
            }
        }
        Source::Inline(bytes) => {
            out.resize(body, 0);
            out.extend_from_slice(bytes);
            state::HERE
        }
        Source::Anything => {
            out.resize(body + payload_len, 0);
            state::HERE
        }
    };
    set_state(out, now);
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    stays
}

/// Changes where the payload is, in a record that waits.
pub(super) fn set_state(record: &mut [u8], state: u32) {
    record[STATE_WORD..][..4].copy_from_slice(&state.to_ne_bytes());
}

/// Takes a record apart; the places of its payload go to `places`. `None` for nonsense.
pub(super) fn parse<'a>(record: &'a [u8], places: &mut Vec<Remote>) -> Option<Record<'a>> {
    let half = |at: usize| Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let (headers_len, payload_len) = (usize::from(half(HEADERS_LEN)?), half(PAYLOAD_LEN)?);
    let state = u32::from_ne_bytes(record.get(STATE_WORD..STATE_WORD + 4)?.try_into().ok()?);
    let headers = record.get(HEADERS..HEADERS + headers_len)?;
    let body = (HEADERS + headers_len).next_multiple_of(ALIGN);
    let (packet, rest) = Packet::parse(headers).ok()?;
    let (rdma, rest) = if packet.announces_rdma() {
        let (header, rest) = RdmaHeader::parse(rest).ok()?;
        (Some(header), rest)
    } else {
        (None, rest)
    };
    if !rest.is_empty() {
        return None;
    }
    places.clear();
    let mut payload: &[u8] = &[];
    match state {
        state::HERE => payload = record.get(body..body + usize::from(payload_len))?,
        state::THERE => {
            let count = usize::from(half(PLACES)?);
            let mut total = 0;
            for place in 0..count.min(MOST_PLACES) {
                let at = body + 16 * place;
                let (address, len) = (word(at)?, u32::try_from(word(at + 8)?).ok()?);
                total += u64::from(len);
                places.push((address, len));
            }
            if count > MOST_PLACES || total != u64::from(payload_len) {
                return None;
            }
        }
        _ => {}
    }
    let (from, to) = (ip(record.get(FROM..FROM + 16)?)?, ip(record.get(TO..TO + 16)?)?);
    Some(Record { from, to, packet, rdma, payload_len, state, payload })
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
    use weft_rnic::Owner;
    use weft_transport::{ConnectionId, LinkId, path::PathId};
    use weft_wire::{DataHeader, MessageHeader};

    use super::*;

    fn transmit(to: &str, payload_len: u16) -> Transmit {
        let message = MessageHeader { length: payload_len.into(), ..MessageHeader::default() };
        Transmit {
            to: to.parse().unwrap(),
            link: Some(LinkId(1)),
            connection: Some(ConnectionId(1)),
            path: PathId(0),
            packet: Packet::data(DataHeader::default(), Some(message)).with_rdma(),
            rdma: Some(RdmaHeader { key: 7, ..RdmaHeader::default() }),
            payload_len,
        }
    }

    fn written(to: &str, source: Source<'_>, payload_len: u16) -> Vec<u8> {
        let mut out = Vec::new();
        write(&transmit(to, payload_len), source, "fd00::1".parse().unwrap(), &mut out);
        assert!(out.len() <= LONGEST && out.len().is_multiple_of(ALIGN));
        out
    }

    #[test]
    fn a_short_payload_travels_and_a_long_one_stays() {
        let mut places = vec![(1, 1)];
        let record = written("10.0.0.1:5", Source::Inline(b"hello"), 5);
        let parsed = parse(&record, &mut places).unwrap();
        assert_eq!((parsed.payload, parsed.state), (&b"hello"[..], state::HERE));
        assert_eq!((parsed.from, parsed.to), ("fd00::1".parse().unwrap(), [10, 0, 0, 1].into()));
        let expected = transmit("10.0.0.1:5", 5);
        assert_eq!((parsed.packet, parsed.rdma), (expected.packet, expected.rdma));
        assert!(places.is_empty());
        let owner = Owner::Host(0);
        let there = [(4096, 60_000), (1 << 40, 5000)];
        let sources = there.map(|(address, len)| Place { owner, address, len });
        let record = written("[fd00::2]:5", Source::Memory(&sources), 65_000);
        let parsed = parse(&record, &mut places).unwrap();
        assert_eq!((parsed.payload_len, parsed.state), (65_000, state::THERE));
        assert_eq!(places, there);
    }

    #[test]
    fn records_cut_or_changed_anywhere_are_parsed_or_refused_and_nothing_else() {
        let owner = Owner::Host(0);
        let source = [Place { owner, address: 4096, len: 9000 }];
        let whole = written("10.0.0.1:5", Source::Memory(&source), 9000);
        let mut places = Vec::new();
        for len in 0..whole.len() {
            let _ = parse(&whole[..len], &mut places);
        }
        assert!(parse(&whole[..HEADERS], &mut places).is_none());
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut record = whole.clone();
                record[at] = value;
                if let Some(record) = parse(&record, &mut places)
                    && record.state == state::THERE
                {
                    let total: u64 = places.iter().map(|&(_, len)| u64::from(len)).sum();
                    assert_eq!(total, u64::from(record.payload_len));
                }
            }
        }
    }
}
