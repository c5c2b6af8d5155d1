//! The end of channels, which must free all resources.

use alloc::vec::Vec;

use weft_units::Duration;

use super::network::{Network, config};
use crate::*;

#[test]
fn a_close_follows_all_messages_sent_before() {
    let (mut network, a, b) = Network::pair(&config());
    for len in [10, 50_000, 10] {
        for _ in 0..20 {
            network.send(0, a, &alloc::vec![1; len]);
        }
    }
    let now = network.now;
    network.hosts[0].context.close(now, a);
    let refused = network.hosts[0].context.send(now, a, Payload::Copy(b"late"));
    assert_eq!(refused, Err(SendError::Closed));
    let mut came = 0;
    network.run_until(|network| {
        came += network.take_messages(1).len();
        network.closed(0, a).is_some() && network.closed(1, b).is_some()
    });
    came += network.take_messages(1).len();
    assert_eq!(came, 60);
    assert_eq!(network.closed(0, a), Some(CloseReason::Finished));
    assert_eq!(network.closed(1, b), Some(CloseReason::ByPeer));
    network.check_no_leaks();
}

#[test]
fn a_close_follows_a_message_that_a_filter_rule_delays_for_longer() {
    let (mut network, a, b) = Network::pair(&config());
    let now = network.now;
    network.hosts[0].context.set_filter(&["out delay 20us".parse().unwrap()]);
    network.send(0, a, b"delayed");
    network.hosts[0].context.close(now, a);
    network.run_until(|network| network.closed(0, a).is_some() && network.closed(1, b).is_some());
    network.run_for(Duration::from_millis(1));
    assert_eq!(network.take_messages(1).len(), 1);
    assert_eq!(network.closed(0, a), Some(CloseReason::Finished));
    assert_eq!(network.closed(1, b), Some(CloseReason::ByPeer));
    network.check_no_leaks();
}

#[test]
fn a_smaller_limit_trims_the_cache_of_queue_pairs() {
    let mut network = Network::new(1, 1, &config());
    let now = network.now;
    let context = &mut network.hosts[0].context;
    let offered: Vec<_> = (0..5).map(|_| context.offer(now).unwrap().0).collect();
    offered.into_iter().for_each(|channel| context.abort(now, channel));
    assert_eq!(context.cached_qps(), 5);
    context.set("qp_cache", "2").unwrap();
    context.poll(now);
    assert_eq!(context.cached_qps(), 2);
    network.check_no_leaks();
}

#[test]
fn a_dead_peer_is_detected_after_the_keepalive_and_all_resources_are_freed() {
    let config = Config { keepalive: Duration::from_millis(100), ..config() };
    for busy in [false, true] {
        let (mut network, a, _) = Network::pair(&config);
        network.run_for(Duration::from_millis(10));
        network.hosts[1].dead = true;
        if busy {
            for _ in 0..50 {
                network.send(0, a, &[1; 20_000]);
            }
        }
        let died = network.now;
        network.run_until(|network| network.closed(0, a).is_some());
        let detected = network.now.since(died);
        // The device declares its peer unreachable after eight tries of 67 ms.
        assert!(detected <= Duration::from_millis(660), "{detected}");
        assert!(matches!(network.closed(0, a), Some(CloseReason::PeerUnreachable(_))));
        network.hosts[1].dead = false;
        network.check_no_leaks();
    }
}

/// Returns parameters with which a probe's time limit is over before the device's retries, which last 537 ms.
fn impatient() -> Config {
    let ms = Duration::from_millis;
    Config { keepalive: ms(100), keepalive_timeout: ms(20), ..config() }
}

#[test]
fn a_silent_host_is_given_up_before_the_device_does() {
    let (mut network, a, _) = Network::pair(&impatient());
    network.run_for(Duration::from_millis(10));
    network.hosts[1].dead = true;
    let died = network.now;
    network.run_until(|network| network.closed(0, a).is_some());
    let detected = network.now.since(died);
    assert!(detected <= Duration::from_millis(125), "{detected}");
    assert!(matches!(network.closed(0, a), Some(CloseReason::PeerUnreachable(_))));
    network.hosts[1].dead = false;
    network.check_no_leaks();
}

