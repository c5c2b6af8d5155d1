//! Hosts with several threads, a switch each: a packet that arrives at any thread reaches the thread that it
//! belongs to, and no connection has state at two threads.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::path::{self, PathId};
use weft_transport::{Arrival, Secret, ThreadBits, TransportConfig};
use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{MacAddr, Packet, SetupKind, VirtioNetHeader};

use super::hosts::{Host, Queues, RED, frame, host};
use crate::{
    DropCause, Elsewhere, Handover, Inbound, Place, PortConfig, PortId, Reading, Switch,
    SwitchConfig, TenantFrame, Tenants, Vni,
};

const BLUE: Vni = Vni::new(8).unwrap();

/// The kernel's choice of a thread for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steering {
    /// The thread that the connection's id names, or a random one if there is no id.
    ByConnection,
    /// A random thread.
    ByChance,
}

/// The name of a port in the tests: host, network, and index there.
type Name = (usize, Vni, u8);

/// Number of ports of each host and network.
const PORTS: u8 = 3;

fn address(name: Name) -> MacAddr {
    // The addresses are the same in both networks.
    MacAddr([2, 0, 0, 0, u8::try_from(name.0).unwrap(), name.2])
}

fn port(name: Name) -> PortId {
    PortId(u32::from(name.2) + if name.1 == RED { 0 } else { 100 })
}

fn names() -> impl Iterator<Item = Name> {
    (0..2).flat_map(|host| {
        [RED, BLUE].into_iter().flat_map(move |vni| (0..PORTS).map(move |at| (host, vni, at)))
    })
}

enum OnWire {
    Weft(Vni, Packet, Vec<u8>),
    Plain(Vni, Vec<u8>),
}

/// Two hosts of several threads.
struct Threads {
    now: Instant,
    rng: Rng,
    steering: Steering,
    /// One packet in `one_in` is lost; none if zero.
    one_in: u64,
    threads: [Vec<Host>; 2],
    /// A path that is dead in both directions, and the number of packets that each thread of the first host
    /// sent on it.
    dead: Option<PathId>,
    sent_by_dead: Vec<u32>,
    /// `true` if threads notify each other of paths.
    notifies: bool,
    /// The thread that has each port.
    owner: BTreeMap<Name, usize>,
    wire: BTreeMap<(Instant, u64), (usize, usize, OnWire)>,
    sequence: u64,
}

impl Threads {
    fn new(seed: u64, counts: [u8; 2], steering: Steering) -> Self {
        Self::over(&TransportConfig::bifrost(), seed, counts, steering)
    }

    fn over(transport: &TransportConfig, seed: u64, counts: [u8; 2], steering: Steering) -> Self {
        let mut rng = Seed(seed).child("threads", 0).rng();
        let threads = [0, 1].map(|end| {
            (0..counts[end])
                .map(|thread| Self::thread(transport, end, thread, counts[end]))
                .collect()
        });
        let owner: BTreeMap<Name, usize> =
            names().map(|name| (name, rng.below(counts[name.0].into()) as usize)).collect();
        let mut all = Self {
            now: Instant::from_nanos(1_000_000_000),
            rng,
            steering,
            one_in: 0,
            dead: None,
            sent_by_dead: vec![0; counts[0].into()],
            notifies: true,
            threads,
            owner,
            wire: BTreeMap::new(),
            sequence: 0,
        };
        names().for_each(|name| all.add(name));
        all
    }

    fn thread(transport: &TransportConfig, end: usize, thread: u8, threads: u8) -> Host {
        let seed = Seed(u64::from(thread) * 2 + end as u64);
        let config = SwitchConfig {
            thread_id: thread,
            threads,
            waiting_frames: 4096,
            ..SwitchConfig::new(transport.clone())
        };
        let mut switch = Switch::new(config, seed, Secret::from_seed(seed)).unwrap();
        for vni in [RED, BLUE] {
            switch.set_peers(vni, vec![host(1 - end)]);
        }
        Host { switch, tenants: Queues::default() }
    }

