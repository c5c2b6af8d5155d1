//! Hosts with one context each, and the network and streams between them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_rnic::{Arrival, Device, Limits};
use weft_transport::{EndpointConfig, Secret, TransportConfig};
use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{Packet, RdmaHeader};

use crate::*;

pub(super) struct Host {
    pub(super) context: Context<Rnic>,
    pub(super) events: Vec<Event>,
    /// `true` if its application is stuck and does not poll, while its device works.
    pub(super) stuck: bool,
    /// `true` if it neither receives nor sends packets.
    pub(super) dead: bool,
}

struct OnWire {
    to: usize,
    arrival: Arrival,
    packet: Packet,
    rdma: Option<RdmaHeader>,
    payload: Vec<u8>,
}

pub(super) struct Network {
    pub(super) hosts: Vec<Host>,
    pub(super) now: Instant,
    /// Number of packets lost per thousand.
    pub(super) loss: u64,
    /// The delay of a packet, besides a jitter of up to 8 us.
    pub(super) delay: Duration,
    /// Hosts whose packets are lost, while their streams are not.
    pub(super) no_rdma: BTreeSet<usize>,
    /// The delay of bytes on streams.
    pub(super) stream_delay: Duration,
    /// Bytes on streams, with the time and the end of their arrival.
    on_streams: VecDeque<(Instant, (usize, ChannelId), Vec<u8>)>,
    wire: BTreeMap<(Instant, u64), OnWire>,
    /// Streams: the other end of each end.
    streams: BTreeMap<(usize, ChannelId), (usize, ChannelId)>,
    sequence: u64,
    rng: Rng,
}

fn address(host: usize) -> SocketAddr {
    let [.., high, low] = (host + 1).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 0, high, low), 4791).into()
}

pub(super) fn config() -> Config {
    Config { depth: 8, ack_every: 2, ..Config::default() }
}

impl Network {
    pub(super) fn new(hosts: usize, seed: u64, config: &Config) -> Self {
        let host = |number: usize| {
            let transport = TransportConfig {
                mtu: 1024,
                paths: 4,
                peer_timeout: Duration::from_millis(50),
                ..TransportConfig::stellar()
            };
            let endpoint = EndpointConfig {
                transport,
                receive_port: 4791,
                thread_id: 0,
                accept: true,
                max_connections: 1 << 16,
            };
            let seed = Seed(seed).child("host", number as u64);
            let device = Device::new(Limits::default(), endpoint, seed, Secret::from_seed(seed));
            let rnic = Rnic::new(device.unwrap(), address(number)).unwrap();
            let secret = u128::from(seed.rng().next_u64()).to_be_bytes();
            let context = Context::new(config.clone(), rnic, seed, secret).unwrap();
            Host { context, events: Vec::new(), stuck: false, dead: false }
        };
        Self {
            hosts: (0..hosts).map(host).collect(),
            now: Instant::from_nanos(1_000_000_000),
            loss: 0,
            delay: Duration::from_micros(5),
            no_rdma: BTreeSet::new(),
            stream_delay: Duration::ZERO,
            on_streams: VecDeque::new(),
            wire: BTreeMap::new(),
            streams: BTreeMap::new(),
            sequence: 0,
            rng: Seed(seed).child("network", 0).rng(),
        }
    }

    pub(super) fn pair(config: &Config) -> (Self, ChannelId, ChannelId) {
        let mut network = Self::new(2, 1, config);
        let (a, b) = network.connect(0, 1);
        (network, a, b)
    }

    /// Connects two hosts and returns the channel's ends; the server's end is not open yet.
    pub(super) fn connect(&mut self, client: usize, server: usize) -> (ChannelId, ChannelId) {
        let now = self.now;
        let (id, offer) = self.hosts[client].context.offer(now).unwrap();
        let (other, answer) = self.hosts[server].context.accept(now, &offer).unwrap();
        self.hosts[client].context.establish(now, id, &answer).unwrap();
        (id, other)
    }

    /// Attaches a stream to a channel.
    pub(super) fn attach(&mut self, a: (usize, ChannelId), b: (usize, ChannelId)) {
        for (this, other) in [(a, b), (b, a)] {
            assert!(self.hosts[this.0].context.attach_stream(this.1));
            self.streams.insert(this, other);
        }
    }

    fn poll(&mut self) {
        for host in self.hosts.iter_mut().filter(|host| !host.stuck && !host.dead) {
            while host.context.poll(self.now) {}
            host.events.extend(core::iter::from_fn(|| host.context.poll_event()));
        }
    }

    fn carry_streams(&mut self) {
        let streams: Vec<_> = self.streams.iter().map(|(from, to)| (*from, *to)).collect();
        for ((host, channel), (to, other)) in streams {
            let silent = |host: &Host| host.stuck || host.dead;
            if silent(&self.hosts[host]) || silent(&self.hosts[to]) {
                continue;
            }
            let mut buffer = [0; 3000];
            loop {
                // Reads end at arbitrary bytes, as in TCP.
                let room = 1 + self.rng.index(buffer.len() - 1);
                let len = self.hosts[host].context.poll_stream(channel, &mut buffer[..room]);
                if len == 0 {
                    break;
                }
                let at = self.now + self.stream_delay;
                self.on_streams.push_back((at, (to, other), buffer[..len].to_vec()));
                self.deliver_streams();
            }
        }
        self.deliver_streams();
    }

