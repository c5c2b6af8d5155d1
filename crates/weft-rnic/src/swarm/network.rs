//! Devices, their memory, and the network between them: every path has the same delay unless a rule says
//! otherwise, time moves from one thing that happens to the next.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_transport::{Acknowledged, Arrival, EndpointConfig, LinkId, Secret, TransportConfig};
use weft_units::{Duration, Instant, Seed};
use weft_wire::{Packet, RdmaHeader};

use super::leases::Leases;
use crate::*;

/// What a rule decides about one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Delay(Duration),
    Twice,
    Drop,
}

impl Fate {
    const fn index(self) -> usize {
        match self {
            Self::Pass => 0,
            Self::Delay(_) => 1,
            Self::Twice => 2,
            Self::Drop => 3,
        }
    }
}

/// What a rule may look at.
pub(crate) struct OnLink<'a> {
    pub(crate) from: usize,
    pub(crate) to: IpAddr,
    pub(crate) path: u16,
    #[cfg_attr(not(test), expect(dead_code, reason = "rules of tests look at it"))]
    pub(crate) packet: &'a Packet,
    pub(crate) rdma: Option<&'a RdmaHeader>,
}

pub(crate) type Rule = Box<dyn FnMut(&OnLink<'_>) -> Fate>;

/// What an enemy on the link makes of a datagram from a host.
pub(crate) type Garble = Box<dyn FnMut(usize, &mut Vec<u8>)>;

/// A host's memory: one piece for each owner.
#[derive(Default)]
pub(crate) struct HostMemory {
    pub(crate) bytes: BTreeMap<Owner, Vec<u8>>,
    payload: Vec<u8>,
    pub(crate) held: BTreeMap<Held, Vec<u8>>,
    /// Every write, in order: where and how long.
    pub(crate) writes: Vec<Place>,
    /// Payload is not to be had.
    pub(crate) loses_payload: bool,
}

impl HostMemory {
    pub(crate) fn read(&self, place: &Place) -> &[u8] {
        let from = usize::try_from(place.address).unwrap();
        &self.bytes[&place.owner][from..from + place.len as usize]
    }

    /// What a packet carries.
    pub(crate) fn payload_of(&self, transmit: &Transmit, source: Source<'_>) -> Vec<u8> {
        let payload: Vec<u8> = match source {
            Source::Memory(places) => {
                places.iter().flat_map(|place| self.read(place)).copied().collect()
            }
            Source::Inline(bytes) => bytes.to_vec(),
            Source::Anything => alloc::vec![0xee; transmit.payload_len.into()],
        };
        assert_eq!(payload.len(), usize::from(transmit.payload_len));
        payload
    }

    fn put(&mut self, place: Place, bytes: &[u8]) {
        assert_eq!(bytes.len(), place.len as usize);
        let from = usize::try_from(place.address).unwrap();
        let owner = self.bytes.get_mut(&place.owner).unwrap();
        owner[from..from + bytes.len()].copy_from_slice(bytes);
        self.writes.push(place);
    }

    fn word(&self, place: &Place) -> u64 {
        u64::from_ne_bytes(self.read(place).try_into().unwrap())
    }
}

impl Memory for HostMemory {
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost> {
        if self.loses_payload {
            return Err(PayloadLost);
        }
        let from = usize::from(from);
        let bytes = self.payload[from..from + place.len as usize].to_vec();
        self.put(place, &bytes);
        Ok(())
    }

    fn hold(&mut self, packet: Held) -> Result<(), PayloadLost> {
        assert!(self.held.insert(packet, self.payload.clone()).is_none(), "held twice");
        Ok(())
    }

    fn place_held(&mut self, packet: Held, place: Place, from: u16) {
        let from = usize::from(from);
        let bytes = self.held[&packet][from..from + place.len as usize].to_vec();
        self.put(place, &bytes);
    }

    fn release(&mut self, packet: Held) {
        self.held.remove(&packet).expect("it is held");
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        self.put(place, bytes);
    }

    fn route_header(&mut self, from: SocketAddr, _length: u32) -> [u8; 40] {
        [u8::try_from(from.port() % 251).unwrap(); 40]
    }

    fn fetch_add(&mut self, place: Place, add: u64) -> u64 {
        let before = self.word(&place);
        self.put(place, &before.wrapping_add(add).to_ne_bytes());
        before
    }

    fn compare_swap(&mut self, place: Place, compare: u64, swap: u64) -> u64 {
        let before = self.word(&place);
        if before == compare {
            self.put(place, &swap.to_ne_bytes());
        }
        before
    }
}

/// A host: a device, its memory, and what it was told.
pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) memory: HostMemory,
    pub(crate) events: Vec<Event>,
    /// What it lends.
    pub(crate) leases: Leases,
}