    /// Sets the place of a port at every thread of every host.
    fn add(&mut self, name: Name) {
        let (end, vni, _) = name;
        for (at, own) in self.threads[end].iter_mut().enumerate() {
            let address = address(name);
            if at == self.owner[&name] {
                own.switch.set_port(port(name), PortConfig { vni, addresses: vec![address] });
            } else {
                let thread = u8::try_from(self.owner[&name]).unwrap();
                let elsewhere = Elsewhere { thread, vni, address };
                own.switch.set_elsewhere(port(name), Some(elsewhere));
            }
            own.switch.table(vni).set_mac(address, Some(Place::Port(port(name))));
        }
        for other in &mut self.threads[1 - end] {
            let place = Place::Peer(host(end));
            other.switch.table(vni).set_mac(address(name), Some(place));
        }
    }

    fn own(&self, name: Name) -> &Host {
        &self.threads[name.0][self.owner[&name]]
    }

    fn seen(&self, name: Name) -> Vec<u32> {
        self.own(name).tenants.numbers(port(name))
    }

    fn send(&mut self, from: Name, to: MacAddr, number: u32) {
        let frame = frame(address(from), to, number, 100);
        let Host { switch, tenants } = &mut self.threads[from.0][self.owner[&from]];
        let token = tenants.send(port(from), frame.clone());
        let sent = TenantFrame { port: port(from), token, len: 100 };
        switch.handle_frame(self.now, sent, &frame, tenants);
    }

    fn drain(&mut self, end: usize) {
        let mut leaving = VecDeque::new();
        for at in 0..self.threads[end].len() {
            let Host { switch, tenants } = &mut self.threads[end][at];
            switch.handle_timeout(self.now, tenants);
            let mut packet = Packet::default();
            switch.poll_burst(self.now, usize::MAX, &mut packet, |leaves| {
                let mut payload = vec![0; usize::from(leaves.payload_len())];
                leaves.read(tenants, &mut payload);
                if self.dead != Some(leaves.departure.path) {
                    leaving.push_back(OnWire::Weft(leaves.vni, *leaves.packet, payload));
                } else if end == 0 && leaves.payload_len() > 0 {
                    self.sent_by_dead[at] += 1;
                }
            });
            while let Some(plain) = switch.poll_plain() {
                let mut frame = vec![0; plain.len as usize];
                tenants.read(plain.port, plain.token, 0, &mut frame, Reading::First);
                tenants.release(plain.port, plain.token);
                let ethernet = frame.split_off(VirtioNetHeader::LEN);
                leaving.push_back(OnWire::Plain(plain.vni, ethernet));
            }
        }
        let mut handed = Vec::new();
        for (at, own) in self.threads[end].iter_mut().enumerate() {
            while let Some((thread, handover)) = own.switch.poll_handover() {
                assert_ne!(usize::from(thread), at, "{handover:?}");
                if matches!(handover, Handover::Path(_)) && !self.notifies {
                    continue;
                }
                handed.push((usize::from(thread), handover));
            }
        }
        for (thread, handover) in handed {
            let Host { switch, tenants } = &mut self.threads[end][thread];
            switch.handle_handover(self.now, handover, tenants);
            assert!(switch.poll_handover().is_none(), "it was handed over twice");
        }
        for content in leaving {
            let lost = self.one_in > 0
                && matches!(content, OnWire::Weft(..))
                && self.rng.below(self.one_in) == 0;
            if !lost {
                self.sequence += 1;
                let delay = Duration::from_nanos(20_000 + self.rng.below(50_000));
                self.wire.insert((self.now + delay, self.sequence), (end, 1 - end, content));
            }
        }
    }

