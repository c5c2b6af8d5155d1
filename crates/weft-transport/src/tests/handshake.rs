//! Tests of set-up, refusal and the end of connections.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;

use weft_units::{Duration, Instant, Seed};
use weft_wire::{Packet, SetupKind};

use super::pair::{Fate, Pair, address, endpoint};
use crate::{
    Arrival, CloseReason, DropReason, Endpoint, EndpointConfig, Event, Peer, Secret,
    TransportConfig, Verdict, congestion,
};

const LIMIT: Duration = Duration::from_secs(5);

fn closed(pair: &Pair, end: usize) -> Option<CloseReason> {
    pair.events[end].iter().find_map(|event| match event {
        Event::Closed { reason, .. } => Some(*reason),
        _ => None,
    })
}

fn connected(pair: &Pair) -> bool {
    pair.events[0].iter().any(|event| matches!(event, Event::Connected { .. }))
}

#[test]
fn a_connection_is_set_up_and_carries_both_ways() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let id = pair.ends[0].connect(pair.now, address(1), 42).unwrap();
    pair.run_until(LIMIT, connected);
    pair.run_for(Duration::from_millis(1));
    let Some(&Event::Accepted { connection, service: 42 }) = pair.events[1].first() else {
        panic!("{:?}", pair.events[1]);
    };
    pair.submit(0, id, 1, 100_000);
    pair.submit(1, connection, 2, 100_000);
    pair.run_until(LIMIT, |pair| {
        pair.acked_tokens(0).len() == 1 && pair.acked_tokens(1).len() == 1
    });
}

#[test]
fn each_end_learns_the_address_the_thread_and_the_paths_of_the_other() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    assert_eq!(pair.ends[0].peer(id), None);
    pair.run_until(LIMIT, connected);
    let Some(&Event::Accepted { connection, .. }) = pair.events[1].first() else {
        panic!("{:?}", pair.events[1]);
    };
    let peer = |end, thread_id| Some(Peer { address: address(end), thread_id, paths: 128 });
    assert_eq!(pair.ends[0].peer(id), peer(1, 2));
    assert_eq!(pair.ends[1].peer(connection), peer(0, 1));
    let (pair, ids) = Pair::joined(&TransportConfig::stellar());
    assert_eq!(pair.ends[0].peer(ids[0]), peer(1, 2));
    assert_eq!(pair.ends[1].peer(ids[1]), peer(0, 1));
}

#[test]
fn every_packet_names_the_congestion_control_in_use() {
    let config = TransportConfig {
        congestion: congestion::Kind::Swift,
        keepalive_interval: Duration::from_millis(300),
        ..TransportConfig::stellar()
    };
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let mut pair = Pair::new(&config);
    let packets = Rc::clone(&seen);
    pair.rule = Box::new(move |on_link| {
        let (kind, cc_type) = match on_link.packet {
            Packet::Data(header, _) if header.special => ("probe", header.cc_type),
            Packet::Data(header, _) => {
                assert!(header.ece, "marks are counted, and headers announce it");
                ("data", header.cc_type)
            }
            Packet::Ack(header) if header.special => ("answer", header.cc_type),
            Packet::Ack(header) => ("ack", header.cc_type),
            Packet::Setup(header) => match header.kind {
                SetupKind::Request => ("request", header.cc_type),
                SetupKind::Challenge => ("challenge", header.cc_type),
                SetupKind::Accept => ("accept", header.cc_type),
                SetupKind::Close => ("close", header.cc_type),
                other => panic!("{other:?}"),
            },
        };
        packets.borrow_mut().insert((kind, cc_type.get()));
        Fate::Pass
    });
    let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_until(LIMIT, connected);
    pair.submit(0, id, 1, 100_000);
    pair.run_for(Duration::from_secs(1));
    pair.ends[0].close(pair.now, id);
    pair.run_for(Duration::from_millis(1));
    let kinds = ["accept", "ack", "answer", "challenge", "close", "data", "probe", "request"];
    assert_eq!(*seen.borrow(), kinds.map(|kind| (kind, 2)).into());
}

