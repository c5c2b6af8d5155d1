//! Limits of held payload, with hosts that send the ends of messages and never their beginnings.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_transport::TransportConfig;
use weft_units::Duration;

use super::datagrams::{KEY, end, post, to};
use super::network::{End, Fate, Network, config};
use crate::*;

/// Number of datagrams, of four packets each. One sender's window is far smaller than its queue.
const DATAGRAMS: u64 = 60;

/// Drops the first packets of messages from host 0, at most `max_packets` of them.
fn lose_beginnings(network: &mut Network, max_packets: usize) {
    let mut left = max_packets;
    network.rule = Box::new(move |on_link| {
        let begins = on_link.message().is_some_and(|message| message.offset == 0);
        if on_link.from == 0 && begins && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
}

/// Returns the bytes of payload that a host holds.
fn held(network: &Network, host: usize) -> usize {
    network.hosts[host].memory.held.values().map(Vec::len).sum()
}

fn send_all(network: &mut Network, from: &End, datagram: Datagram) {
    for wr_id in 0..DATAGRAMS {
        post(network, from, wr_id, from.sge(0, 1000), datagram);
    }
}

/// Has `a` send datagrams whose first packets are lost; returns the maximum number of bytes that host 1 held.
fn max_held(network: &mut Network, a: &End, datagram: Datagram) -> usize {
    lose_beginnings(network, usize::MAX);
    send_all(network, a, datagram);
    let mut max = 0;
    for _ in 0..50 {
        network.run_for(Duration::from_micros(100));
        max = max.max(held(network, 1));
    }
    max
}

#[test]
fn datagrams_that_no_queue_pair_accepts_are_dropped_with_their_first_packet() {
    let wrong = |good: Datagram, rc: &End| {
        [
            Datagram { qkey: KEY + 1, ..good },
            Datagram { qp: QueuePairNumber(good.qp.0 ^ 0x80_0000), ..good },
            Datagram { qp: rc.qp, ..good },
        ]
    };
    for case in 0..3 {
        let mut network = Network::new(2);
        let (a, b) = (end(&mut network, 0), end(&mut network, 1));
        let rc = network.end(1, Service::ReliableConnected);
        network.post_receive(&b, 1, &[b.sge(0, 1040)]);
        assert_eq!(max_held(&mut network, &a, wrong(to(&b), &rc)[case]), 0, "case {case}");
    }
    let long = Limits { datagram_bytes: 999, ..Limits::default() };
    for (why, room, limits) in [
        ("without a receive request", None, Limits::default()),
        ("without room", Some(1039), Limits::default()),
        ("longer than the port's MTU", Some(2000), long),
    ] {
        let mut network = Network::new(2);
        network.limit(1, limits);
        let (a, b) = (end(&mut network, 0), end(&mut network, 1));
        room.into_iter().for_each(|room| network.post_receive(&b, 1, &[b.sge(0, room)]));
        assert_eq!(max_held(&mut network, &a, to(&b)), 0, "{why}");
    }
}

#[test]
fn a_host_without_datagram_queue_pairs_refuses_connections_for_datagrams() {
    let mut network = Network::new(2);
    let a = end(&mut network, 0);
    let rc = network.end(1, Service::ReliableConnected);
    let nobody = Datagram { qp: rc.qp, ..to(&rc) };
    post(&mut network, &a, 7, a.sge(0, 1000), nobody);
    assert_eq!(network.outcomes(&a, 1), [(7, Status::Success)]);
    network.run_for(Duration::from_millis(1));
    assert!(!network.hosts[1].device.has_inbound_datagrams());
    // With a queue pair for datagrams, the same host reaches it.
    let b = end(&mut network, 1);
    network.post_receive(&b, 8, &[b.sge(0, 1040)]);
    post(&mut network, &a, 9, a.sge(0, 1000), to(&b));
    assert_eq!(network.outcomes(&b, 1), [(8, Status::Success)]);
}

#[test]
fn held_bytes_stay_within_a_peers_limit_and_its_connection_continues() {
    let mut network = Network::new(3);
    let limit = 20_000;
    let limits = Limits { held_bytes: 30_000, held_bytes_per_peer: limit, ..Limits::default() };
    network.limit(2, limits);
    let (a, honest, b) = (end(&mut network, 0), end(&mut network, 1), end(&mut network, 2));
    let device = |network: &Network| {
        let device = &network.hosts[2].device;
        (device.held_bytes(), device.held_refused())
    };
    for wr_id in 0..60 {
        network.post_receive(&b, wr_id, &[b.sge(1040 * wr_id, 1040)]);
    }
    lose_beginnings(&mut network, usize::MAX);
    send_all(&mut network, &a, to(&b));
    for _ in 0..50 {
        network.run_for(Duration::from_micros(100));
        assert!(
            device(&network).0 <= limit + 1_000,
            "one entry may always be: {:?}",
            device(&network)
        );
        assert!(held(&network, 2) as u64 <= device(&network).0);
    }
    assert!(device(&network).1 > 0, "the limit was met");
    // Another host has a limit of its own.
    post(&mut network, &honest, 1, honest.sge(0, 1000), to(&b));
    assert_eq!(network.completions(&b, 1)[0].source.map(|source| source.qp), Some(honest.qp));
    // Dropped datagrams leave nothing behind, and new datagrams of the first host arrive.
    network.rule = Box::new(|_| Fate::Pass);
    assert_eq!(network.outcomes(&a, DATAGRAMS.try_into().unwrap()).len(), 60);
    network.run_for(Duration::from_millis(1));
    while network.poll(&b).is_some() {}
    network.post_receive(&b, 99, &[b.sge(0, 1040)]);
    post(&mut network, &a, 99, a.sge(0, 1000), to(&b));
    assert_eq!(network.completions(&b, 1)[0].source.map(|source| source.qp), Some(a.qp));
    assert_eq!((device(&network).0, held(&network, 2)), (0, 0));
}

#[test]
fn held_bytes_are_released_when_their_connection_ends() {
    let mut network = Network::new(2);
    let (a, b) = (end(&mut network, 0), end(&mut network, 1));
    for wr_id in 0..10 {
        network.post_receive(&b, wr_id, &[b.sge(0, 1040)]);
    }
    assert!(max_held(&mut network, &a, to(&b)) > 0);
    network.rule = Box::new(|_| Fate::Drop);
    network.run_for(Duration::from_secs(60));
    network.drain();
    assert_eq!((network.hosts[1].device.held_bytes(), held(&network, 1)), (0, 0));
}

/// A failed queue pair sends one Close packet. If that is lost, its peer asks again with a keepalive, which the host of the
/// failed queue pair answers with a reset.
#[test]
fn held_bytes_are_released_by_a_keepalive_if_the_close_is_lost() {
    let keepalive = Duration::from_millis(50);
    let patient = TransportConfig {
        keepalive_interval: keepalive,
        peer_timeout: Duration::from_secs(3600),
        ..config()
    };
    let mut network = Network::with(2, &patient);
    let [a, b] = [0, 1].map(|host| network.end(host, Service::ReliableConnected));
    network.join(&a, &b, |_| ());
    lose_beginnings(&mut network, usize::MAX);
    let sges = [a.sge(0, 1000)];
    let write = Operation::Write(b.remote(0));
    network.post(&a, &SendRequest::new(1, write, Data::Gather(&sges)));
    network.run_until(|network| held(network, 1) > 0);
    network.rule = Box::new(|_| Fate::Drop);
    let fails = Attributes { state: Some(State::Error), ..Attributes::default() };
    let now = network.now;
    network.hosts[0].device.modify_qp(now, a.qp, &fails).unwrap();
    network.run_for(Duration::from_millis(1));
    network.rule = Box::new(|_| Fate::Pass);
    network.run_for(keepalive / 2);
    assert!(held(&network, 1) > 0, "the peer has not heard of the failure");
    // The end that accepted the connection sends its keepalive an eighth later.
    network.run_for(keepalive);
    assert_eq!((network.hosts[1].device.held_bytes(), held(&network, 1)), (0, 0));
}

/// Posts 12 requests from one host to another, which may hold two packets; twelve first packets of messages are lost.
/// Returns when all requests are completed.
fn starved(service: Service, operation: impl Fn(u64, &End) -> Operation) -> (Network, End, End) {
    let mut network = Network::new(2);
    network.limit(1, Limits { held_bytes_per_peer: 1_000, ..Limits::default() });
    let (a, b) = (network.end(0, service), network.end(1, service));
    network.fill(&a, 5);
    network.join(&a, &b, |_| ());
    lose_beginnings(&mut network, 12);
    for wr_id in 0..12 {
        let at = 1000 * wr_id;
        network.post_receive(&b, wr_id, &[b.sge(at, 1000)]);
        let sges = [a.sge(at, 1000)];
        network.post(&a, &SendRequest::new(wr_id, operation(at, &b), Data::Gather(&sges)));
    }
    let mut done = 0;
    network.run_until(|network| {
        assert!(network.hosts[1].device.held_bytes() <= 1_000);
        done += usize::from(network.poll(&a).is_some());
        done == 12
    });
    network.run_for(Duration::from_millis(1));
    let device = &network.hosts[1].device;
    assert!(device.held_refused() > 0, "the limit was met");
    assert_eq!((device.held_bytes(), held(&network, 1)), (0, 0));
    (network, a, b)
}

/// The last packet of a WRITE waits for the others.
#[test]
fn packets_of_rc_are_declined_and_retransmitted() {
    let write = |at, b: &End| Operation::Write(b.remote(at));
    let (mut network, a, b) = starved(Service::ReliableConnected, write);
    let sent = network.memory(&a)[..12_000].to_vec();
    assert!(network.memory(&b)[..12_000] == sent);
}

/// A message of UC waits for those before it.
#[test]
fn messages_of_uc_are_dropped_and_their_connection_continues() {
    let (mut network, a, b) = starved(Service::UnreliableConnected, |_, _| Operation::Send);
    let arrived = core::iter::from_fn(|| network.poll(&b)).count();
    assert!(arrived < 12);
    let sges = [a.sge(20_000, 1000)];
    network.post(&a, &SendRequest::new(99, Operation::Send, Data::Gather(&sges)));
    let next = network.outcomes(&b, 1);
    assert_eq!(next, [(arrived as u64, Status::Success)]);
    let sent = network.memory(&a)[20_000..21_000].to_vec();
    assert!(network.memory(&b)[1000 * arrived..][..1000] == sent);
}
