//! Random operations, which must keep all guarantees; a failure prints its seed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use weft_units::{Duration, Rng, Seed};

use super::network::Network;
use crate::*;

/// The messages that a channel's two ends sent and received.
#[derive(Default)]
struct Book {
    sent: BTreeSet<u64>,
    received: BTreeSet<u64>,
    asked: BTreeMap<u64, u64>,
    answered: BTreeSet<u64>,
}

struct World {
    network: Network,
    /// Books by sending end: host and channel.
    books: BTreeMap<(usize, ChannelId), Book>,
    /// The other end of each end.
    peers: BTreeMap<(usize, ChannelId), (usize, ChannelId)>,
    seed: u64,
    next: u64,
}

fn random_config(rng: &mut Rng) -> Config {
    let depth = 3 + u16::try_from(rng.below(30)).unwrap();
    Config {
        depth,
        ack_every: 1 + u16::try_from(rng.below(u64::from(depth))).unwrap(),
        small: 64 << rng.below(7),
        fragment: 4096 << rng.below(5),
        reads: 1 + u8::try_from(rng.below(8)).unwrap(),
        outstanding: 4096 << rng.below(11),
        outstanding_min: 4096 << rng.below(11),
        deadlock_after: Duration::from_micros(500),
        keepalive: Duration::from_millis(20 + rng.below(200)),
        memory_region: 64 << 10 << rng.below(6),
        trace_every: u32::try_from(rng.below(3)).unwrap(),
        qp_cache: u32::try_from(rng.below(3)).unwrap(),
        srq: [0, 0, 0, 40][rng.index(4)],
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64, rng: &mut Rng) -> Self {
        let mut network = Network::new(3, seed, &random_config(rng));
        network.loss = [0, 0, 5, 30][rng.index(4)];
        Self { network, books: BTreeMap::new(), peers: BTreeMap::new(), seed, next: 0 }
    }

    fn connect(&mut self, rng: &mut Rng) {
        let client = rng.index(3);
        let server = (client + 1 + rng.index(2)) % 3;
        let (a, b) = self.network.connect(client, server);
        for (this, other) in [((client, a), (server, b)), ((server, b), (client, a))] {
            self.books.insert(this, Book::default());
            self.peers.insert(this, other);
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<(usize, ChannelId)> {
        let all: Vec<_> = self.books.keys().copied().collect();
        (!all.is_empty()).then(|| all[rng.index(all.len())])
    }

    fn send(&mut self, rng: &mut Rng) {
        let Some((host, channel)) = self.any(rng) else { return };
        self.next += 1;
        let len = 8 + if rng.chance(1, 6) { rng.index(200_000) } else { rng.index(300) };
        let mut body = alloc::vec![0xab; len];
        body[..8].copy_from_slice(&self.next.to_be_bytes());
        let context = &mut self.network.hosts[host].context;
        let (now, payload) = (self.network.now, Payload::Copy(&body));
        let book = self.books.get_mut(&(host, channel)).unwrap();
        if rng.chance(1, 2) {
            if context.send(now, channel, payload).is_ok() {
                book.sent.insert(self.next);
            }
        } else if let Ok(id) = context.request(now, channel, payload) {
            book.asked.insert(id, self.next);
        }
    }

    fn take(&mut self) {
        for host in 0..3 {
            for (channel, call, body) in self.network.take_messages(host) {
                let number = u64::from_be_bytes(body[..8].try_into().unwrap());
                assert!(body[8..].iter().all(|&byte| byte == 0xab), "seed {}", self.seed);
                let sender = self.peers[&(host, channel)];
                match call {
                    CallRole::OneWay => {
                        let book = self.books.get_mut(&sender).unwrap();
                        assert!(
                            book.sent.contains(&number) && book.received.insert(number),
                            "seed {}",
                            self.seed
                        );
                    }
                    CallRole::Request(id) => {
                        let now = self.network.now;
                        let context = &mut self.network.hosts[host].context;
                        // The channel may be closing.
                        let _ = context.respond(now, channel, id, Payload::Copy(&body));
                    }
                    CallRole::Response(id) => {
                        let book = self.books.get_mut(&(host, channel)).unwrap();
                        assert_eq!(book.asked.get(&id), Some(&number), "seed {}", self.seed);
                        assert!(book.answered.insert(id), "seed {}: answered twice", self.seed);
                    }
                }
            }
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(20) {
            0 => self.connect(rng),
            1 => {
                if let Some((host, channel)) = self.any(rng) {
                    let stuck = !self.network.hosts[host].stuck;
                    self.network.hosts[host].stuck = stuck;
                    let _ = channel;
                }
            }
            2..=15 => self.send(rng),
            _ => {
                self.network.run_for(Duration::from_micros(rng.below(500)));
                self.take();
            }
        }
    }

    fn complete(&self) -> bool {
        self.books.values().all(|book| {
            book.sent.len() == book.received.len() && book.asked.len() == book.answered.len()
        })
    }
}

#[test]
fn any_order_of_operations_delivers_everything_once() {
    for seed in 0..150 {
        let mut rng = Seed(seed).child("operations", 0).rng();
        let mut world = World::new(seed, &mut rng);
        for _ in 0..150 {
            world.step(&mut rng);
        }
        world.network.hosts.iter_mut().for_each(|host| host.stuck = false);
        let until = world.network.now + Duration::from_secs(5);
        while !world.complete() {
            world.network.run_for(Duration::from_micros(500));
            world.take();
            let closed: Vec<_> = (0..3)
                .flat_map(|host| &world.network.hosts[host].events)
                .filter(|event| matches!(event, Event::Closed { .. }))
                .collect();
            assert!(closed.is_empty(), "seed {seed}: {closed:?}");
            assert!(world.network.now < until, "seed {seed}: not delivered");
        }
        world.network.check_no_leaks();
    }
}