#[test]
fn the_acceptor_keeps_nothing_until_the_address_is_proved() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    let request = pair.ends[0].poll_transmit(pair.now).unwrap();
    let verdict = pair.inject(1, &request.packet, 0);
    assert_eq!(verdict, Verdict::Done);
    assert_eq!(pair.ends[1].connections(), 0);
    let challenge = pair.ends[1].poll_transmit(pair.now).unwrap();
    let Packet::Setup(header) = challenge.packet else { panic!("{challenge:?}") };
    assert_eq!(header.kind, SetupKind::Challenge);
    let _ = pair.inject(0, &challenge.packet, 0);
    let proved = pair.ends[0].poll_transmit(pair.now).unwrap();
    // The same request with the token is refused from another address, and by an end with another secret.
    let refused = Verdict::Dropped(DropReason::BadToken);
    let from = SocketAddr::new([10, 0, 0, 9].into(), address(0).port());
    let elsewhere = Arrival { from, received_at: pair.now, congestion_experienced: false, hops: 3 };
    assert_eq!(pair.ends[1].handle_packet(pair.now, &elsewhere, &proved.packet, 0), refused);
    assert_eq!(pair.ends[1].connections(), 0);
    let mut other = Pair::new(&TransportConfig::stellar());
    other.ends[1] = endpoint(&TransportConfig::stellar(), 99);
    assert_eq!(other.inject(1, &proved.packet, 0), refused);
    assert_eq!(other.ends[1].connections(), 0);
    assert_eq!(pair.inject(1, &proved.packet, 0), Verdict::Done);
    assert_eq!(pair.ends[1].connections(), 1);
}

#[test]
fn every_packet_of_set_up_may_be_lost() {
    for first in 0..6 {
        let mut pair = Pair::new(&TransportConfig::stellar());
        let mut count = 0;
        pair.rule = Box::new(move |_| {
            count += 1;
            if count - 1 == first { Fate::Drop } else { Fate::Pass }
        });
        let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
        pair.run_until(LIMIT, connected);
        pair.submit(0, id, 1, 50_000);
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
        assert_eq!(pair.ends[1].connections(), 1, "losing packet {first}");
    }
}

#[test]
fn a_request_without_an_answer_times_out() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    pair.rule = Box::new(|_| Fate::Drop);
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::ConnectTimeout));
    assert_eq!(pair.ends[0].connections(), 0);
}

/// Returns the times of the requests of an end that gets no answer, milliseconds after the first.
fn requests(config: &TransportConfig) -> Vec<u64> {
    let mut pair = Pair::new(config);
    let (begin, left) = (pair.now, Rc::new(RefCell::new(Vec::new())));
    let at = Rc::clone(&left);
    pair.rule = Box::new(move |on_link| {
        at.borrow_mut().push(on_link.now.since(begin).as_nanos() / 1_000_000);
        Fate::Drop
    });
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::ConnectTimeout));
    left.take()
}

#[test]
fn requests_to_a_silent_peer_take_more_and_more_paths_and_are_eight_at_least() {
    let config = TransportConfig::stellar();
    let mut expected = vec![0, 10, 10];
    for (at, copies) in [(30, 4), (70, 8), (150, 8), (310, 8), (560, 8), (810, 8)] {
        expected.extend([at].repeat(copies));
    }
    assert_eq!(requests(&config)[..expected.len()], expected);
    let short = TransportConfig { peer_timeout: Duration::from_millis(64), paths: 1, ..config };
    assert_eq!(requests(&short), [0, 8, 16, 24, 32, 40, 48, 56]);
}

#[test]
fn connections_begin_though_half_of_the_paths_are_dead_both_ways() {
    let config = TransportConfig { paths: 32, ..TransportConfig::stellar() };
    let mut pair = Pair::new(&config);
    pair.rule = Box::new(|on_link| if on_link.path.0 % 2 == 0 { Fate::Drop } else { Fate::Pass });
    for _ in 0..200 {
        pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    }
    let count = |pair: &Pair, wanted: fn(&Event) -> bool| {
        pair.events[0].iter().filter(|&event| wanted(event)).count()
    };
    let ended = |event: &Event| matches!(event, Event::Closed { .. });
    let begun = |event: &Event| matches!(event, Event::Connected { .. });
    pair.run_until(LIMIT, |pair| count(pair, ended) + count(pair, begun) == 200);
    assert_eq!((count(&pair, begun), count(&pair, ended)), (200, 0));
}

