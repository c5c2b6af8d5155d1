//! A receiver is always ready, even if its owner is stuck (X-RDMA, section V.B).

use alloc::vec::Vec;

use weft_units::Duration;

use super::network::{Network, config};
use crate::*;

/// Number of messages of each sender: more than twice its window.
const MESSAGES: u32 = 20;

#[test]
fn a_receiver_that_stops_polling_gets_everything_when_it_resumes() {
    let config = Config { backlog: 10_000, ..config() };
    let (hosts, each) = (10, 100);
    let mut network = Network::new(1 + hosts, 3, &config);
    let senders: Vec<_> = (1..=hosts)
        .flat_map(|host| core::iter::repeat_n(host, each))
        .map(|host| (host, network.connect(host, 0).0))
        .collect();
    network.run_for(Duration::from_millis(5));
    network.hosts[0].stuck = true;
    let before = network.hosts[0].context.memory().registered;
    for &(host, channel) in &senders {
        for number in 0..MESSAGES {
            network.send(host, channel, &number.to_be_bytes());
        }
    }
    // `rnr_retry` is 0: one SEND without a receive request would break its channel.
    network.run_for(Duration::from_millis(200));
    assert_eq!(
        network.hosts[0].context.memory().registered,
        before,
        "nothing grows while it is stuck"
    );
    network.hosts[0].stuck = false;
    let mut came = 0;
    network.run_until(|network| {
        came += network.take_messages(0).len();
        came == senders.len() * MESSAGES as usize
    });
    for &(host, channel) in &senders {
        assert_eq!(network.closed(host, channel), None);
    }
    network.check_no_leaks();
}

#[test]
fn a_shared_receive_queue_needs_less_memory_and_loses_nothing_when_it_is_empty() {
    let shared = Config { backlog: 10_000, srq: 64, ..config() };
    let mut used = [0; 2];
    for (used, config) in used.iter_mut().zip([&shared, &Config { srq: 0, ..shared.clone() }]) {
        let (hosts, each) = (4, 25);
        let mut network = Network::new(1 + hosts, 5, config);
        let senders: Vec<_> = (1..=hosts)
            .flat_map(|host| core::iter::repeat_n(host, each))
            .map(|host| (host, network.connect(host, 0).0))
            .collect();
        network.run_for(Duration::from_millis(5));
        *used = network.hosts[0].context.memory().used;
        network.hosts[0].stuck = true;
        for &(host, channel) in &senders {
            for number in 0..MESSAGES {
                network.send(host, channel, &number.to_be_bytes());
            }
        }
        network.run_for(Duration::from_millis(20));
        network.hosts[0].stuck = false;
        let mut came = 0;
        network.run_until(|network| {
            came += network.take_messages(0).len();
            came == senders.len() * MESSAGES as usize
        });
        for &(host, channel) in &senders {
            assert_eq!(network.closed(host, channel), None);
        }
        let ran_dry = network.hosts[0].context.stats().srq_dry;
        assert_eq!(ran_dry > 0, config.srq > 0, "{ran_dry} times");
        network.check_no_leaks();
    }
    assert!(used[0] * 10 < used[1], "{used:?}");
}

#[test]
fn both_windows_full_at_once_is_no_deadlock() {
    // No ACK is due by count before the window is full, and none is due by time.
    let config = Config {
        depth: 4,
        ack_every: 2000,
        ack_delay: Duration::from_millis(500),
        deadlock_after: Duration::from_millis(1),
        ..config()
    };
    let (mut network, a, b) = Network::pair(&config);
    for number in 0..100_u32 {
        network.send(0, a, &number.to_be_bytes());
        network.send(1, b, &number.to_be_bytes());
    }
    let mut came = 0;
    let start = network.now;
    network.run_until(|network| {
        came += network.take_messages(0).len() + network.take_messages(1).len();
        came == 200
    });
    let took = network.now.since(start);
    assert!(took < Duration::from_millis(400), "NOPs broke it, not the ACK's delay: {took}");
    network.check_no_leaks();
}

#[test]
fn a_silent_receiver_acknowledges_by_count_and_by_time() {
    let (mut network, a, _) = Network::pair(&config());
    network.run_for(Duration::from_millis(5));
    network.send(0, a, b"one");
    network.run_for(Duration::from_millis(2));
    assert_eq!(network.hosts[0].context.status(a).unwrap().in_flight, 0, "by time");
    for _ in 0..1000 {
        network.send(0, a, b"many");
    }
    let mut came = 0;
    network.run_until(|network| {
        came += network.take_messages(1).len();
        came == 1001
    });
    let other = network.hosts[1].context.channels().next().unwrap();
    let acks = network.hosts[1].context.status(other).unwrap().stats.acks;
    assert!((200..=502).contains(&acks), "{acks} ACK frames for 1001 messages, one in two at most");
    network.check_no_leaks();
}

#[test]
fn memory_that_runs_out_slows_the_peer_and_loses_nothing() {
    let config = Config { memory_region: 64 << 10, memory_limit: 1 << 20, ..config() };
    let (mut network, a, b) = Network::pair(&config);
    for _ in 0..100 {
        network.send(0, a, &[1; 4000]);
    }
    // The owner keeps received messages until there is no memory for the next.
    network.run_for(Duration::from_millis(50));
    let held = network.hosts[1].events.len();
    let mut came = 0;
    let context = &mut network.hosts[1].context;
    let blocks: Vec<_> = core::iter::from_fn(|| context.allocate(4000).ok()).collect();
    for _ in 0..100 {
        network.send(0, a, &[2; 4000]);
    }
    network.run_for(Duration::from_millis(50));
    let starved = network.hosts[1].context.status(b).unwrap().stats.starved;
    assert!(starved > 0 && held <= 101, "{starved} receive requests were late");
    let now = network.now;
    blocks.into_iter().for_each(|block| network.hosts[1].context.free(now, block));
    network.run_until(|network| {
        came += network.take_messages(1).len();
        came == 200
    });
    assert_eq!(network.closed(0, a), None);
    network.check_no_leaks();
}

#[test]
fn an_ended_channel_returns_the_shared_requests_of_frames_that_nobody_handled() {
    let shared = Config { srq: 8, ..config() };
    let mut network = Network::new(2, 1, &shared);
    for _ in 0..4 {
        let (a, b) = network.connect(0, 1);
        let open = Event::Open { channel: b };
        network.run_until(|network| network.hosts[1].events.contains(&open));
        network.hosts[1].stuck = true;
        for _ in 0..4 {
            network.send(0, a, b"nobody handles this");
        }
        network.run_for(Duration::from_millis(1));
        let now = network.now;
        network.hosts[1].context.abort(now, b);
        network.hosts[0].context.abort(now, a);
        network.hosts[1].stuck = false;
        network.run_for(Duration::from_millis(1));
    }
    assert!(network.take_messages(1).is_empty(), "the frames waited when the channels ended");
    let (a, _) = network.connect(0, 1);
    network.send(0, a, b"hello");
    network.run_until(|network| !network.take_messages(1).is_empty());
    network.check_no_leaks();
}
