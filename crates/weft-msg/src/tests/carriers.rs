//! A channel changes its carrier under load without loss or duplication (X-RDMA, section VI.C).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use weft_units::{Duration, Seed};

use super::network::{Network, config};
use crate::verbs::Verbs;
use crate::*;

/// Numbered messages in both directions, some of them large, and the numbers received.
struct Traffic {
    sent: [u32; 2],
    received: [BTreeSet<u32>; 2],
    ids: [ChannelId; 2],
}

impl Traffic {
    fn send(&mut self, network: &mut Network, rng: &mut weft_units::Rng) {
        for host in 0..2 {
            let len = if rng.chance(1, 5) { 70_000 } else { 4 + rng.index(500) };
            let mut body = alloc::vec![0; len];
            body[..4].copy_from_slice(&self.sent[host].to_be_bytes());
            network.send(host, self.ids[host], &body);
            self.sent[host] += 1;
        }
    }

    fn take(&mut self, network: &mut Network, seed: u64) {
        for host in 0..2 {
            for (_, _, body) in network.take_messages(host) {
                let number = u32::from_be_bytes(body[..4].try_into().unwrap());
                assert!(self.received[host].insert(number), "seed {seed}: {number} came twice");
            }
        }
    }

    fn complete(&self) -> bool {
        (0..2).all(|host| self.received[host].len() == self.sent[1 - host] as usize)
    }
}

/// Every other seed has a shared receive queue.
fn begin(seed: u64) -> (Network, Traffic) {
    let config = Config { srq: if seed.is_multiple_of(2) { 0 } else { 40 }, ..config() };
    let mut network = Network::new(2, seed, &config);
    let (a, b) = network.connect(0, 1);
    network.attach((0, a), (1, b));
    network.loss = seed % 20;
    network.run_for(Duration::from_millis(2));
    let received = [BTreeSet::new(), BTreeSet::new()];
    (network, Traffic { sent: [0; 2], received, ids: [a, b] })
}

#[test]
fn to_tcp_and_back_under_load_nothing_is_lost_or_duplicated() {
    for seed in 0..40 {
        let (mut network, mut traffic) = begin(seed);
        let mut rng = Seed(seed).child("carriers", 0).rng();
        for _ in 0..60 {
            traffic.send(&mut network, &mut rng);
            if rng.chance(1, 8) {
                let host = rng.index(2);
                let to = [Carrier::Rdma, Carrier::Stream][rng.index(2)];
                let id = traffic.ids[host];
                network.hosts[host].context.switch(network.now, id, to).unwrap();
            }
            network.run_for(Duration::from_micros(rng.below(300)));
            traffic.take(&mut network, seed);
        }
        network.run_until(|network| {
            traffic.take(network, seed);
            traffic.complete()
        });
        let status = network.hosts[0].context.status(traffic.ids[0]).unwrap();
        assert!(status.stats.switches > 0 || seed > 0, "seed 0 switches");
        network.check_no_leaks();
    }
}

#[test]
fn a_broken_queue_pair_fails_over_to_the_stream() {
    for seed in 0..40 {
        let (mut network, mut traffic) = begin(seed);
        let mut rng = Seed(seed).child("failover", 0).rng();
        let breaks_at = rng.index(40);
        for round in 0..60 {
            traffic.send(&mut network, &mut rng);
            if round == breaks_at {
                network.no_rdma.insert(rng.index(2));
            }
            if rng.chance(1, 10) {
                let to = [Carrier::Rdma, Carrier::Stream][rng.index(2)];
                let _ = network.hosts[0].context.switch(network.now, traffic.ids[0], to);
            }
            network.run_for(Duration::from_micros(rng.below(300)));
            traffic.take(&mut network, seed);
        }
        network.run_until(|network| {
            traffic.take(network, seed);
            traffic.complete()
        });
        let carriers: Vec<_> = (0..2)
            .map(|host| network.hosts[host].context.status(traffic.ids[host]).unwrap().carrier)
            .collect();
        assert_eq!(carriers, [Carrier::Stream; 2], "seed {seed}");
        network.check_no_leaks();
    }
}