#[test]
fn closing_notifies_the_peer() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    let now = pair.now;
    pair.ends[0].close(now, ids[0]);
    pair.run_until(LIMIT, |pair| closed(pair, 1) == Some(CloseReason::Peer));
    assert_eq!(closed(&pair, 0), Some(CloseReason::Local));
    assert_eq!(pair.ends[0].connections() + pair.ends[1].connections(), 0);
}

#[test]
fn placed_packets_are_acknowledged_before_an_end_closes() {
    let config = TransportConfig {
        ack_every: 100,
        ack_delay: Duration::from_secs(1),
        ..TransportConfig::stellar()
    };
    let (mut pair, ids) = Pair::joined(&config);
    pair.submit(0, ids[0], 5, 10_000);
    pair.run_until(LIMIT, |pair| pair.bytes_placed(1) == 10_000);
    assert!(pair.acked_tokens(0).is_empty(), "acknowledged before its time");
    let now = pair.now;
    pair.ends[1].close(now, ids[1]);
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::Peer));
    assert_eq!(pair.acked_tokens(0), [5]);
}

#[test]
fn silence_closes_at_both_ends() {
    let config =
        TransportConfig { idle_timeout: Duration::from_secs(1), ..TransportConfig::stellar() };
    let (mut pair, _) = Pair::joined(&config);
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::Idle));
    pair.run_for(Duration::from_millis(10));
    assert!(closed(&pair, 1).is_some());
}

#[test]
fn keepalives_hold_a_silent_connection_open_and_notice_a_dead_peer() {
    let config = TransportConfig {
        keepalive_interval: Duration::from_millis(300),
        idle_timeout: Duration::from_secs(1),
        ..TransportConfig::stellar()
    };
    let (mut pair, _) = Pair::joined(&config);
    pair.run_for(Duration::from_secs(4));
    assert_eq!(closed(&pair, 0), None);
    pair.rule = Box::new(|_| Fate::Drop);
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::PeerGone));
}

#[test]
fn of_two_silent_ends_only_the_initiator_sends_keepalives() {
    let interval = Duration::from_secs(10);
    let config = TransportConfig { keepalive_interval: interval, ..TransportConfig::stellar() };
    let mut pair = Pair::new(&config);
    let sent = Rc::new(RefCell::new([0, 0]));
    let keepalives = Rc::clone(&sent);
    pair.rule = Box::new(move |on_link| {
        if matches!(on_link.packet, Packet::Data(header, _) if header.special) {
            keepalives.borrow_mut()[on_link.from] += 1;
        }
        Fate::Pass
    });
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_for(Duration::from_secs(600));
    assert_eq!((closed(&pair, 0), closed(&pair, 1)), (None, None));
    let [initiator, acceptor] = *sent.borrow();
    assert!(
        (59..=60).contains(&initiator) && acceptor == 0,
        "{initiator} and {acceptor} keepalives"
    );
}

#[test]
fn lost_keepalives_are_retransmitted() {
    let config = TransportConfig {
        keepalive_interval: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        ..TransportConfig::stellar()
    };
    let (mut pair, _) = Pair::joined(&config);
    let mut lost = 0;
    pair.rule = Box::new(move |on_link| {
        let is_keepalive = matches!(on_link.packet, Packet::Data(header, _) if header.special);
        lost += u32::from(is_keepalive);
        if is_keepalive && lost % 6 > 0 { Fate::Drop } else { Fate::Pass }
    });
    pair.run_for(Duration::from_secs(45));
    assert_eq!((closed(&pair, 0), closed(&pair, 1)), (None, None));
}

