//! Hosts whose speakers are all joined to each other in memory.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::{IpAddr, Ipv4Addr};

use weft_units::{Duration, Instant, Seed};
use weft_wire::MacAddr;

use crate::{Action, Change, NeighbourConfig, Speaker, SpeakerConfig, State};

/// The number of the network of all tests.
pub(super) const VNI: u32 = 100;

/// A host: its speaker, and the entries that follow from its changes.
pub(super) struct Host {
    pub(super) speaker: Speaker,
    pub(super) ports: BTreeMap<(u32, MacAddr), BTreeSet<IpAddr>>,
    pub(super) places: BTreeMap<MacAddr, IpAddr>,
    pub(super) addresses: BTreeMap<IpAddr, MacAddr>,
    pub(super) vteps: BTreeMap<IpAddr, bool>,
}

/// A link between two hosts: the bytes under way in each direction; `None` while it has no connection.
type Link = Option<[VecDeque<u8>; 2]>;

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    /// Links by the indices of their hosts, the lower one first.
    links: BTreeMap<(usize, usize), Link>,
    /// Hosts that want to connect: from, to.
    wanted: BTreeSet<(usize, usize)>,
    /// Links that refuse connections.
    pub(super) cut: BTreeSet<(usize, usize)>,
}

pub(super) fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 1, 0, u8::try_from(host + 1).unwrap()).into()
}

pub(super) fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 7, number])
}

pub(super) fn machine_address(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, number).into()
}

fn index(address: IpAddr) -> usize {
    let IpAddr::V4(v4) = address else { panic!("{address}") };
    usize::from(v4.octets()[3]) - 1
}

const fn link(a: usize, b: usize) -> (usize, usize) {
    if a < b { (a, b) } else { (b, a) }
}

