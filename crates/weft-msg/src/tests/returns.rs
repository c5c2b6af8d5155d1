//! The way back to RDMA, after a queue pair broke and after congestion, and the carrier that an operator chooses.

use alloc::vec::Vec;

use weft_units::{Duration, Rng, Seed};

use super::network::{Network, config};
use crate::*;

/// Sends numbered short messages both ways, and checks that they arrive in order, once.
struct Counters {
    ids: [ChannelId; 2],
    sent: [u64; 2],
    received: [u64; 2],
}

impl Counters {
    fn send(&mut self, network: &mut Network, rng: &mut Rng) {
        let host = rng.index(2);
        let mut body = alloc::vec![0; 8 + rng.index(3000)];
        body[..8].copy_from_slice(&self.sent[host].to_be_bytes());
        network.send(host, self.ids[host], &body);
        self.sent[host] += 1;
    }

    fn take(&mut self, network: &mut Network, seed: u64) {
        for host in 0..2 {
            for (_, _, body) in network.take_messages(host) {
                let number = u64::from_be_bytes(body[..8].try_into().unwrap());
                assert_eq!(number, self.received[host], "seed {seed}: in order, once");
                self.received[host] += 1;
            }
            assert_eq!(network.closed(host, self.ids[host]), None, "seed {seed}");
        }
    }

    fn complete(&self) -> bool {
        self.received == [self.sent[1], self.sent[0]]
    }

    fn carriers(&self, network: &Network) -> [Carrier; 2] {
        [0, 1].map(|host| network.hosts[host].context.status(self.ids[host]).unwrap().carrier)
    }
}

fn with_stream(seed: u64, config: &Config) -> (Network, Counters) {
    let mut network = Network::new(2, seed, config);
    let (a, b) = network.connect(0, 1);
    network.attach((0, a), (1, b));
    network.run_for(Duration::from_millis(2));
    (network, Counters { ids: [a, b], sent: [0; 2], received: [0; 2] })
}

#[test]
fn broken_queue_pairs_come_back_and_nothing_is_lost_repeated_or_reordered() {
    for seed in 0..30_u64 {
        let srq = if seed.is_multiple_of(3) { 40 } else { 0 };
        let retry = Duration::from_millis(5);
        let config = Config { srq, rdma_retry: retry, ..config() };
        let (mut network, mut counters) = with_stream(seed, &config);
        let mut rng = Seed(seed).child("returns", 0).rng();
        for _ in 0..80 {
            (0..rng.index(6)).for_each(|_| counters.send(&mut network, &mut rng));
            match rng.below(10) {
                0 => _ = network.no_rdma.insert(rng.index(2)),
                1 | 2 => network.no_rdma.clear(),
                3 => {
                    let host = rng.index(2);
                    let to = [Carrier::Rdma, Carrier::Stream][rng.index(2)];
                    let (now, id) = (network.now, counters.ids[host]);
                    let _ = network.hosts[host].context.switch(now, id, to);
                }
                _ => {}
            }
            // A queue pair breaks 50 ms after its network.
            network.run_for(Duration::from_micros(1 << rng.below(17)));
            counters.take(&mut network, seed);
            for host in &network.hosts {
                assert!(host.context.mapped_qps() <= 1, "seed {seed}: of one channel");
            }
        }
        network.no_rdma.clear();
        network.run_until(|network| {
            counters.take(network, seed);
            counters.complete()
        });
        // Either it is on RDMA, or it can go there, or it will when the next attempt is due.
        network.run_for(retry * 64);
        let (now, id) = (network.now, counters.ids[0]);
        let _ = network.hosts[0].context.switch(now, id, Carrier::Rdma);
        network.run_until(|network| counters.carriers(network) == [Carrier::Rdma; 2]);
        counters.send(&mut network, &mut rng);
        network.run_until(|network| {
            counters.take(network, seed);
            counters.complete()
        });
        network.check_no_leaks();
    }
}

/// Breaks RDMA until both ends are on the stream.
fn break_rdma(network: &mut Network, counters: &mut Counters, seed: u64) {
    let mut rng = Seed(seed).child("break", 0).rng();
    network.no_rdma.insert(0);
    for host in 0..2 {
        while counters.sent[host] == 0 {
            counters.send(network, &mut rng);
        }
    }
    network.run_until(|network| counters.carriers(network) == [Carrier::Stream; 2]);
    network.no_rdma.clear();
}

#[test]
fn answers_that_are_slower_than_the_next_offer_are_ignored() {
    for seed in 0..20 {
        let retry = Duration::from_millis(5);
        let (mut network, mut counters) =
            with_stream(seed, &Config { rdma_retry: retry, ..config() });
        // There and back takes longer than the times until the second and the third attempt.
        network.stream_delay = Duration::from_millis(12);
        break_rdma(&mut network, &mut counters, seed);
        network.run_until(|network| {
            counters.take(network, seed);
            counters.carriers(network) == [Carrier::Rdma; 2]
        });
        let mut rng = Seed(seed).child("slow answers", 0).rng();
        for _ in 0..100 {
            counters.send(&mut network, &mut rng);
            network.run_for(Duration::from_millis(3));
            counters.take(&mut network, seed);
        }
        network.run_until(|network| {
            counters.take(network, seed);
            counters.complete()
        });
        assert_eq!(counters.carriers(&network), [Carrier::Rdma; 2], "seed {seed}");
        let switches = |host: usize| {
            network.hosts[host].context.status(counters.ids[host]).unwrap().stats.switches
        };
        assert_eq!([switches(0), switches(1)], [2; 2], "seed {seed}: there and back once");
        network.check_no_leaks();
    }
}