#[test]
fn a_dead_path_prevents_no_set_up_and_closes_no_connection() {
    let config = TransportConfig {
        paths: 4,
        keepalive_interval: Duration::from_millis(300),
        ..TransportConfig::stellar()
    };
    for dead in 0..4 {
        let mut pair = Pair::new(&config);
        pair.rule =
            Box::new(move |on_link| if on_link.path.0 == dead { Fate::Drop } else { Fate::Pass });
        pair.ends[0].connect(pair.now, address(1), 0).unwrap();
        pair.run_until(LIMIT, connected);
        pair.run_for(Duration::from_secs(20));
        assert_eq!((closed(&pair, 0), closed(&pair, 1)), (None, None), "path {dead}");
    }
}

#[test]
fn a_peer_that_stops_answering_is_gone() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    pair.rule = Box::new(|_| Fate::Drop);
    let began = pair.now;
    pair.submit(0, ids[0], 1, 1_000_000);
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::PeerGone));
    let took = pair.now.since(began);
    assert!(took < Duration::from_millis(2_100), "{took}");
}

#[test]
fn a_connection_may_wait_longer_for_its_peer_than_others() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    pair.rule = Box::new(|_| Fate::Drop);
    let began = pair.now;
    pair.ends[0].set_peer_timeout(ids[0], Duration::from_secs(4));
    pair.submit(0, ids[0], 1, 1_000_000);
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::PeerGone));
    let took = pair.now.since(began);
    assert!(took >= Duration::from_secs(4) && took < Duration::from_millis(4_100), "{took}");
}

#[test]
fn a_connection_may_be_requested_longer_than_others() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    pair.rule = Box::new(|_| Fate::Drop);
    let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.ends[0].set_peer_timeout(id, Duration::MAX);
    pair.run_for(Duration::from_secs(20));
    assert_eq!(closed(&pair, 0), None);
    pair.rule = Box::new(|_| Fate::Pass);
    pair.run_until(LIMIT, connected);
}

#[test]
fn a_peer_that_restarted_is_noticed_at_once() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    pair.ends[1] = endpoint(&TransportConfig::stellar(), 77);
    pair.submit(0, ids[0], 1, 100);
    pair.run_until(Duration::from_millis(1), |pair| closed(pair, 0) == Some(CloseReason::Reset));
}

#[test]
fn a_sender_that_restarted_is_noticed_by_the_first_acknowledgement() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    pair.submit(0, ids[0], 1, 1_000_000);
    pair.run_for(Duration::from_micros(30));
    pair.ends[0] = endpoint(&TransportConfig::stellar(), 77);
    pair.run_until(Duration::from_millis(1), |pair| closed(pair, 1) == Some(CloseReason::Reset));
}

#[test]
fn a_peer_that_restarted_while_idle_is_noticed_by_a_keepalive() {
    let keepalive_interval = Duration::from_millis(10);
    let config = TransportConfig { keepalive_interval, ..TransportConfig::stellar() };
    let (mut pair, ids) = Pair::joined(&config);
    pair.submit(0, ids[0], 1, 100);
    pair.run_until(Duration::from_millis(1), |pair| pair.acked_tokens(0) == [1]);
    pair.ends[1] = endpoint(&config, 77);
    pair.run_until(keepalive_interval * 2, |pair| closed(pair, 0) == Some(CloseReason::Reset));
}

/// Found by the simulator's swarm: the restarted peer refused the proof it had requested before its restart, and the
/// request was retransmitted with it until it timed out.
#[test]
fn a_peer_that_restarts_during_set_up_requests_a_new_proof() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    let request = pair.ends[0].poll_transmit(pair.now).unwrap();
    let _ = pair.inject(1, &request.packet, 0);
    let challenge = pair.ends[1].poll_transmit(pair.now).unwrap();
    pair.ends[1] = endpoint(&TransportConfig::stellar(), 77);
    let _ = pair.inject(0, &challenge.packet, 0);
    pair.run_until(Duration::from_millis(1), connected);
    assert_eq!(pair.ends[1].stats().dropped_for(DropReason::BadToken), 1);
}

/// Found by the simulator's swarm: the end that accepted waited for a peer that had closed.
#[test]
fn an_accept_of_a_closed_connection_is_answered_with_a_reset() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_until(Duration::from_millis(1), |pair| pair.ends[1].connections() == 1);
    pair.ends[0].close(pair.now, id);
    pair.run_until(Duration::from_millis(1), |pair| closed(pair, 1) == Some(CloseReason::Reset));
}