impl World {
    pub(super) fn new(hosts: usize) -> Self {
        let host = |own: usize| {
            let IpAddr::V4(router_id) = address(own) else { unreachable!() };
            let config = SpeakerConfig { asn: 65_000, router_id, vtep: address(own) };
            let mut speaker = Speaker::new(config, Seed(own as u64));
            let others = (0..hosts).filter(|&other| other != own);
            let neighbours: Vec<_> = others.map(|other| neighbour(address(other))).collect();
            speaker.set_neighbours(Instant::EPOCH, &neighbours);
            speaker.set_networks(BTreeMap::from([(VNI, BTreeSet::new())]));
            Host {
                speaker,
                ports: BTreeMap::new(),
                places: BTreeMap::new(),
                addresses: BTreeMap::new(),
                vteps: BTreeMap::new(),
            }
        };
        let links = (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| ((a, b), None)));
        Self {
            now: Instant::EPOCH,
            hosts: (0..hosts).map(host).collect(),
            links: links.collect(),
            wanted: BTreeSet::new(),
            cut: BTreeSet::new(),
        }
    }

    /// Returns hosts that have exchanged everything.
    pub(super) fn joined(hosts: usize) -> Self {
        let mut world = Self::new(hosts);
        world.run();
        for host in &world.hosts {
            let states: Vec<_> = host.speaker.neighbours().map(|it| it.state).collect();
            assert_eq!(states, vec![State::Established; hosts - 1]);
        }
        world
    }

    /// Sets whether a machine is at a port of a host.
    pub(super) fn set_port(&mut self, host: usize, number: u8, is_there: bool) {
        let Host { speaker, ports, .. } = &mut self.hosts[host];
        match is_there {
            true => ports.insert((VNI, mac(number)), BTreeSet::from([machine_address(number)])),
            false => ports.remove(&(VNI, mac(number))),
        };
        speaker.set_machines(ports.clone());
    }

    pub(super) fn send_frame(&mut self, host: usize, number: u8) {
        self.hosts[host].speaker.on_frame(self.now, VNI, mac(number));
    }

    /// Ends the connection of two hosts.
    pub(super) fn disconnect(&mut self, a: usize, b: usize) {
        if self.links.get_mut(&link(a, b)).and_then(Option::take).is_some() {
            let now = self.now;
            self.hosts[a].speaker.on_disconnected(now, address(b), "reset");
            self.hosts[b].speaker.on_disconnected(now, address(a), "reset");
        }
    }

    /// Carries out the requests of a host, and takes its bytes and changes.
    pub(super) fn service(&mut self, host: usize) {
        while let Some(action) = self.hosts[host].speaker.poll_action() {
            match action {
                Action::Connect(to) => {
                    self.wanted.insert((host, index(to)));
                }
                Action::Close(to, last) => {
                    self.wanted.remove(&(host, index(to)));
                    self.close(host, index(to), &last);
                }
            }
        }
        for other in (0..self.hosts.len()).filter(|&other| other != host) {
            let Some(Some(bytes)) = self.links.get_mut(&link(host, other)) else { continue };
            let speaker = &mut self.hosts[host].speaker;
            let output = speaker.output(address(other));
            bytes[usize::from(host > other)].extend(output);
            let len = output.len();
            speaker.consume(address(other), len);
        }
        let Host { speaker, places, addresses, vteps, .. } = &mut self.hosts[host];
        while let Some(change) = speaker.poll_change() {
            match change {
                Change::Machine { mac, at: Some(at), .. } => drop(places.insert(mac, at)),
                Change::Machine { mac, at: None, .. } => drop(places.remove(&mac)),
                Change::Address { address, mac: Some(mac), .. } => {
                    addresses.insert(address, mac);
                }
                Change::Address { address, mac: None, .. } => drop(addresses.remove(&address)),
                Change::Vteps { vteps: now, .. } => *vteps = now,
            }
        }
    }

    /// Delivers the last bytes of a connection that a host closes.
    fn close(&mut self, from: usize, to: usize, last: &[u8]) {
        let Some(mut bytes) = self.links.get_mut(&link(from, to)).and_then(Option::take) else {
            return;
        };
        let way = &mut bytes[usize::from(from > to)];
        way.extend(last);
        let all: Vec<u8> = way.drain(..).collect();
        let now = self.now;
        let speaker = &mut self.hosts[to].speaker;
        speaker.handle_bytes(now, address(from), &all);
        speaker.on_disconnected(now, address(from), "closed");
    }

    /// Joins hosts that both want to be, or refuses them.
    fn connect(&mut self) {
        for (a, b) in self.wanted.clone() {
            if self.cut.contains(&link(a, b)) {
                self.wanted.remove(&(a, b));
                self.hosts[a].speaker.on_disconnected(self.now, address(b), "refused");
            } else if a < b && self.wanted.contains(&(b, a)) {
                self.wanted.remove(&(a, b));
                self.wanted.remove(&(b, a));
                self.links.insert((a, b), Some(Default::default()));
                self.hosts[a].speaker.on_connected(self.now, address(b));
                self.hosts[b].speaker.on_connected(self.now, address(a));
            }
        }
    }

    /// Delivers at most `limit` bytes of one direction of a link. Returns `true` if there were any.
    pub(super) fn deliver(&mut self, from: usize, to: usize, limit: usize) -> bool {
        let Some(Some(bytes)) = self.links.get_mut(&link(from, to)) else { return false };
        let way = &mut bytes[usize::from(from > to)];
        let piece: Vec<u8> = way.drain(..limit.min(way.len())).collect();
        self.hosts[to].speaker.handle_bytes(self.now, address(from), &piece);
        !piece.is_empty()
    }

    /// Lets time pass.
    pub(super) fn sleep(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            let due = self.hosts.iter().filter_map(|it| it.speaker.poll_timeout()).min();
            self.now = due.unwrap_or(until).clamp(self.now, until);
            for host in 0..self.hosts.len() {
                let now = self.now;
                self.hosts[host].speaker.handle_timeout(now);
            }
            self.exchange();
            if self.now >= until {
                return;
            }
        }
    }

    /// Exchanges bytes until none are left.
    pub(super) fn exchange(&mut self) {
        let hosts = self.hosts.len();
        loop {
            (0..hosts).for_each(|host| self.service(host));
            self.connect();
            let mut any = false;
            for from in 0..hosts {
                self.service(from);
                for to in (0..hosts).filter(|&to| to != from) {
                    any |= self.deliver(from, to, usize::MAX);
                }
            }
            if !any {
                return (0..hosts).for_each(|host| self.service(host));
            }
        }
    }

    /// Lets time pass until all sessions are established. Both ends of a session connect here, so that their attempts have to
    /// meet.
    pub(super) fn run(&mut self) {
        let is_established = |host: &Host| {
            host.speaker.neighbours().all(|neighbour| neighbour.state == State::Established)
        };
        for _ in 0..100 {
            self.sleep(Duration::from_secs(100));
            if self.hosts.iter().all(is_established) {
                return;
            }
        }
        panic!("no session within three hours");
    }
}

pub(super) fn neighbour(address: IpAddr) -> NeighbourConfig {
    let hold_time = Duration::from_secs(90);
    NeighbourConfig { address, asn: 65_000, hold_time, max_routes: 1_000 }
}