#[test]
fn a_busy_host_whose_answer_is_late_is_kept_while_other_channels_of_it_are_alive() {
    for others in [false, true] {
        let (mut network, silent, _) = Network::pair(&impatient());
        let (_, talking) = network.connect(0, 1);
        network.run_for(Duration::from_millis(10));
        // A probe is answered after 30 ms.
        network.delay = Duration::from_millis(15);
        for _ in 0..60 {
            if others {
                network.send(1, talking, b"alive");
            }
            network.run_for(Duration::from_millis(5));
            network.take_messages(0);
        }
        assert_eq!(network.closed(0, silent).is_none(), others);
        network.check_no_leaks();
    }
}

#[test]
fn an_answer_that_the_owner_has_not_polled_yet_counts() {
    let (mut network, a, _) = Network::pair(&impatient());
    network.run_for(Duration::from_millis(115));
    // The probe was posted after 100 ms; its answer waits while the owner does something else.
    network.hosts[0].stuck = true;
    network.run_for(Duration::from_millis(500));
    network.hosts[0].stuck = false;
    let now = network.now;
    let context = &mut network.hosts[0].context;
    // The owner's timers are served first.
    context.service(now);
    context.poll(now);
    assert_eq!(network.closed(0, a), None);
    network.run_for(Duration::from_millis(10));
    assert_eq!(network.closed(0, a), None);
    network.check_no_leaks();
}

#[test]
fn an_idle_channel_stays_open_and_is_probed_once_per_keepalive() {
    let config = Config { keepalive: Duration::from_millis(100), ..config() };
    let (mut network, a, b) = Network::pair(&config);
    network.run_for(Duration::from_secs(2));
    let probes = network.hosts[0].context.status(a).unwrap().stats.probes;
    assert!((15..=20).contains(&probes), "{probes} in 2 s");
    assert_eq!((network.closed(0, a), network.closed(1, b)), (None, None));
    network.check_no_leaks();
}

#[test]
fn hundreds_of_channels_begin_and_end_and_leak_nothing() {
    let mut network = Network::new(2, 9, &config());
    for round in 0..300 {
        let (a, b) = network.connect(0, 1);
        network.send(0, a, b"hello");
        network.run_until(|network| !network.take_messages(1).is_empty());
        let now = network.now;
        match round % 4 {
            0 => network.hosts[0].context.close(now, a),
            1 => network.hosts[1].context.close(now, b),
            2 => network.hosts[0].context.abort(now, a),
            _ => {
                network.hosts[0].context.close(now, a);
                network.hosts[1].context.close(now, b);
            }
        }
        network
            .run_until(|network| network.closed(0, a).is_some() && network.closed(1, b).is_some());
        network.hosts.iter_mut().for_each(|host| host.events.clear());
    }
    for host in 0..2 {
        let stats = network.hosts[host].context.stats();
        assert_eq!((stats.channels, stats.closed), (300, 300));
        assert_eq!((stats.qps_created, stats.qps_reused), (1, 299), "host {host}");
    }
    network.check_no_leaks();
}

#[test]
fn invalid_offers_are_refused_and_leave_nothing() {
    let mut network = Network::new(2, 1, &config());
    let (_, offer) = network.hosts[0].context.offer(network.now).unwrap();
    let context = &mut network.hosts[1].context;
    for wrong in [
        weft_wire::ChannelOffer { depth: 2, ..offer },
        weft_wire::ChannelOffer { ack_frames: 0, ..offer },
        weft_wire::ChannelOffer { small: 0, ..offer },
        weft_wire::ChannelOffer { longest: 100, ..offer },
    ] {
        let refused = context.accept(network.now, &wrong);
        assert!(matches!(refused, Err(OfferError::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(context.channels().count(), 0);
    network.check_no_leaks();
}