    fn deliver_streams(&mut self) {
        while let Some((_, (to, channel), bytes)) =
            self.on_streams.pop_front_if(|(at, ..)| *at <= self.now)
        {
            self.hosts[to].context.handle_stream(self.now, channel, &bytes);
        }
    }

    fn transmit(&mut self) {
        for from in 0..self.hosts.len() {
            let (loss, dead) = (self.loss, self.hosts[from].dead || self.no_rdma.contains(&from));
            let mut sent = Vec::new();
            let rnic = self.hosts[from].context.verbs_mut();
            while rnic.poll_transmit(self.now, |transmit, payload| {
                sent.push((*transmit, payload.to_vec()));
            }) {}
            for (transmit, payload) in sent {
                let to = (0..self.hosts.len()).find(|&host| address(host) == transmit.to);
                if dead || self.rng.chance(loss, 1000) {
                    continue;
                }
                let Some(to) = to else { continue };
                let jitter = Duration::from_nanos(self.rng.below(8000));
                let at = self.now + self.delay + jitter;
                let source = SocketAddr::new(address(from).ip(), 0xc000 + transmit.path.0);
                let arrival = Arrival {
                    from: source,
                    received_at: at,
                    congestion_experienced: false,
                    hops: 3,
                };
                let (packet, rdma) = (transmit.packet, transmit.rdma);
                self.sequence += 1;
                let on_wire = OnWire { to, arrival, packet, rdma, payload };
                self.wire.insert((at, self.sequence), on_wire);
            }
        }
    }

    /// Advances to the next event. Returns `false` if there is none by `until`.
    fn step(&mut self, until: Instant) -> bool {
        self.poll();
        self.carry_streams();
        self.poll();
        self.transmit();
        let arrival = self.wire.keys().next().map(|key| key.0);
        let deadlines = self.hosts.iter().flat_map(|host| {
            let owner = host.context.poll_timeout().filter(|_| !host.stuck && !host.dead);
            [owner, host.context.verbs().poll_timeout()]
        });
        let on_streams = self.on_streams.front().map(|(at, ..)| *at);
        let next = deadlines.flatten().chain(arrival).chain(on_streams).min();
        let Some(next) = next.filter(|&at| at <= until) else { return false };
        self.now = self.now.max(next);
        while self.wire.first_key_value().is_some_and(|(key, _)| key.0 <= self.now) {
            let (_, on_wire) = self.wire.pop_first().expect("looked just now");
            let OnWire { to, arrival, packet, rdma, payload } = on_wire;
            if self.hosts[to].dead || self.no_rdma.contains(&to) {
                continue;
            }
            let rnic = self.hosts[to].context.verbs_mut();
            rnic.handle_packet(self.now, &arrival, &packet, rdma.as_ref(), &payload);
        }
        for host in &mut self.hosts {
            host.context.verbs_mut().handle_timeout(self.now);
        }
        true
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    /// Runs until `done` returns `true`; fails after ten seconds.
    pub(super) fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.now + Duration::from_secs(10);
        while !done(self) {
            assert!(self.step(until), "not done after ten seconds");
        }
    }

    /// Returns the messages received by a host, in order, and releases their memory.
    pub(super) fn take_messages(&mut self, host: usize) -> Vec<(ChannelId, CallRole, Vec<u8>)> {
        let now = self.now;
        let Host { context, events, .. } = &mut self.hosts[host];
        let mut messages = Vec::new();
        for event in core::mem::take(events) {
            match event {
                Event::Message { channel, message } => {
                    messages.push((channel, message.call, context.body(&message).to_vec()));
                    context.release(now, message);
                }
                other => events.push(other),
            }
        }
        messages
    }

    pub(super) fn send(&mut self, host: usize, channel: ChannelId, body: &[u8]) -> u64 {
        self.hosts[host].context.send(self.now, channel, Payload::Copy(body)).unwrap()
    }

    /// Returns the reason why a channel ended, if it did.
    pub(super) fn closed(&self, host: usize, channel: ChannelId) -> Option<CloseReason> {
        self.hosts[host].events.iter().find_map(|event| match event {
            Event::Closed { channel: closed, reason } if *closed == channel => Some(*reason),
            _ => None,
        })
    }

    /// Ends everything and checks that no resource remains allocated.
    pub(super) fn check_no_leaks(mut self) {
        for host in 0..self.hosts.len() {
            self.take_messages(host);
            let context = &mut self.hosts[host].context;
            let all: Vec<_> = context.channels().collect();
            all.into_iter().for_each(|channel| context.abort(self.now, channel));
            let shared = u64::from(context.config().srq);
            if shared > 0 {
                // The shared queue keeps its memory until the context ends.
                let max = shared * u64::from(context.config().small + 1024);
                assert!(context.memory().used <= max, "host {host} still uses memory");
                context.shut_down(self.now);
            }
            assert_eq!(context.memory().used, 0, "host {host} still uses memory");
            let keep = context.config().memory_keep;
            context.poll(self.now + keep);
            assert_eq!(context.memory().registered, 0, "host {host} still has regions");
        }
    }
}
