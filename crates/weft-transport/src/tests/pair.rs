//! Two endpoints and the link between them: every path has the same delay unless a rule changes it, and time advances
//! from event to event.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_units::{Duration, Instant, Seed};
use weft_wire::{CutDatagram, DataHeader, Packet};

use crate::path::PathId;
use crate::{
    Arrival, ConnectionId, Endpoint, EndpointConfig, Event, Message, Placement, Secret, Transmit,
    TransportConfig, TrimmedAt, Verdict,
};

/// The decision of a rule about one packet on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Delay(Duration),
    /// Marked and delayed.
    Mark(Duration),
    /// Cut to its headers by a switch.
    Trim(TrimmedAt),
    Twice,
    Drop,
}

/// The inputs of a rule.
pub(super) struct OnLink<'a> {
    pub(super) now: Instant,
    /// The sending end: 0 or 1.
    pub(super) from: usize,
    pub(super) path: PathId,
    pub(super) packet: &'a Packet,
    /// Number of bytes that follow its headers: payload, or a probe's padding.
    pub(super) len: u16,
}

/// The action of an owner on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerAction {
    Place,
    Decline,
    Police,
}

pub(super) type Owner = Box<dyn FnMut(&Placement) -> OwnerAction>;

pub(super) type Rule = Box<dyn FnMut(&OnLink<'_>) -> Fate>;

struct OnWire {
    to: usize,
    arrival: Arrival,
    packet: Packet,
    payload_len: u16,
    trimmed: Option<TrimmedAt>,
}

/// Two endpoints on a link.
pub(super) struct Pair {
    pub(super) ends: [Endpoint; 2],
    pub(super) now: Instant,
    pub(super) one_way: Duration,
    pub(super) rule: Rule,
    /// The action of both owners on received packets.
    pub(super) owner: Owner,
    pub(super) events: [Vec<Event>; 2],
    /// The time until which each end does nothing, as a host whose processor runs something else; arrivals wait.
    pub(super) paused_until: [Instant; 2],
    /// The bytes placed at each end: (connection, message, offset) to length.
    placed: [BTreeMap<(ConnectionId, u32, u32), u16>; 2],
    /// Number of packets sent by each end.
    pub(super) sent: [u64; 2],
    wire: BTreeMap<(Instant, u64), OnWire>,
    /// The packets that have arrived at each end and that it has not read.
    inbox: [Vec<OnWire>; 2],
    sequence: u64,
    /// The token of each message, by sender, connection and message.
    tokens: BTreeMap<(usize, ConnectionId, u32), u64>,
}

/// Returns the headers of a packet that a switch cut to 128 bytes, read from the bytes that a packet socket receives: with
/// the lengths of the whole packet, and a checksum that no longer matches.
fn cut(packet: &Packet, path: PathId, payload_len: u16) -> Packet {
    const HEADERS: u16 = 28;
    let mut bytes = [0; 114];
    let datagram = u16::try_from(packet.len()).expect("headers are short") + payload_len;
    let words =
        [0x4500 | 11 << 2, HEADERS + datagram, 0, 0x4000, 0x4011, 0x1234, 0x0a00, 1, 0x0a00, 2];
    let ports_and_length = [0xc000 + path.0, 4791, HEADERS - 20 + datagram, 0];
    for (pair, word) in bytes.chunks_mut(2).zip(words.iter().chain(&ports_and_length)) {
        pair.copy_from_slice(&word.to_be_bytes());
    }
    packet.emit(&mut bytes[HEADERS.into()..]);
    let arrived = bytes.len().min((HEADERS + datagram).into());
    let cut = CutDatagram::parse(&bytes[..arrived]).expect("the headers are whole").expect("UDP");
    let missing = usize::from(HEADERS + datagram) - arrived;
    assert_eq!((cut.dscp.get(), usize::from(cut.missing)), (11, missing));
    let (headers, _) = Packet::parse(cut.bytes).expect("the headers are whole");
    headers
}

pub(super) fn address(end: usize) -> SocketAddr {
    let host = u8::try_from(end + 1).unwrap();
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 4791).into()
}

pub(super) fn endpoint(config: &TransportConfig, seed: u64) -> Endpoint {
    let config = EndpointConfig {
        transport: config.clone(),
        receive_port: 4791,
        thread_id: u8::try_from(seed).unwrap(),
        accept: true,
        max_connections: 1024,
    };
    Endpoint::new(config, Seed(seed), Secret::from_seed(Seed(seed))).unwrap()
}