#[test]
fn a_late_copy_of_a_request_makes_no_connection_that_lasts() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let proven = Rc::new(Cell::new(None));
    let recorded = proven.clone();
    pair.rule = Box::new(move |seen| {
        if let Packet::Setup(header) = seen.packet
            && header.kind == SetupKind::Request
        {
            recorded.set(Some(*seen.packet));
        }
        Fate::Pass
    });
    let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_until(Duration::from_millis(1), connected);
    pair.ends[0].close(pair.now, id);
    pair.run_until(Duration::from_millis(1), |pair| closed(pair, 1) == Some(CloseReason::Peer));
    pair.events[1].clear();
    let _ = pair.inject(1, &proven.get().unwrap(), 0);
    assert_eq!(pair.ends[1].connections(), 1);
    pair.run_until(Duration::from_millis(1), |pair| closed(pair, 1) == Some(CloseReason::Reset));
}

#[test]
fn unpredictable_numbers_come_from_the_secret_alone() {
    let drawn = |seed, secret| {
        let config = EndpointConfig {
            transport: TransportConfig::stellar(),
            receive_port: 4791,
            thread_id: 0,
            accept: true,
            max_connections: 1024,
        };
        let secret = Secret::new([secret; 16]);
        let mut endpoint = Endpoint::new(config, Seed(seed), secret).unwrap();
        let draw = |_| {
            let id = endpoint.connect(Instant::EPOCH, address(1), 0).unwrap();
            (id, endpoint.next_psn(id))
        };
        (0..1000).map(draw).collect::<Vec<_>>()
    };
    let first = drawn(1, 1);
    assert_eq!(drawn(2, 1), first);
    let other = drawn(1, 2);
    let same = first.iter().zip(&other).filter(|(one, two)| one.0 == two.0 || one.1 == two.1);
    assert_eq!(same.count(), 0);
    let psns: BTreeSet<_> = first.iter().map(|one| one.1).collect();
    assert_eq!(psns.len(), 1000);
}

#[test]
fn an_endpoint_that_is_full_refuses() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    pair.ends[1] = {
        let config = EndpointConfig {
            transport: TransportConfig::stellar(),
            receive_port: 4791,
            thread_id: 0,
            accept: false,
            max_connections: 1,
        };
        Endpoint::new(config, Seed(5), Secret::from_seed(Seed(5))).unwrap()
    };
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    pair.run_until(LIMIT, |pair| closed(pair, 0) == Some(CloseReason::Refused));
    assert_eq!(pair.ends[1].connections(), 0);
}

#[test]
fn a_version_that_the_ends_do_not_share_is_refused_by_name() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    // The first request is challenged; the one with the token claims only a later version.
    let request = pair.ends[0].poll_transmit(pair.now).unwrap();
    let _ = pair.inject(1, &request.packet, 0);
    let challenge = pair.ends[1].poll_transmit(pair.now).unwrap();
    let _ = pair.inject(0, &challenge.packet, 0);
    let Packet::Setup(mut header) = pair.ends[0].poll_transmit(pair.now).unwrap().packet else {
        panic!("not a set-up packet")
    };
    let terms = header.terms.as_mut().unwrap();
    terms.min_version = 9;
    header.version = weft_wire::U4::truncate(9);
    assert!(matches!(pair.inject(1, &Packet::Setup(header), 0), Verdict::Dropped(_)));
    let reject = pair.ends[1].poll_transmit(pair.now).unwrap();
    let _ = pair.inject(0, &reject.packet, 0);
    pair.run_for(Duration::from_micros(1));
    assert_eq!(closed(&pair, 0), Some(CloseReason::NoCommonVersion));
}

#[test]
fn ids_do_not_repeat_and_old_ones_find_nothing() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let mut seen = BTreeSet::new();
    for _ in 0..1000 {
        let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
        assert!(seen.insert(id), "{id:?} came twice in a thousand");
        pair.ends[0].close(Instant::EPOCH, id);
    }
    assert_eq!(pair.ends[0].connections(), 0);
}
