//! Two hosts with a switch each, and tenants whose queues are vectors.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use weft_transport::{Admission, Arrival, ConnectionId, Secret, TransportConfig};
use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{MacAddr, Packet, SetupKind, VirtioNetHeader};

use crate::gateway::forward;
use crate::{
    InClear, Inbound, Place, PortConfig, PortId, Reading, Slot, Staging, Switch, SwitchConfig,
    TenantFrame, Tenants, Token, Turn, Vni,
};

pub(super) const RED: Vni = Vni::new(7).unwrap();

pub(super) fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

pub(super) fn host(end: usize) -> SocketAddr {
    let last = u8::try_from(end + 1).unwrap();
    (Ipv4Addr::new(10, 0, 0, last), 4789).into()
}

/// Returns a frame that carries `number`.
pub(super) fn frame(from: MacAddr, to: MacAddr, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; VirtioNetHeader::LEN];
    bytes.extend(to.0);
    bytes.extend(from.0);
    bytes.extend([0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    let from = bytes.len();
    bytes
        .extend((from..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add(number as u8)));
    bytes
}

/// Returns the number in a frame.
pub(super) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[26..30].try_into().unwrap())
}

/// The tenants of a host.
#[derive(Default)]
pub(super) struct Queues {
    next: u32,
    pub(super) sent: BTreeMap<(PortId, Token), Vec<u8>>,
    claimed: BTreeMap<(PortId, Slot), (Staging, Vec<u8>)>,
    pub(super) seen: BTreeMap<PortId, Vec<Vec<u8>>>,
    /// Number of buffers of each tenant; unlimited if absent.
    pub(super) room: BTreeMap<PortId, usize>,
    pub(super) reads_again: usize,
    /// The guest, which is called after each write to its memory.
    pub(super) guest: Option<Guest>,
}

/// A guest that reads and changes its memory.
pub(super) type Guest = Box<dyn FnMut(&mut [u8])>;

impl Queues {
    pub(super) fn send(&mut self, port: PortId, frame: Vec<u8>) -> Token {
        self.next += 1;
        let token = Token(self.next);
        self.sent.insert((port, token), frame);
        token
    }

    pub(super) fn holds_nothing(&self) -> bool {
        self.sent.is_empty() && self.claimed.is_empty()
    }

    pub(super) fn numbers(&self, port: PortId) -> Vec<u32> {
        self.seen.get(&port).into_iter().flatten().map(|frame| number(frame)).collect()
    }
}

impl Tenants for Queues {
    fn read(&mut self, port: PortId, token: Token, offset: u32, out: &mut [u8], reading: Reading) {
        self.reads_again += usize::from(reading == Reading::Retransmission);
        let from = offset as usize;
        out.copy_from_slice(&self.sent[&(port, token)][from..from + out.len()]);
    }

    fn release(&mut self, port: PortId, token: Token) {
        self.sent.remove(&(port, token)).expect("released twice, or never sent");
    }

    fn claim(
        &mut self,
        port: PortId,
        len: u32,
        turn: Turn,
        staging: Staging,
        _: &[u8],
    ) -> Option<Slot> {
        let held = self.claimed.keys().filter(|key| key.0 == port).count();
        let held = held + usize::from(turn == Turn::OutOfOrder);
        if self.room.get(&port).is_some_and(|&room| held >= room) {
            return None;
        }
        self.next += 1;
        self.claimed.insert((port, Slot(self.next)), (staging, vec![0xee; len as usize]));
        Some(Slot(self.next))
    }