/// The device reports an unreachable peer later than twice the keepalive time, and an owner may poll as late.
#[test]
fn a_stream_is_not_silent_before_its_first_probe() {
    let (mut network, traffic) = begin(0);
    for carrier in [Carrier::Rdma, Carrier::Stream] {
        if carrier == Carrier::Rdma {
            network.no_rdma.extend([0, 1]);
        }
        network.now += config().keepalive * 10;
        network.run_for(config().keepalive * 3);
        for (host, id) in traffic.ids.into_iter().enumerate() {
            assert_eq!(network.closed(host, id), None, "host {host}, on {carrier:?}");
            let status = network.hosts[host].context.status(id).unwrap();
            assert_eq!(status.carrier, Carrier::Stream);
        }
    }
}

#[test]
fn a_channel_without_stream_does_not_switch() {
    let (mut network, a, _) = Network::pair(&config());
    let context = &mut network.hosts[0].context;
    assert_eq!(context.switch(network.now, a, Carrier::Stream), Err(SwitchError::NoStream));
    network.check_no_leaks();
}

#[test]
fn the_end_of_a_stream_in_use_ends_only_its_channel() {
    let (mut network, traffic) = begin(0);
    let (spare, _) = network.connect(0, 1);
    let [a, _] = traffic.ids;
    network.hosts[0].context.switch(network.now, a, Carrier::Stream).unwrap();
    network.run_for(Duration::from_millis(5));
    network.hosts[0].context.handle_stream_end(network.now, a);
    network.run_for(Duration::from_millis(1));
    assert_eq!(network.closed(0, a), Some(CloseReason::StreamBroken));
    assert_eq!(network.closed(0, spare), None);
    network.check_no_leaks();
}

#[test]
fn a_switch_to_a_stream_that_ended_is_withdrawn() {
    let (mut network, traffic) = begin(0);
    let [a, _] = traffic.ids;
    let now = network.now;
    let context = &mut network.hosts[0].context;
    context.set("carrier", "tcp").unwrap();
    context.handle_stream_end(now, a);
    network.run_for(Duration::from_millis(5));
    network.send(0, a, b"over RDMA");
    network.run_until(|network| !network.take_messages(1).is_empty());
    assert_eq!(network.hosts[0].context.status(a).unwrap().carrier, Carrier::Rdma);
    network.check_no_leaks();
}

/// The device refuses the work of a channel that waited for a limit of the context.
#[test]
fn a_failure_of_work_that_waited_is_serviced_at_once() {
    for (host, len) in [(0, 3000), (1, 10_000)] {
        let config = Config { srq: 40, outstanding: 1, outstanding_min: 1, ..config() };
        let mut network = Network::new(2, 1, &config);
        let (a, b) = network.connect(0, 1);
        network.attach((0, a), (1, b));
        network.run_for(Duration::from_millis(2));
        network.send(0, a, &alloc::vec![1; len]);
        network.send(0, a, &alloc::vec![2; len]);
        network.hosts[host].stuck = true;
        network.run_for(Duration::from_micros(500));
        let (now, id) = (network.now, [a, b][host]);
        let context = &mut network.hosts[host].context;
        let qp = context.qp_of(id);
        context.ingest(now);
        context.verbs_mut().reset_qp(now, qp).unwrap();
        context.service(now);
        assert_eq!(context.status(id).unwrap().carrier, Carrier::Stream, "host {host}");
        assert_eq!(context.poll_pending_stream(), Some(id), "host {host}");
        network.hosts[host].stuck = false;
        let mut received = 0;
        network.run_until(|network| {
            received += network.take_messages(1).len();
            received == 2
        });
        network.check_no_leaks();
    }
}
