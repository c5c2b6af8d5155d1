//! Groups on X-RDMA channels over Weft's RNIC, on a network that loses and reorders packets and breaks paths.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_msg::{Context, Message, Rnic};
use weft_rnic::{Arrival, Device, Limits};
use weft_transport::{EndpointConfig, Secret, TransportConfig};
use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{Packet, RdmaHeader};

use super::values::{call, check, encode, values};
use crate::{
    Call, Channel, Collective, Config, DataType, Event, Group, GroupEvent, Lanes, MessageLink, Op,
};

const ONE_WAY: Duration = Duration::from_micros(5);
const PATHS: u16 = 4;

struct Rank {
    context: Context<Rnic>,
    lanes: Lanes,
    group: Group<Vec<u8>, Message>,
    events: Vec<Event<Vec<u8>>>,
    dead: bool,
}

struct InFlight {
    to: usize,
    arrival: Arrival,
    packet: Packet,
    rdma: Option<RdmaHeader>,
    payload: Vec<u8>,
}

struct Network {
    ranks: Vec<Rank>,
    now: Instant,
    /// Number of packets lost of a thousand.
    loss: u64,
    /// A path that loses all packets from some time on.
    dead_path: Option<(u16, Instant)>,
    wire: BTreeMap<(Instant, u64), InFlight>,
    sent: u64,
    rng: Rng,
}

fn address(rank: usize) -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, u8::try_from(rank + 1).expect("few")), 4791).into()
}

fn context(rank: usize, seed: Seed) -> Context<Rnic> {
    let transport = TransportConfig {
        mtu: 1024,
        paths: PATHS,
        peer_timeout: Duration::from_millis(50),
        ..TransportConfig::stellar()
    };
    let endpoint = EndpointConfig {
        transport,
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 1 << 10,
    };
    let seed = seed.child("rank", rank as u64);
    let device = Device::new(Limits::default(), endpoint, seed, Secret::from_seed(seed)).unwrap();
    let rnic = Rnic::new(device, address(rank)).unwrap();
    Context::new(weft_msg::Config::default(), rnic, seed, [7; 16]).unwrap()
}

impl Network {
    /// Returns a group in which each pair of ranks has `lanes` channels.
    fn new(ranks: usize, lanes: usize, seed: u64) -> Self {
        let rank = |rank| Rank {
            context: context(rank, Seed(seed)),
            lanes: Lanes::new(ranks),
            group: Group::new(
                rank,
                Config { max_body: 6_000, ..Config::of(ranks, Some(Channel::Network)) },
            ),
            events: Vec::new(),
            dead: false,
        };
        let mut network = Self {
            ranks: (0..ranks).map(rank).collect(),
            now: Instant::from_nanos(1_000_000_000),
            loss: 0,
            dead_path: None,
            wire: BTreeMap::new(),
            sent: 0,
            rng: Seed(seed).child("network", 0).rng(),
        };
        for a in 0..ranks {
            (0..a).for_each(|b| (0..lanes).for_each(|_| network.connect(a, b)));
        }
        network
    }

    fn connect(&mut self, a: usize, b: usize) {
        let now = self.now;
        let (id, offer) = self.ranks[a].context.offer(now).unwrap();
        let (other, answer) = self.ranks[b].context.accept(now, &offer).unwrap();
        self.ranks[a].context.establish(now, id, &answer).unwrap();
        self.ranks[a].lanes.add(b, id);
        self.ranks[b].lanes.add(a, other);
    }

    fn poll(&mut self) {
        let now = self.now;
        for Rank { context, lanes, group, events, dead } in &mut self.ranks {
            if *dead {
                continue;
            }
            while context.poll(now) {}
            while let Some(event) = context.poll_event() {
                match lanes.ingest(now, context, event) {
                    Some(GroupEvent::Message { from, message }) => {
                        group.handle_message(
                            from,
                            message,
                            &mut MessageLink { context, lanes, now },
                        );
                    }
                    Some(GroupEvent::Left { rank }) => group.peer_left(rank),
                    Some(GroupEvent::Gone { rank, why }) => group.peer_gone(rank, why.to_string()),
                    None => {}
                }
            }
            group.advance(now, &mut MessageLink { context, lanes, now });
            events.extend(core::iter::from_fn(|| group.poll_event()));
        }
    }