struct OnWire {
    to: usize,
    link: Option<LinkId>,
    arrival: Arrival,
    bytes: Vec<u8>,
    acknowledged: Option<Acknowledged>,
}

/// Hosts on a network.
pub(crate) struct Network {
    pub(crate) hosts: Vec<Host>,
    pub(crate) now: Instant,
    pub(crate) rule: Rule,
    pub(crate) garble: Garble,
    /// Packets by their fate.
    pub(crate) fates: [u64; 4],
    wire: BTreeMap<(Instant, u64), OnWire>,
    sequence: u64,
}

#[cfg(test)]
std::thread_local! {
    /// Whether this thread's networks have links between all hosts.
    pub(crate) static OVER_LINKS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// How a host calls the link to another.
pub(crate) fn link_to(host: usize) -> LinkId {
    LinkId(u32::try_from(host).unwrap())
}

const ONE_WAY: Duration = Duration::from_micros(5);

pub(crate) fn address(host: usize) -> SocketAddr {
    let host = u8::try_from(host + 1).unwrap();
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 4791).into()
}

/// Many paths, small packets, and peers that are given up soon.
pub(crate) fn config() -> TransportConfig {
    TransportConfig {
        mtu: 256,
        paths: 8,
        peer_timeout: Duration::from_millis(20),
        ..TransportConfig::stellar()
    }
}

pub(crate) fn device(seed: u64, transport: TransportConfig) -> Device {
    let config = EndpointConfig {
        transport,
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 1024,
    };
    let seed = Seed(seed);
    Device::new(Limits::default(), config, seed, Secret::repeatable(seed)).unwrap()
}

impl Network {
    pub(crate) fn with(hosts: usize, config: &TransportConfig) -> Self {
        let host = |number| Host {
            device: device(number, config.clone()),
            memory: HostMemory::default(),
            events: Vec::new(),
            leases: Leases::default(),
        };
        #[allow(unused_mut, reason = "tests may link it")]
        let mut network = Self {
            hosts: (0..hosts as u64).map(host).collect(),
            now: Instant::from_nanos(1_000_000_000),
            rule: Box::new(|_| Fate::Pass),
            garble: Box::new(|_, _| ()),
            fates: [0; 4],
            wire: BTreeMap::new(),
            sequence: 0,
        };
        #[cfg(test)]
        if OVER_LINKS.get() {
            network.link();
        }
        network
    }