    fn place(&mut self, port: PortId, slot: Slot, offset: u32, bytes: &[u8]) {
        let (staging, buffer) = self.claimed.get_mut(&(port, slot)).expect("claimed");
        buffer[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        if let (Staging::InPlace, Some(guest)) = (staging, &mut self.guest) {
            guest(buffer);
        }
    }

    fn peek(&mut self, port: PortId, slot: Slot, out: &mut [u8]) -> usize {
        let (_, buffer) = &self.claimed[&(port, slot)];
        let len = buffer.len().min(out.len());
        out[..len].copy_from_slice(&buffer[..len]);
        len
    }

    fn complete(&mut self, port: PortId, slot: Slot) {
        let (_, frame) = self.claimed.remove(&(port, slot)).expect("claimed");
        self.seen.entry(port).or_default().push(frame);
    }

    fn cancel(&mut self, port: PortId, slot: Slot) {
        self.claimed.remove(&(port, slot)).expect("claimed");
    }
}

/// The link's decision on a packet.
pub(super) enum Fate {
    After(Duration),
    Lost,
}

enum OnWire {
    Weft(Vni, Packet, Vec<u8>),
    Plain(Vni, Vec<u8>),
    /// A frame under the keys of the receiver's connection.
    Sealed(ConnectionId, Vni, Vec<u8>),
}

pub(super) struct Host {
    pub(super) switch: Switch,
    pub(super) tenants: Queues,
}

/// A function that decides the fate of a packet on a path.
pub(super) type Fates = Box<dyn FnMut(&mut Rng, u16) -> Fate>;

/// Hosts on a link.
pub(super) struct Hosts {
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    pub(super) fate: Fates,
    /// `true` if all hosts but the first speak only VXLAN.
    pub(super) only_plain: bool,
    /// A host that speaks only VXLAN.
    pub(super) plain_host: Option<usize>,
    /// `true` if the link marks every packet (CE).
    pub(super) marks: bool,
    rng: Rng,
    wire: BTreeMap<(Instant, u64), (usize, usize, OnWire)>,
    sequence: u64,
    pub(super) plain_frames: usize,
    pub(super) sealed_frames: usize,
    /// The accepting host's ids of connections, by the requesting host and its id.
    accepted: BTreeMap<(usize, ConnectionId), ConnectionId>,
}

/// The port of each host's tenant in one network, with address 1 at the first host and 2 at the second.
pub(super) const PORT: PortId = PortId(1);

impl Hosts {
    pub(super) fn new() -> Self {
        Self::with(&TransportConfig::bifrost())
    }

    pub(super) fn with(transport: &TransportConfig) -> Self {
        let hosts = (0..2).map(|end| Self::host(transport, end)).collect();
        Self {
            now: Instant::from_nanos(1_000_000_000),
            hosts,
            fate: Box::new(|_, _| Fate::After(Duration::from_micros(20))),
            only_plain: false,
            plain_host: None,
            marks: false,
            rng: Seed(5).rng(),
            wire: BTreeMap::new(),
            sequence: 0,
            plain_frames: 0,
            sealed_frames: 0,
            accepted: BTreeMap::new(),
        }
    }

    fn host(transport: &TransportConfig, end: usize) -> Host {
        let seed = Seed(end as u64);
        let config = SwitchConfig { waiting_frames: 4096, ..SwitchConfig::new(transport.clone()) };
        let mut switch = Switch::new(config, seed, Secret::from_seed(seed)).unwrap();
        let own = mac(u8::try_from(end + 1).unwrap());
        switch.set_port(PORT, PortConfig { vni: RED, addresses: vec![own] });
        switch.set_peers(RED, vec![host(1 - end)]);
        switch.table(RED).set_mac(own, Some(Place::Port(PORT)));
        let other = mac(u8::try_from(2 - end).unwrap());
        switch.table(RED).set_mac(other, Some(Place::Peer(host(1 - end))));
        Host { switch, tenants: Queues::default() }
    }

    /// Sets a host's policy on unencrypted frames.
    pub(super) fn encrypt(&mut self, end: usize, in_clear: InClear) {
        self.hosts[end].switch.config.in_clear = in_clear;
    }

    fn encrypts(&self, end: usize) -> bool {
        self.hosts[end].switch.config.in_clear != InClear::Any
    }

    /// Adds a host whose tenant is the second host's machine, which moves there.
    pub(super) fn add_third(&mut self) {
        let mut third = Self::host(&TransportConfig::bifrost(), 1);
        third.switch.set_peers(RED, vec![host(0)]);
        self.hosts.push(third);
        self.hosts[0].switch.set_peers(RED, vec![host(1), host(2)]);
    }

    pub(super) fn send(&mut self, end: usize, port: PortId, frame: Vec<u8>) {
        let Host { switch, tenants } = &mut self.hosts[end];
        let token = tenants.send(port, frame.clone());
        let head = &frame[..frame.len().min(300)];
        let sent = TenantFrame { port, token, len: frame.len() as u32 };
        switch.handle_frame(self.now, sent, head, tenants);
    }

    /// Sends frames `numbers` from the tenant of one end to that of the other.
    pub(super) fn send_numbers(&mut self, end: usize, numbers: core::ops::Range<u32>, len: usize) {
        let own = mac(u8::try_from(end + 1).unwrap());
        let other = mac(u8::try_from(2 - end).unwrap());
        for number in numbers {
            self.send(end, PORT, frame(own, other, number, len));
        }
    }