    fn transmit(&mut self) {
        for from in 0..self.ranks.len() {
            let mut sent = Vec::new();
            let rnic = self.ranks[from].context.verbs_mut();
            while rnic.poll_transmit(self.now, |transmit, payload| {
                sent.push((*transmit, payload.to_vec()));
            }) {}
            for (transmit, payload) in sent {
                let (path, now) = (transmit.path.0, self.now);
                let died = self.dead_path.is_some_and(|(dead, at)| dead == path && now >= at);
                if self.ranks[from].dead || died || self.rng.chance(self.loss, 1000) {
                    continue;
                }
                let to = (0..self.ranks.len()).find(|&rank| address(rank) == transmit.to);
                let Some(to) = to else { continue };
                let at = self.now + ONE_WAY + Duration::from_nanos(self.rng.below(8000));
                let from = SocketAddr::new(address(from).ip(), 0xc000 + path);
                let arrival =
                    Arrival { from, received_at: at, congestion_experienced: false, hops: 3 };
                let (packet, rdma) = (transmit.packet, transmit.rdma);
                self.sent += 1;
                self.wire.insert((at, self.sent), InFlight { to, arrival, packet, rdma, payload });
            }
        }
    }

    /// Advances the clock to the next event.
    fn step(&mut self) {
        self.poll();
        self.transmit();
        let arrival = self.wire.keys().next().map(|key| key.0);
        let due =
            self.ranks.iter().filter(|rank| !rank.dead).flat_map(|rank| {
                [rank.context.poll_timeout(), rank.context.verbs().poll_timeout()]
            });
        let next = due.flatten().chain(arrival).min().expect("there are keepalives");
        self.now = self.now.max(next);
        while self.wire.first_key_value().is_some_and(|(key, _)| key.0 <= self.now) {
            let (_, InFlight { to, arrival, packet, rdma, payload }) =
                self.wire.pop_first().unwrap();
            if !self.ranks[to].dead {
                let rnic = self.ranks[to].context.verbs_mut();
                rnic.handle_packet(self.now, &arrival, &packet, rdma.as_ref(), &payload);
            }
        }
        for rank in &mut self.ranks {
            rank.context.verbs_mut().handle_timeout(self.now);
        }
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let until = self.now + Duration::from_secs(20);
        while !done(self) {
            assert!(self.now < until, "not within twenty seconds: {what}");
            self.step();
        }
    }

    /// Runs calls at all ranks and checks their results.
    fn run_calls(&mut self, calls: &[Call]) {
        let ranks = self.ranks.len();
        let values: Vec<_> = calls.iter().map(|call| values(call, ranks, &mut self.rng)).collect();
        for (call, values) in calls.iter().zip(&values) {
            for (rank, values) in self.ranks.iter_mut().zip(values) {
                rank.group.submit(*call, encode(call.data_type, values)).expect("it can be");
            }
        }
        self.run_until("calls", |network| {
            network.ranks.iter().all(|rank| rank.events.len() == calls.len())
        });
        for rank in 0..ranks {
            let events = core::mem::take(&mut self.ranks[rank].events);
            for (event, (call, values)) in events.iter().zip(calls.iter().zip(&values)) {
                assert_eq!(event.result, Ok(()), "{call}");
                check(call, values, rank, &event.buffer);
            }
        }
    }
}

#[test]
fn results_are_right_while_packets_are_lost_and_a_path_dies() {
    for seed in 0..4 {
        let mut network = Network::new(2 + usize::try_from(seed).unwrap() % 3, 2, seed);
        network.loss = [0, 10, 50, 10][usize::try_from(seed).unwrap()];
        network.dead_path = Some((1, network.now + Duration::from_millis(1)));
        let ranks = network.ranks.len();
        let mut rng = Seed(seed).child("calls", 0).rng();
        let calls: Vec<Call> = (0..8).map(|_| call(ranks, 60_000, &mut rng)).collect();
        network.run_calls(&calls);
        network.run_until("memory comes back", |network| {
            network.ranks.iter().all(|rank| rank.lanes.is_idle())
        });
    }
}

#[test]
fn a_rank_that_stops_answering_is_named_to_all() {
    let mut network = Network::new(3, 1, 9);
    let sum = Call {
        collective: Collective::AllReduce,
        data_type: DataType::Fp32,
        op: Op::Sum,
        root: 0,
        elements: 200_000,
    };
    for rank in &mut network.ranks {
        rank.group.submit(sum, alloc::vec![0; 800_000]).unwrap();
    }
    (0..50).for_each(|_| network.step());
    network.ranks[2].dead = true;
    network.run_until("an error", |network| {
        network.ranks[..2].iter().all(|rank| !rank.events.is_empty())
    });
    for rank in &network.ranks[..2] {
        let message = rank.events[0].result.as_ref().unwrap_err().to_string();
        assert!(message.contains("rank 2 is gone: the peer is gone"), "{message}");
    }
}