impl Pair {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            ends: [endpoint(config, 1), endpoint(config, 2)],
            now: Instant::from_nanos(1_000_000_000),
            one_way: Duration::from_micros(5),
            rule: Box::new(|_| Fate::Pass),
            owner: Box::new(|_| OwnerAction::Place),
            events: [Vec::new(), Vec::new()],
            paused_until: [Instant::EPOCH; 2],
            placed: [BTreeMap::new(), BTreeMap::new()],
            sent: [0; 2],
            wire: BTreeMap::new(),
            inbox: [Vec::new(), Vec::new()],
            sequence: 0,
            tokens: BTreeMap::new(),
        }
    }

    /// Returns a pair with one connection between them.
    pub(super) fn joined(config: &TransportConfig) -> (Self, [ConnectionId; 2]) {
        Self::new(config).join()
    }

    /// Returns a joined pair whose first packets have sequence numbers from `psn` on.
    pub(super) fn joined_at(config: &TransportConfig, psn: u32) -> (Self, [ConnectionId; 2]) {
        let mut pair = Self::new(config);
        pair.ends.iter_mut().for_each(|end| end.set_first_psn(psn));
        pair.join()
    }

    fn join(mut self) -> (Self, [ConnectionId; 2]) {
        let [a, b] = &mut self.ends;
        let ids = Endpoint::join(self.now, (a, address(0)), (b, address(1))).unwrap();
        (self, [ids.0, ids.1])
    }

    pub(super) fn submit(&mut self, end: usize, id: ConnectionId, token: u64, length: u32) {
        let message = Message { token, opcode: 7, tag: 0, length };
        self.ends[end].submit(self.now, id, message).unwrap();
    }

    /// Passes a packet to an end as if it came from the other.
    pub(super) fn inject(&mut self, to: usize, packet: &Packet, payload_len: u16) -> Verdict {
        let arrival = self.arrival(1 - to, PathId(0), false);
        self.ends[to].handle_packet(self.now, &arrival, packet, payload_len)
    }

    /// Passes the headers of a packet that a switch trimmed to an end as if they came from the other.
    pub(super) fn inject_trimmed(&mut self, to: usize, header: &DataHeader, at: TrimmedAt) {
        let arrival = self.arrival(1 - to, PathId(0), false);
        self.ends[to].handle_trimmed(self.now, &arrival, header, at);
    }

    fn arrival(&self, from: usize, path: PathId, marked: bool) -> Arrival {
        let from = SocketAddr::new(address(from).ip(), 0xc000 + path.0);
        Arrival { from, received_at: self.now, congestion_experienced: marked, hops: 3 }
    }

    /// Checks that the payload after a header is the part that the header names.
    fn check_payload(&mut self, from: usize, transmit: &Transmit) {
        let (Some(connection), Packet::Data(_, Some(header)), Some(payload)) =
            (transmit.connection, &transmit.packet, transmit.payload)
        else {
            assert_eq!(transmit.payload, None, "{transmit:?}");
            return;
        };
        let key = (from, connection, header.id);
        let token = *self.tokens.entry(key).or_insert(payload.token);
        assert_eq!((payload.token, payload.offset), (token, header.offset), "{transmit:?}");
    }

    fn put_on_wire(&mut self, from: usize, transmit: &Transmit) {
        self.sent[from] += 1;
        self.check_payload(from, transmit);
        let len = transmit.payload.map_or(transmit.padding, |payload| payload.len);
        let (path, packet) = (transmit.path, &transmit.packet);
        let on_link = OnLink { now: self.now, from, path, packet, len };
        let fate = (self.rule)(&on_link);
        let delay = match fate {
            Fate::Drop => return,
            Fate::Delay(extra) | Fate::Mark(extra) => self.one_way + extra,
            Fate::Pass | Fate::Twice | Fate::Trim(_) => self.one_way,
        };
        let trimmed = if let Fate::Trim(at) = fate { Some(at) } else { None };
        let packet = trimmed.map_or(*packet, |_| cut(packet, path, len));
        for _ in 0..if fate == Fate::Twice { 2 } else { 1 } {
            let mut arrival = self.arrival(from, transmit.path, matches!(fate, Fate::Mark(_)));
            arrival.received_at = self.now + delay;
            let on_wire = OnWire { to: 1 - from, arrival, packet, payload_len: len, trimmed };
            self.sequence += 1;
            self.wire.insert((self.now + delay, self.sequence), on_wire);
        }
    }

    /// Returns `true` if the end does nothing now.
    pub(super) fn is_paused(&self, end: usize) -> bool {
        self.now < self.paused_until[end]
    }

    /// Lets both ends send all permitted packets, and collects their events.
    fn drain(&mut self) {
        for end in 0..2 {
            if self.is_paused(end) {
                continue;
            }
            loop {
                let wanted = self.ends[end].wants_transmit();
                let Some(transmit) = self.ends[end].poll_transmit(self.now) else { break };
                assert!(wanted, "an endpoint with packets reports it");
                self.put_on_wire(end, &transmit);
            }
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push(event);
            }
        }
    }

    /// Advances to the next arrival or deadline. Returns `false` if there is none at or before `until`.
    pub(super) fn step(&mut self, until: Instant) -> bool {
        self.drain();
        let arrival = self.wire.keys().next().map(|key| key.0);
        let wake = |end: usize| self.paused_until[end].max(self.now);
        let deadlines =
            (0..2).filter_map(|end| Some(self.ends[end].poll_timeout()?.max(wake(end))));
        let inboxes = (0..2).filter(|&end| !self.inbox[end].is_empty()).map(wake);
        let Some(next) = deadlines.chain(inboxes).chain(arrival).min().filter(|&at| at <= until)
        else {
            return false;
        };
        self.now = self.now.max(next);
        while self.wire.first_key_value().is_some_and(|(key, _)| key.0 <= self.now) {
            let (_, on_wire) = self.wire.pop_first().expect("looked just now");
            self.inbox[on_wire.to].push(on_wire);
        }
        for end in 0..2 {
            if !self.is_paused(end) {
                core::mem::take(&mut self.inbox[end]).into_iter().for_each(|it| self.deliver(it));
                self.ends[end].handle_timeout(self.now);
            }
        }
        true
    }

    fn deliver(&mut self, on_wire: OnWire) {
        let OnWire { to, arrival, packet, payload_len, trimmed } = on_wire;
        if let (Some(at), Packet::Data(header, _)) = (trimmed, &packet) {
            self.ends[to].handle_trimmed(self.now, &arrival, header, at);
            return;
        }
        let verdict = self.ends[to].handle_packet(self.now, &arrival, &packet, payload_len);
        let Verdict::Place(placement) = verdict else { return };
        let (connection, psn) = (placement.connection, placement.psn);
        let end = &mut self.ends[to];
        let taken = match (self.owner)(&placement) {
            OwnerAction::Decline => end.decline(connection, psn),
            OwnerAction::Police => end.police(self.now, connection, psn),
            OwnerAction::Place => {
                let key = (connection, placement.message, placement.offset);
                let before = self.placed[to].insert(key, placement.len);
                assert_eq!(before, None, "{key:?} was placed twice");
                end.placed(self.now, connection, psn)
            }
        };
        taken.unwrap();
    }

    /// Runs for `span`.
    pub(super) fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    /// Runs until `done` returns `true`; fails after `limit`.
    pub(super) fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) {
        let until = self.now + limit;
        loop {
            self.drain();
            if done(self) {
                break;
            }
            assert!(self.step(until), "not done after {limit}: {:?}", self.events);
        }
    }

    /// Returns the tokens of the messages of `end` that were acknowledged, in the order of the events.
    pub(super) fn acked_tokens(&self, end: usize) -> Vec<u64> {
        let token = |event: &Event| match event {
            Event::Acked { token, .. } => Some(*token),
            _ => None,
        };
        self.events[end].iter().filter_map(token).collect()
    }

    /// Returns the messages delivered at `end`, as (number, length).
    pub(super) fn delivered(&self, end: usize) -> Vec<(u32, u32)> {
        let message = |event: &Event| match event {
            Event::Delivered { message, length, .. } => Some((*message, *length)),
            _ => None,
        };
        self.events[end].iter().filter_map(message).collect()
    }

    /// Returns the number of bytes placed at `end`.
    pub(super) fn bytes_placed(&self, end: usize) -> u64 {
        self.placed[end].values().map(|&len| u64::from(len)).sum()
    }
}