    /// Joins all hosts by links.
    pub(crate) fn link(&mut self) {
        let hosts = self.hosts.len();
        for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
            let device = &mut self.hosts[from].device;
            device.link_up(self.now, link_to(to));
            device.reach_over(address(to), link_to(to));
        }
    }

    fn put_on_wire(&mut self, from: usize, transmit: &Transmit, payload: &[u8]) {
        let on_link = OnLink {
            from,
            to: transmit.to.ip(),
            path: transmit.path.0,
            packet: &transmit.packet,
            rdma: transmit.rdma.as_ref(),
        };
        // Links lose, repeat and reorder nothing.
        let fate = if transmit.link.is_some() { Fate::Pass } else { (self.rule)(&on_link) };
        self.fates[fate.index()] += 1;
        let delay = match fate {
            Fate::Drop => return,
            Fate::Delay(extra) => ONE_WAY + extra,
            Fate::Pass | Fate::Twice => ONE_WAY,
        };
        let mut bytes = alloc::vec![0; Packet::MAX_LEN + RdmaHeader::MAX_LEN];
        let mut len = transmit.packet.emit(&mut bytes);
        if let Some(header) = &transmit.rdma {
            len += header.emit(&mut bytes[len..]);
        }
        bytes.truncate(len);
        bytes.extend_from_slice(payload);
        (self.garble)(from, &mut bytes);
        // Answers that have no connection go to the port that a packet came from, where hosts listen too.
        let same = |&host: &usize| address(host).ip() == transmit.to.ip();
        let Some(to) = (0..self.hosts.len()).find(same) else { return };
        let source = SocketAddr::new(address(from).ip(), 0xc000 + transmit.path.0);
        for _ in 0..if fate == Fate::Twice { 2 } else { 1 } {
            let arrival = Arrival {
                from: source,
                received_at: self.now + delay,
                congestion_experienced: false,
                hops: 3,
            };
            self.sequence += 1;
            let link = transmit.link.map(|_| link_to(from));
            let (bytes, acknowledged) = (bytes.clone(), transmit.acknowledged);
            let on_wire = OnWire { to, link, arrival, bytes, acknowledged };
            self.wire.insert((self.now + delay, self.sequence), on_wire);
        }
    }

    /// Lets every host send all it may, and collects events.
    pub(crate) fn drain(&mut self) {
        for host in 0..self.hosts.len() {
            self.tell_borrowers(host);
        }
        for host in 0..self.hosts.len() {
            self.reach(host);
            loop {
                let mut sent = None;
                let Host { device, memory, .. } = &mut self.hosts[host];
                device.poll_transmit(self.now, |transmit, source| {
                    sent = Some((*transmit, memory.payload_of(transmit, source)));
                });
                let Some((transmit, payload)) = sent else { break };
                self.put_on_wire(host, &transmit, &payload);
            }
            let Host { device, memory, events, .. } = &mut self.hosts[host];
            while let Some(event) = device.poll_event() {
                if let Event::ReleaseHeld { connection } = event {
                    memory.held.retain(|packet, _| packet.connection != connection);
                }
                events.push(event);
            }
        }
    }

    fn deliver(&mut self, on_wire: OnWire) {
        let OnWire { to, link, arrival, bytes, acknowledged } = on_wire;
        let Ok((packet, rest)) = Packet::parse(&bytes) else { return };
        let (rdma, payload) = if packet.announces_rdma() {
            let Ok((header, payload)) = RdmaHeader::parse(rest) else { return };
            (Some(header), payload)
        } else {
            (None, rest)
        };
        if let Some(link) = link {
            let Host { device, memory, .. } = &mut self.hosts[to];
            memory.payload = payload.to_vec();
            let (packet, rdma) = (&packet, rdma.as_ref());
            let payload_len = u16::try_from(payload.len()).unwrap();
            let came = FromLink { packet, rdma, payload_len, acknowledged };
            return device.handle_link_packet(self.now, link, arrival.from, came, memory);
        }
        self.inject(to, &arrival, &packet, rdma.as_ref(), payload);
    }

    /// Hands a packet to a host.
    pub(crate) fn inject(
        &mut self,
        to: usize,
        arrival: &Arrival,
        packet: &Packet,
        rdma: Option<&RdmaHeader>,
        payload: &[u8],
    ) {
        let Host { device, memory, .. } = &mut self.hosts[to];
        memory.payload = payload.to_vec();
        let len = u16::try_from(payload.len()).unwrap();
        device.handle_packet(self.now, arrival, packet, rdma, len, memory);
    }

    /// Moves to the next thing that happens, if it happens by `until`.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        self.drain();
        let arrival = self.wire.keys().next().map(|key| key.0);
        let deadlines = self.hosts.iter().filter_map(|host| host.device.poll_timeout());
        let Some(next) = deadlines.chain(arrival).min().filter(|&at| at <= until) else {
            return false;
        };
        self.now = self.now.max(next);
        while self.wire.first_key_value().is_some_and(|(key, _)| key.0 <= self.now) {
            let (_, on_wire) = self.wire.pop_first().expect("looked just now");
            self.deliver(on_wire);
        }
        for host in &mut self.hosts {
            host.device.handle_timeout(self.now);
        }
        true
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }
}