    fn arrive(&mut self, from: usize, to: usize, content: OnWire) {
        let count = self.threads[to].len() as u64;
        let any = self.rng.below(count) as usize;
        let at = match (&content, self.steering) {
            (OnWire::Weft(_, packet, _), Steering::ByConnection) => {
                let cid = match packet {
                    Packet::Data(header, _) => header.destination_cid,
                    Packet::Ack(header) => header.destination_cid,
                    Packet::Setup(header) => header.destination_cid,
                };
                let named = ThreadBits::of(count as u8).thread_of(cid).into();
                if cid == 0 { any } else { named }
            }
            _ => any,
        };
        let Host { switch, tenants } = &mut self.threads[to][at];
        match content {
            OnWire::Plain(vni, ethernet) => {
                switch.handle_plain(self.now, host(from), vni, &ethernet, tenants);
            }
            OnWire::Weft(vni, packet, payload) => {
                let arrival = arrival(self.now, host(from));
                let inbound =
                    Inbound { arrival: &arrival, vni, packet: &packet, payload: &payload };
                switch.handle_packet(self.now, &inbound, tenants);
            }
        }
    }

    fn run(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + limit;
        loop {
            (0..2).for_each(|end| self.drain(end));
            // Work that was handed over may give other threads something to send.
            (0..2).for_each(|end| self.drain(end));
            if done(self) {
                return true;
            }
            let due = self.threads.iter().flatten().filter_map(|own| own.switch.poll_timeout());
            let arrival = self.wire.keys().next().map(|key| key.0);
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

    fn total(&self, count: impl Fn(&Switch) -> u64) -> u64 {
        self.threads.iter().flatten().map(|own| count(&own.switch)).sum()
    }
}

fn arrival(now: Instant, from: SocketAddr) -> Arrival {
    Arrival { from, received_at: now, congestion_experienced: false, hops: 2 }
}

const LIMIT: Duration = Duration::from_secs(30);

/// Exchanges random frames between all ports, unicast and broadcast, through losses.
fn exchange(seed: u64, counts: [u8; 2], steering: Steering) -> Threads {
    let mut all = Threads::new(seed, counts, steering);
    all.one_in = 40;
    let mut rng = Seed(seed).child("frames", 0).rng();
    let all_names: Vec<Name> = names().collect();
    let mut expected: BTreeMap<(Name, Name), Vec<u32>> = BTreeMap::new();
    for number in 0..400 {
        let from = all_names[rng.below(all_names.len() as u64) as usize];
        let others: Vec<Name> = names().filter(|name| name.1 == from.1 && *name != from).collect();
        if rng.below(10) == 0 {
            all.send(from, MacAddr::BROADCAST, number);
            others.iter().for_each(|&to| expected.entry((from, to)).or_default().push(number));
        } else {
            let to = others[rng.below(others.len() as u64) as usize];
            all.send(from, address(to), number);
            expected.entry((from, to)).or_default().push(number);
        }
        if rng.below(20) == 0 {
            all.run(Duration::from_micros(rng.below(2_000)), |_| false);
        }
    }
    let whole = |all: &Threads| {
        names().all(|to| {
            let wanted: usize =
                expected.iter().filter(|(key, _)| key.1 == to).map(|(_, all)| all.len()).sum();
            all.seen(to).len() >= wanted
        })
    };
    let context = (seed, counts, steering);
    assert!(all.run(LIMIT, whole), "{context:?}: something was lost");
    for to in names() {
        let mut wanted: Vec<u32> = expected
            .iter()
            .filter(|(key, _)| key.1 == to)
            .flat_map(|(_, all)| all.clone())
            .collect();
        let mut seen = all.seen(to);
        // Unicast frames of one flow arrive in order; broadcasts travel separately.
        wanted.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, wanted, "{context:?}: {to:?}");
    }
    assert!(
        all.run(LIMIT, |all| all.threads.iter().flatten().all(|own| own.tenants.holds_nothing()))
    );
    all
}

#[test]
fn whichever_thread_a_packet_arrives_at_every_frame_gets_to_its_tenant_once() {
    for seed in 0..12 {
        let counts = [[1, 2], [2, 2], [3, 1], [4, 3]][seed as usize % 4];
        for steering in [Steering::ByConnection, Steering::ByChance] {
            exchange(seed, counts, steering);
        }
    }
}

#[test]
fn where_packets_are_steered_by_connection_only_its_beginning_is_handed_over() {
    let all = exchange(3, [2, 2], Steering::ByConnection);
    assert!(all.total(|switch| switch.handover_counters().setups) > 0);
    assert_eq!(all.total(|switch| switch.handover_counters().packets), 0);
    // Every thread that has ports sends data.
    for own in all.threads.iter().flatten() {
        assert!(own.switch.transport().data_sent > 0);
    }
    let all = exchange(3, [2, 2], Steering::ByChance);
    assert!(all.total(|switch| switch.handover_counters().packets) > 0);
}

#[test]
fn frames_of_a_flow_keep_their_order_and_a_connection_has_one_thread() {
    let mut all = Threads::new(7, [2, 2], Steering::ByChance);
    all.one_in = 20;
    let (from, to) = ((0, RED, 1), (1, RED, 2));
    for number in 0..500 {
        all.send(from, address(to), number);
    }
    assert!(all.run(LIMIT, |all| all.seen(to).len() == 500));
    assert_eq!(all.seen(to), (0..500).collect::<Vec<_>>());
    for end in 0..2 {
        let pairs: Vec<_> = all.threads[end].iter().map(|own| own.switch.pairs().count()).collect();
        let name = if end == 0 { from } else { to };
        let expected: Vec<_> = (0..2).map(|at| usize::from(at == all.owner[&name])).collect();
        assert_eq!(pairs, expected);
    }
}

#[test]
fn a_connection_whose_other_end_forgot_it_is_begun_anew() {
    let mut all = Threads::new(9, [2, 2], Steering::ByConnection);
    let (from, to) = ((0, RED, 0), (1, RED, 0));
    all.send(from, address(to), 0);
    assert!(all.run(LIMIT, |all| all.seen(to) == [0]));
    // The other host restarts.
    for at in 0..2 {
        all.threads[1][at] = Threads::thread(&TransportConfig::bifrost(), 1, at as u8, 2);
    }
    names().filter(|name| name.0 == 1).for_each(|name| all.add(name));
    for name in names().filter(|name| name.0 == 0) {
        for own in &mut all.threads[1] {
            own.switch.table(name.1).set_mac(address(name), Some(Place::Peer(host(0))));
        }
    }
    let seen = |all: &Threads| all.seen(to).contains(&99);
    for _ in 0..100 {
        all.send(from, address(to), 99);
        all.run(Duration::from_millis(200), seen);
    }
    assert!(seen(&all), "{:?}", all.seen(to));
}

#[test]
fn a_request_for_an_unknown_port_is_refused_where_it_arrives() {
    let mut all = Threads::new(5, [2, 2], Steering::ByConnection);
    let nobody = MacAddr([2, 9, 9, 9, 9, 9]);
    for own in &mut all.threads[0] {
        own.switch.table(RED).set_mac(nobody, Some(Place::Peer(host(1))));
    }
    all.send((0, RED, 0), nobody, 0);
    all.run(LIMIT, |_| false);
    assert_eq!(all.total(|switch| switch.counters().dropped_for(DropCause::Misdirected)), 1);
    assert_eq!(
        all.threads.iter().flatten().map(|own| own.switch.pairs().count()).sum::<usize>(),
        0
    );
}

#[test]
fn forged_ids_of_threads_that_are_not_there_do_no_harm() {
    let mut all = Threads::new(5, [2, 3], Steering::ByConnection);
    let (now, mut rng) = (all.now, Seed(5).rng());
    for _ in 0..2_000 {
        let cid = rng.next_u64() as u32;
        let header = weft_wire::DataHeader { destination_cid: cid, ..Default::default() };
        let reset = weft_wire::SetupHeader {
            kind: SetupKind::Reset,
            version: weft_wire::U4::truncate(1),
            cc_type: weft_wire::U4::truncate(0),
            thread_id: 200,
            reason: 0,
            local_cid: cid,
            destination_cid: 0,
            terms: None,
        };
        for packet in [Packet::data(header, None), Packet::Setup(reset)] {
            let Host { switch, tenants } = &mut all.threads[1][0];
            let arrival = arrival(now, host(0));
            let inbound = Inbound { arrival: &arrival, vni: RED, packet: &packet, payload: &[] };
            switch.handle_packet(now, &inbound, tenants);
        }
        all.drain(1);
    }
    let handed = all.threads[1][0].switch.handover_counters();
    assert_eq!(handed.setups, 2 * 2_000, "each reset to both others");
    // Three threads take two bits, so one id in four names no thread: those packets stay, as do the thread's
    // own.
    assert!((900..1_100).contains(&handed.packets), "{handed:?}");
    assert!(all.threads[1].iter().all(|own| own.switch.pairs().count() == 0));
}

#[test]
fn a_removed_port_is_no_longer_found_by_other_threads() {
    let mut all = Threads::new(2, [2, 2], Steering::ByConnection);
    let (from, removed) = ((0, RED, 0), (0, RED, 1));
    let other = 1 - all.owner[&removed];
    all.owner.insert(from, other);
    // The port moves to the thread that does not have `removed`.
    for at in 0..2 {
        let Host { switch, tenants } = &mut all.threads[0][at];
        switch.remove_port(all.now, port(from), tenants);
        switch.set_elsewhere(port(from), None);
    }
    all.add(from);
    all.send(from, address(removed), 1);
    assert!(all.run(LIMIT, |all| all.seen(removed) == [1]));
    let seen = all.seen(removed);
    for own in &mut all.threads[0] {
        own.switch.set_elsewhere(port(removed), None);
        own.switch.remove_port(all.now, port(removed), &mut own.tenants);
    }
    let before = all.total(|switch| switch.handover_counters().frames);
    all.send(from, address(removed), 2);
    // The destination is unknown: the frame goes to all ports, and the removed one is not among them.
    all.run(LIMIT, |_| false);
    assert_eq!(all.seen(removed), seen);
    assert!(all.total(|switch| switch.handover_counters().frames) > before);
}

/// Checks the number of packets that the second of two threads sends on a dead path after the first found it, with
/// its notification and without.
#[test]
fn a_thread_sends_nothing_by_a_path_that_another_found_dead() {
    let sent = [true, false].map(|notifies| {
        // Each packet leaves on any of four paths.
        let policy = path::Kind::Oblivious;
        let transport =
            TransportConfig { paths: 4, policy, spray_unit: 1, ..TransportConfig::bifrost() };
        let mut all = Threads::over(&transport, 5, [2, 1], Steering::ByConnection);
        all.notifies = notifies;
        let of_thread = |thread| {
            let own = names().filter(|name| name.0 == 0 && all.owner[name] == thread);
            own.flat_map(|from| (0..PORTS).map(move |to| (from, (1, from.1, to)))).collect()
        };
        let [first, second]: [Vec<(Name, Name)>; 2] = [of_thread(0), of_thread(1)];
        for &(from, to) in first.iter().chain(&second) {
            all.send(from, address(to), 0);
        }
        all.run(Duration::from_secs(1), |_| false);
        all.dead = Some(PathId(3));
        for number in 1..200 {
            let (from, to) = first[number as usize % first.len()];
            all.send(from, address(to), number);
            all.run(Duration::from_millis(1), |_| false);
        }
        assert!(all.sent_by_dead[0] > 0, "no thread found the dead path");
        for number in 200..300 {
            let (from, to) = second[number as usize % second.len()];
            all.send(from, address(to), number);
            all.run(Duration::from_millis(1), |_| false);
        }
        let notified = all.threads[0][0].switch.handover_counters().path_findings;
        assert!(notified > 0);
        all.sent_by_dead[1]
    });
    assert!(sent[1] >= 2, "{sent:?}: the second would not have found out");
    assert_eq!(sent[0], 0);
}
