//! Devices, their memory, and the network between them. Every path has the same delay unless a rule changes it; time advances
//! from event to event.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_transport::{Acknowledgement, Arrival, EndpointConfig, LinkId, Secret, TransportConfig};
use weft_units::{Duration, Instant, Seed};
use weft_wire::{Packet, RdmaHeader};

pub(crate) use super::end::{BASE, End, LENGTH, every_right, request};
use super::leases::Leases;
pub(crate) use super::memory::HostMemory;
use crate::*;

/// The decision of a rule for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Delay(Duration),
    Duplicate,
    Drop,
}

impl Fate {
    const fn index(self) -> usize {
        match self {
            Self::Pass => 0,
            Self::Delay(_) => 1,
            Self::Duplicate => 2,
            Self::Drop => 3,
        }
    }
}

/// The packet for which a rule decides.
pub(crate) struct OnLink<'a> {
    pub(crate) from: usize,
    pub(crate) to: IpAddr,
    pub(crate) path: u16,
    #[cfg_attr(not(test), expect(dead_code, reason = "rules of tests look at it"))]
    pub(crate) packet: &'a Packet,
    pub(crate) rdma: Option<&'a RdmaHeader>,
    #[cfg_attr(not(test), expect(dead_code, reason = "rules of tests look at it"))]
    pub(crate) context: Option<Context>,
}

pub(crate) type Rule = Box<dyn FnMut(&OnLink<'_>) -> Fate>;

/// A function that corrupts packets from a host.
pub(crate) type Corruption = Box<dyn FnMut(usize, &mut Vec<u8>)>;

/// A host: a device, its memory, and its events.
pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) memory: HostMemory,
    pub(crate) events: Vec<Event>,
    /// The leases that it has granted.
    pub(crate) leases: Leases,
}

/// A packet in flight.
struct OnWire {
    to: usize,
    link: Option<LinkId>,
    arrival: Arrival,
    bytes: Vec<u8>,
    acknowledged: Option<Acknowledgement>,
}

/// Hosts on a network.
pub(crate) struct Network {
    pub(crate) hosts: Vec<Host>,
    pub(crate) now: Instant,
    pub(crate) rule: Rule,
    pub(crate) corrupt: Corruption,
    /// Number of packets by fate.
    pub(crate) fates: [u64; 4],
    /// The way in which hosts use each other's leases.
    pub(crate) reach: Reach,
    wire: BTreeMap<(Instant, u64), OnWire>,
    sequence: u64,
}

#[cfg(test)]
std::thread_local! {
    /// `true` if this thread's networks have links between all hosts.
    pub(crate) static OVER_LINKS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Returns the id of the link to a host.
pub(crate) fn link_to(host: usize) -> LinkId {
    LinkId(u32::try_from(host).unwrap())
}

/// One-way delay of every path.
const ONE_WAY: Duration = Duration::from_micros(5);

pub(crate) fn address(host: usize) -> SocketAddr {
    let host = u8::try_from(host + 1).unwrap();
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 4791).into()
}

/// Returns a configuration with many paths, small packets and short timeouts.
pub(crate) fn config() -> TransportConfig {
    TransportConfig {
        mtu: 256,
        paths: 8,
        peer_timeout: Duration::from_millis(20),
        ..TransportConfig::stellar()
    }
}

pub(crate) fn device(seed: u64, transport: TransportConfig, limits: Limits) -> Device {
    let config = EndpointConfig {
        transport,
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 1024,
    };
    let seed = Seed(seed);
    Device::new(limits, config, seed, Secret::from_seed(seed)).unwrap()
}

impl Network {
    pub(crate) fn with(hosts: usize, config: &TransportConfig) -> Self {
        let host = |number| Host {
            device: device(number, config.clone(), Limits::default()),
            memory: HostMemory::default(),
            events: Vec::new(),
            leases: Leases::default(),
        };
        #[allow(unused_mut, reason = "tests may link it")]
        let mut network = Self {
            hosts: (0..hosts as u64).map(host).collect(),
            now: Instant::from_nanos(1_000_000_000),
            rule: Box::new(|_| Fate::Pass),
            corrupt: Box::new(|_, _| ()),
            fates: [0; 4],
            reach: Reach::SystemCall,
            wire: BTreeMap::new(),
            sequence: 0,
        };
        #[cfg(test)]
        if OVER_LINKS.get() {
            network.link();
        }
        network
    }

    /// Adds links between all hosts.
    pub(crate) fn link(&mut self) {
        let hosts = self.hosts.len();
        for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
            let device = &mut self.hosts[from].device;
            device.link_up(self.now, link_to(to));
            device.route_over(address(to), link_to(to));
        }
    }

    /// Sends a packet, as the rule decides.
    pub(super) fn put_on_wire(&mut self, from: usize, transmit: &Transmit, payload: &[u8]) {
        let on_link = OnLink {
            from,
            to: transmit.to.ip(),
            path: transmit.path.0,
            packet: &transmit.packet,
            rdma: transmit.rdma.as_ref(),
            context: transmit.context,
        };
        // Links have no loss, duplication or reordering.
        let fate = if transmit.link.is_some() { Fate::Pass } else { (self.rule)(&on_link) };
        self.fates[fate.index()] += 1;
        let delay = match fate {
            Fate::Drop => return,
            Fate::Delay(extra) => ONE_WAY + extra,
            Fate::Pass | Fate::Duplicate => ONE_WAY,
        };
        let mut bytes = alloc::vec![0; Packet::MAX_LEN + RdmaHeader::MAX_LEN];
        let mut len = transmit.packet.emit(&mut bytes);
        if let Some(header) = &transmit.rdma {
            len += header.emit(&mut bytes[len..]);
        }
        bytes.truncate(len);
        bytes.extend_from_slice(payload);
        (self.corrupt)(from, &mut bytes);
        // Replies without a connection go to the source port of a packet, where hosts listen too.
        let is_target = |&host: &usize| address(host).ip() == transmit.to.ip();
        let Some(to) = (0..self.hosts.len()).find(is_target) else { return };
        let source = SocketAddr::new(address(from).ip(), 0xc000 + transmit.path.0);
        for _ in 0..if fate == Fate::Duplicate { 2 } else { 1 } {
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

    /// Has every host send all its packets, and collects events.
    pub(crate) fn drain(&mut self) {
        for host in 0..self.hosts.len() {
            self.notify_borrowers(host);
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
            let received = ReceivedPacket { packet, rdma, payload_len, acknowledged };
            return device.handle_link_packet(self.now, link, arrival.from, received, memory);
        }
        self.inject(to, &arrival, &packet, rdma.as_ref(), payload);
    }

    /// Delivers a packet to a host.
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
        let payload_len = u16::try_from(payload.len()).unwrap();
        let received = ReceivedPacket { packet, rdma, payload_len, acknowledged: None };
        device.handle_packet(self.now, arrival, received, memory);
    }

    /// Advances to the next event, unless it is after `until`; returns `true` if there was one.
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

    /// Advances time by `span` and handles all events until then.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }
}