/// One end: a queue pair and what it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask for it"))]
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask for it"))]
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePairNumber,
    pub(crate) owner: Owner,
    /// Of all of the owner's memory, with every right, counted from `BASE`.
    pub(crate) key: u32,
}

/// Where the memory of an end begins, as work requests count.
pub(crate) const BASE: u64 = 0x7000_0000;
/// How much it is.
pub(crate) const LENGTH: u64 = 64 * 1024;

pub(crate) fn every_right() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
}

pub(crate) fn request(
    domain: ProtectionDomain,
    cq: CompletionQueue,
    service: Service,
) -> QueuePairRequest {
    QueuePairRequest {
        domain,
        service,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        max_send: 64,
        max_receive: 64,
        max_send_sge: 8,
        max_receive_sge: 8,
        max_inline: 64,
        signal_all: false,
    }
}

impl Network {
    pub(crate) fn modify(&mut self, end: &End, attributes: &Attributes) {
        let now = self.now;
        self.hosts[end.host].device.modify_qp(now, end.qp, attributes).unwrap();
    }

    fn reliable(&self, end: &End) -> bool {
        self.hosts[end.host].device.service(end.qp) == Some(Service::ReliableConnected)
    }

    pub(crate) fn ready_to_receive(
        &mut self,
        end: &End,
        peer: &End,
        tweak: impl Fn(&mut Attributes),
    ) {
        self.modify(
            end,
            &Attributes {
                state: Some(State::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(every_right()),
                ..Attributes::default()
            },
        );
        let reliable = self.reliable(end);
        let mut attributes = Attributes {
            state: Some(State::ReadyToReceive),
            destination: Some(address(peer.host)),
            path_mtu: Some(1024),
            dest_qp: Some(peer.qp.0),
            rq_psn: Some(0xff_fff0),
            max_dest_rd_atomic: reliable.then_some(4),
            min_rnr_timer: reliable.then_some(1),
            ..Attributes::default()
        };
        tweak(&mut attributes);
        self.modify(end, &attributes);
    }

    pub(crate) fn ready_to_send(&mut self, end: &End, tweak: impl Fn(&mut Attributes)) {
        let reliable = self.reliable(end);
        let mut attributes = Attributes {
            state: Some(State::ReadyToSend),
            sq_psn: Some(0xff_fff0),
            timeout: reliable.then_some(8),
            retry_count: reliable.then_some(3),
            rnr_retry: reliable.then_some(7),
            max_rd_atomic: reliable.then_some(4),
            ..Attributes::default()
        };
        tweak(&mut attributes);
        self.modify(end, &attributes);
    }

    pub(crate) fn post(&mut self, end: &End, request: &SendRequest<'_>) {
        let mut sent = None;
        let Host { device, memory, .. } = &mut self.hosts[end.host];
        let posted =
            device.post_send_and_transmit(self.now, end.qp, request, |transmit, source| {
                sent = Some((*transmit, memory.payload_of(transmit, source)));
            });
        posted.unwrap();
        if let Some((transmit, payload)) = sent {
            self.put_on_wire(end.host, &transmit, &payload);
        }
    }
}

impl End {
    /// A piece of its memory.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: BASE + offset, length, lkey: self.key }
    }

    /// A place in its memory, for peers.
    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: BASE + offset, rkey: self.key }
    }
}