    fn put_on_wire(&mut self, from: usize, to: usize, path: u16, content: OnWire) {
        if let Fate::After(delay) = (self.fate)(&mut self.rng, path) {
            self.sequence += 1;
            self.wire.insert((self.now + delay, self.sequence), (from, to, content));
        }
    }

    fn end_of(to: SocketAddr) -> usize {
        (0..3).find(|&end| host(end) == to).expect("a host of the test")
    }

    fn drain(&mut self) {
        for end in 0..self.hosts.len() {
            let Host { switch, tenants } = &mut self.hosts[end];
            switch.handle_timeout(self.now, tenants);
            let mut leaving = VecDeque::new();
            let mut packet = Packet::default();
            switch.poll_burst(self.now, usize::MAX, &mut packet, |leaves| {
                let mut payload = vec![0; usize::from(leaves.payload_len())];
                leaves.read(tenants, &mut payload);
                let content = OnWire::Weft(leaves.vni, *leaves.packet, payload);
                leaving.push_back((leaves.departure.to, leaves.departure.path.0, content));
            });
            while let Some(plain) = switch.poll_plain() {
                let mut frame = vec![0; plain.len as usize];
                tenants.read(plain.port, plain.token, 0, &mut frame, Reading::First);
                if plain.is_last {
                    tenants.release(plain.port, plain.token);
                }
                let mut ethernet = frame.split_off(VirtioNetHeader::LEN);
                if let Some(next) = plain.next {
                    forward(&mut ethernet, next);
                }
                if let Some(keys) = plain.under {
                    self.sealed_frames += 1;
                    let peer_connection = self.accepted[&(end, keys.connection)];
                    let content = OnWire::Sealed(peer_connection, plain.vni, ethernet);
                    leaving.push_back((plain.to[0], 0, content));
                    continue;
                }
                self.plain_frames += 1;
                for to in plain.to {
                    leaving.push_back((to, 0, OnWire::Plain(plain.vni, ethernet.clone())));
                }
            }
            for (to, path, content) in leaving {
                self.put_on_wire(end, Self::end_of(to), path, content);
            }
        }
    }

    fn arrive(&mut self, from: usize, to: usize, content: OnWire) {
        let both_encrypt = self.encrypts(from) && self.encrypts(to);
        let Host { switch, tenants } = &mut self.hosts[to];
        match content {
            OnWire::Sealed(connection, vni, ethernet) => {
                switch.handle_sealed(self.now, connection, vni, &ethernet, tenants);
            }
            OnWire::Plain(vni, ethernet) => {
                switch.handle_plain(self.now, host(from), vni, &ethernet, tenants);
            }
            OnWire::Weft(..) if self.only_plain && to != 0 || self.plain_host == Some(to) => {}
            OnWire::Weft(vni, packet, payload) => {
                let arrival = Arrival {
                    from: host(from),
                    received_at: self.now,
                    congestion_experienced: self.marks,
                    hops: 2,
                };
                let inbound =
                    Inbound { arrival: &arrival, vni, packet: &packet, payload: &payload };
                let Packet::Setup(header) = &packet else {
                    return switch.handle_packet(self.now, &inbound, tenants);
                };
                if header.kind == SetupKind::Accept {
                    let ids = [header.destination_cid, header.local_cid].map(ConnectionId);
                    self.accepted.insert((to, ids[0]), ids[1]);
                }
                if !switch.redirect_packet(&inbound) {
                    let admission = Admission::Admit;
                    switch.handle_admission(self.now, &arrival, header, admission, both_encrypt);
                }
            }
        }
    }

    /// Runs until `done` returns `true`, at most for `limit`. Returns `true` if `done` did.
    pub(super) fn run(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + limit;
        loop {
            self.drain();
            if done(self) {
                return true;
            }
            let arrival = self.wire.keys().next().map(|key| key.0);
            let due = self.hosts.iter().filter_map(|host| host.switch.poll_timeout());
            let Some(next) = due.chain(arrival).min().filter(|&at| at <= until) else {
                self.now = until;
                return done(self);
            };
            self.now = self.now.max(next);
            while self.wire.first_key_value().is_some_and(|(key, _)| key.0 <= self.now) {
                let (_, (from, to, content)) = self.wire.pop_first().expect("checked just now");
                self.arrive(from, to, content);
            }
        }
    }

    /// Returns the numbers of the frames that the tenant of an end has seen.
    pub(super) fn seen(&self, end: usize) -> Vec<u32> {
        self.hosts[end].tenants.numbers(PORT)
    }
}