#[test]
fn without_memory_for_an_offer_the_channel_stays_on_its_stream() {
    for (seed, host) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let config = Config {
            srq: 40,
            rdma_retry: Duration::from_millis(50),
            memory_limit: 1 << 20,
            memory_region: 64 << 10,
            ..config()
        };
        let (mut network, mut counters) = with_stream(seed, &config);
        break_rdma(&mut network, &mut counters, seed);
        // Until all messages are acknowledged, so that none returns memory later.
        network.run_for(Duration::from_millis(20));
        counters.take(&mut network, seed);
        assert!(counters.complete());
        let context = &mut network.hosts[host].context;
        let blocks: Vec<_> = core::iter::from_fn(|| context.allocate(1).ok()).collect();
        assert!(!blocks.is_empty());
        network.run_for(Duration::from_millis(400));
        counters.take(&mut network, seed);
        assert_eq!(counters.carriers(&network), [Carrier::Stream; 2], "seed {seed}");
        let now = network.now;
        blocks.into_iter().for_each(|block| network.hosts[host].context.free(now, block));
        network.run_until(|network| {
            counters.take(network, seed);
            counters.carriers(network) == [Carrier::Rdma; 2] && counters.complete()
        });
        network.check_no_leaks();
    }
}

#[test]
fn attempts_to_return_are_rarer_while_they_fail_and_can_be_switched_off() {
    for (retry, created) in [(Duration::from_millis(100), 3..8), (Duration::ZERO, 1..2)] {
        let config = Config { rdma_retry: retry, qp_cache: 0, ..config() };
        let (mut network, counters) = with_stream(1, &config);
        network.no_rdma.insert(0);
        network.run_for(Duration::from_secs(6));
        assert_eq!(counters.carriers(&network), [Carrier::Stream; 2]);
        for host in 0..2 {
            let qps = network.hosts[host].context.stats().qps_created;
            assert!(created.contains(&qps), "{qps} queue pairs");
        }
        network.check_no_leaks();
    }
}

#[test]
fn a_congested_channel_moves_to_its_stream_and_back_when_rdma_is_healthy() {
    let config = Config {
        congested_rtt: Duration::from_millis(2),
        congested_for: Duration::from_millis(10),
        ..config()
    };
    let (mut network, mut counters) = with_stream(1, &config);
    let mut rng = Seed(1).child("congestion", 0).rng();
    let mut run = |network: &mut Network, counters: &mut Counters, millis: u64| {
        for _ in 0..millis {
            (0..4).for_each(|_| counters.send(network, &mut rng));
            network.run_for(Duration::from_millis(1));
            counters.take(network, 1);
        }
    };
    run(&mut network, &mut counters, 100);
    assert_eq!(counters.carriers(&network), [Carrier::Rdma; 2]);
    network.delay = Duration::from_millis(5);
    run(&mut network, &mut counters, 60);
    assert_eq!(counters.carriers(&network), [Carrier::Stream; 2], "congested");
    run(&mut network, &mut counters, 200);
    assert_eq!(counters.carriers(&network), [Carrier::Stream; 2], "still");
    network.delay = Duration::from_micros(5);
    run(&mut network, &mut counters, 20);
    assert_eq!(counters.carriers(&network), [Carrier::Stream; 2], "not at once");
    run(&mut network, &mut counters, 200);
    assert_eq!(counters.carriers(&network), [Carrier::Rdma; 2], "healthy");
    network.run_until(|network| {
        counters.take(network, 1);
        counters.complete()
    });
    let switches = network.hosts[0].context.status(counters.ids[0]).unwrap().stats.switches;
    assert_eq!(switches, 2, "there and back once");
    network.check_no_leaks();
}

#[test]
fn a_parameter_moves_all_channels_that_have_a_stream_and_later_ones() {
    let (mut network, counters) = with_stream(1, &config());
    let (bare, _) = network.connect(0, 1);
    network.hosts[0].context.set("carrier", "tcp").unwrap();
    network.run_until(|network| counters.carriers(network) == [Carrier::Stream; 2]);
    let (a, b) = network.connect(0, 1);
    network.attach((0, a), (1, b));
    let carrier = |network: &Network, id| network.hosts[0].context.status(id).unwrap().carrier;
    network.run_until(|network| carrier(network, a) == Carrier::Stream);
    assert_eq!(carrier(&network, bare), Carrier::Rdma);
    network.hosts[0].context.set("carrier", "rdma").unwrap();
    network.run_until(|network| counters.carriers(network) == [Carrier::Rdma; 2]);
    let refused = network.hosts[0].context.set("carrier", "udp").unwrap_err().to_string();
    assert_eq!(refused, "carrier: \"udp\" is not rdma or tcp");
    network.check_no_leaks();
}
