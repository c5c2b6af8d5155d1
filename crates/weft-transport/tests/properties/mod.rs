//! An endpoint that receives arbitrary packets of an attacker at arbitrary times, beside those of an honest peer. It
//! never panics, never loops, and all messages to and from the honest peer are delivered. The test of random scripts
//! and the fuzz target both call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use weft_transport::{
    Arrival, ConnectionId, Endpoint, EndpointConfig, Event, Message, Placement, Secret, Transmit,
    TransportConfig, TrimmedAt, Verdict, congestion, path,
};
use weft_units::{Duration, Instant, Seed};
use weft_wire::{Packet, SetupKind};

mod forge;
mod script;

use forge::Known;
use script::Script;

/// Runs the script `bytes`. Returns `true` if all messages of the honest peer had to be delivered, which is not
/// required where the attacker forged its address.
///
/// # Panics
/// Panics if the endpoint violates a guarantee.
pub fn endpoint(bytes: &[u8]) -> bool {
    let mut script = Script::new(bytes);
    let mut scene = Scene::new(&mut script);
    while let Some(step) = script.byte() {
        scene.play(step, &mut script);
    }
    scene.finish()
}

/// The hosts of the network, by index.
const VICTIM: usize = 0;
const HONEST: usize = 1;
const ENEMY: usize = 2;

const PORT: u16 = 4791;
const ONE_WAY: Duration = Duration::from_micros(5);

/// Maximum number of messages of each honest end, so that a long script ends.
const MAX_MESSAGES: usize = 30;

/// Maximum number of packets of the messages of all ends, for the same reason: more than the 512 of a window.
const MAX_PACKETS: u32 = 600;

/// More packets than any state of these endpoints can have to send at one time.
const MAX_PACKETS_AT_ONCE: usize = 100_000;

fn address(of: usize) -> SocketAddr {
    let last = u8::try_from(of + 1).expect("three of them");
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), PORT))
}

fn new_endpoint(config: &TransportConfig, seed: u64) -> Endpoint {
    let config = EndpointConfig {
        transport: config.clone(),
        receive_port: PORT,
        thread_id: 0,
        accept: true,
        max_connections: 8,
    };
    let mut endpoint = Endpoint::new(config, Seed(seed), Secret::from_seed(Seed(seed)))
        .expect("the configuration is in range");
    endpoint.set_first_psn(u32::MAX - 20);
    endpoint
}

fn config(script: &mut Script<'_>) -> TransportConfig {
    let choice = usize::from(script.byte().unwrap_or(0));
    let base =
        if choice % 2 == 0 { TransportConfig::stellar() } else { TransportConfig::bifrost() };
    TransportConfig {
        policy: path::Kind::ALL[choice / 2 % path::Kind::ALL.len()],
        congestion: congestion::Kind::ALL[choice / 16 % congestion::Kind::ALL.len()],
        paths: [1, 4, 128][choice % 3],
        mtu: [64, 1440, 9000][choice / 3 % 3],
        send_window: [1, 30, 512, 4096][choice / 4 % 4],
        reorder_window: [4096, 300, 7, 1][choice / 8 % 4],
        ack_every: [1, 4][choice / 5 % 2],
        peer_timeout: Duration::from_secs(3600),
        ..base
    }
}

/// The data that an honest end received from the other.
#[derive(Debug, Default)]
struct Received {
    placed: BTreeMap<(u32, u32), u16>,
    delivered: u32,
    bytes: u64,
}

/// The victim, its honest peer, and the network between them.
struct Scene {
    ends: [Endpoint; 2],
    /// Their connection, by end.
    honest: [ConnectionId; 2],
    /// The victim's connection to the enemy.
    enemy: ConnectionId,
    known: Known,
    now: Instant,
    wire: BTreeMap<(Instant, u64), (usize, Transmit)>,
    sequence: u64,
    submitted: [Vec<u32>; 2],
    /// The maximum payload of a packet, bytes, and the number of packets that further messages may take.
    mtu: u32,
    packets: u32,
    sent: [usize; 2],
    received: [Received; 2],
    /// Payload of the attacker that the victim's owner was asked to place and has not.
    unplaced: VecDeque<Placement>,
    /// `true` if a packet of the attacker carried the honest peer's address.
    forged_address: bool,
}

impl Scene {
    fn new(script: &mut Script<'_>) -> Self {
        let config = config(script);
        let now = Instant::from_nanos(1_000_000_000);
        let mut victim = new_endpoint(&config, 1);
        let mut peer = new_endpoint(&config, 2);
        let mut enemy = new_endpoint(&config, 3);
        let at = |of| address(of);
        let honest = Endpoint::join(now, (&mut victim, at(VICTIM)), (&mut peer, at(HONEST)));
        let other = Endpoint::join(now, (&mut victim, at(VICTIM)), (&mut enemy, at(ENEMY)));
        let (honest, other) = (honest.expect("there is room"), other.expect("there is room"));
        let known = Known {
            connections: [other.0.0, other.1.0, honest.0.0, honest.1.0],
            last_request: 0,
            psn: u32::MAX - 20,
            token: 0,
            stamp: now.to_wire(),
        };
        Self {
            ends: [victim, peer],
            honest: [honest.0, honest.1],
            enemy: other.0,
            known,
            now,
            wire: BTreeMap::new(),
            sequence: 0,
            submitted: [Vec::new(), Vec::new()],
            mtu: config.mtu.into(),
            packets: MAX_PACKETS,
            sent: [0; 2],
            received: Default::default(),
            unplaced: VecDeque::new(),
            forged_address: false,
        }
    }

    fn play(&mut self, step: u8, script: &mut Script<'_>) {
        match step % 8 {
            0..=3 => {
                if let Some((packet, len)) = forge::packet(step, &self.known, script) {
                    self.attack(script, &packet, len);
                }
            }
            4 => self.run(Duration::from_nanos(u64::from(script.word()) * 100)),
            5 => {
                let length = self.length(script);
                self.submit(usize::from(step / 8 % 2), length);
            }
            6 => {
                let length = self.length(script);
                let message = Message { token: 0, opcode: step, tag: 0, length };
                // The queue may be full, or the connection closed.
                let _ = self.ends[VICTIM].submit(self.now, self.enemy, message);
            }
            7 if step >= 64 => {
                // The victim may be at its limit of connections.
                let _ = self.ends[VICTIM].connect(self.now, address(ENEMY), 0);
            }
            _ => {
                if let Some(placement) = self.unplaced.pop_front() {
                    self.place(placement);
                }
            }
        }
        self.drain();
    }

    /// Draws a message's length in bytes: all magnitudes are equally likely, so that few scripts have many packets.
    fn length(&mut self, script: &mut Script<'_>) -> u32 {
        let drawn = script.word();
        let length = u32::from(drawn >> (drawn % 16)).min(self.packets * self.mtu);
        self.packets -= length.div_ceil(self.mtu);
        length
    }

    fn submit(&mut self, end: usize, length: u32) {
        if self.submitted[end].len() == MAX_MESSAGES {
            return;
        }
        let token = self.submitted[end].len() as u64;
        let message = Message { token, opcode: 1, tag: 0, length };
        match self.ends[end].submit(self.now, self.honest[end], message) {
            Ok(()) => self.submitted[end].push(length),
            Err(error) => assert!(self.forged_address, "{error}"),
        }
    }

    /// Passes a packet of the attacker to the victim.
    fn attack(&mut self, script: &mut Script<'_>, packet: &Packet, len: u16) {
        let flags = script.byte().unwrap_or(0);
        let forged = flags % 16 == 15;
        self.forged_address |= forged;
        let from = SocketAddr::new(address(if forged { HONEST } else { ENEMY }).ip(), flags.into());
        let arrival = Arrival {
            from,
            received_at: if flags & 32 == 0 {
                self.now
            } else {
                Instant::from_nanos(script.long())
            },
            congestion_experienced: flags & 64 != 0,
            hops: flags,
        };
        if let Packet::Data(header, _) = packet
            && flags & 16 != 0
        {
            let at = if flags & 1 == 0 { TrimmedAt::Fabric } else { TrimmedAt::LastHop };
            return self.ends[VICTIM].handle_trimmed(self.now, &arrival, header, at);
        }
        let verdict = self.ends[VICTIM].handle_packet(self.now, &arrival, packet, len);
        if let Verdict::Place(placement) = verdict {
            let end = u64::from(placement.offset) + u64::from(placement.len);
            assert!(end <= placement.length.into(), "{placement:?}");
            if flags & 128 == 0 {
                self.place(placement)
            } else {
                self.unplaced.push_back(placement)
            }
        }
    }

    /// Reports a packet as placed, twice; the connection may have ended meanwhile.
    fn place(&mut self, placement: Placement) {
        let _ = self.ends[VICTIM].placed(self.now, placement.connection, placement.psn);
        let again = self.ends[VICTIM].placed(self.now, placement.connection, placement.psn);
        assert!(again.is_err(), "{placement:?} was placed twice");
    }

    /// Sends all packets that are due at both ends, and handles their events.
    fn drain(&mut self) {
        for end in [VICTIM, HONEST] {
            for sent in 0.. {
                assert!(sent < MAX_PACKETS_AT_ONCE, "end {end} does not stop sending");
                let Some(transmit) = self.ends[end].poll_transmit(self.now) else { break };
                self.carry(end, transmit);
            }
            while let Some(event) = self.ends[end].poll_event() {
                self.on_event(end, event);
            }
        }
        assert!(self.ends[VICTIM].connections() <= 8);
    }

    fn carry(&mut self, from: usize, transmit: Transmit) {
        if transmit.to.ip() == address(1 - from).ip() {
            self.sequence += 1;
            self.wire.insert((self.now + ONE_WAY, self.sequence), (1 - from, transmit));
        } else if let Packet::Setup(header) = &transmit.packet {
            match header.kind {
                SetupKind::Challenge => {
                    self.known.token = header.terms.map_or(0, |terms| terms.token);
                }
                SetupKind::Request => self.known.last_request = header.local_cid,
                _ => {}
            }
        } else if let Packet::Data(header, _) = &transmit.packet {
            self.known.stamp = header.timestamp;
        }
    }

    fn on_event(&mut self, end: usize, event: Event) {
        match event {
            Event::Delivered { connection, message, length, .. }
                if connection == self.honest[end] && !self.forged_address =>
            {
                let received = &mut self.received[end];
                assert_eq!(message, received.delivered);
                assert_eq!(Some(&length), self.submitted[1 - end].get(message as usize));
                received.delivered += 1;
            }
            Event::Acked { connection, token } if connection == self.honest[end] => {
                assert!(self.forged_address || token == self.sent[end] as u64);
                self.sent[end] += 1;
            }
            Event::Closed { connection, reason } if connection == self.honest[end] => {
                assert!(self.forged_address, "end {end} closed: {reason:?}");
            }
            _ => {}
        }
    }

    /// Advances to the next arrival or timer. Returns `false` if there is none at or before `until`.
    fn step(&mut self, until: Instant) -> bool {
        let arrival = self.wire.keys().next().map(|key| key.0);
        let timers = self.ends.iter().filter_map(Endpoint::poll_timeout);
        let Some(next) = timers.chain(arrival).min().filter(|&at| at <= until) else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(first) = self.wire.first_entry().filter(|first| first.key().0 <= self.now) {
            let (to, transmit) = first.remove();
            self.deliver(to, &transmit);
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        self.drain();
        true
    }

    fn deliver(&mut self, to: usize, transmit: &Transmit) {
        let arrival = Arrival {
            from: SocketAddr::new(address(1 - to).ip(), 0xc000),
            received_at: self.now,
            congestion_experienced: false,
            hops: 1,
        };
        let len = transmit.payload.map_or(0, |payload| payload.len);
        let verdict = self.ends[to].handle_packet(self.now, &arrival, &transmit.packet, len);
        let Verdict::Place(placement) = verdict else { return };
        if placement.connection == self.honest[to] && !self.forged_address {
            let received = &mut self.received[to];
            let twice =
                received.placed.insert((placement.message, placement.offset), placement.len);
            assert_eq!(twice, None, "{placement:?}");
            received.bytes += u64::from(placement.len);
        }
        self.ends[to]
            .placed(self.now, placement.connection, placement.psn)
            .expect("placed just now");
    }

    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    fn all_acked(&self) -> bool {
        (0..2).all(|end| self.sent[end] == self.submitted[end].len())
    }

    /// Checks that all messages of the honest ends are delivered within five simulated seconds. Returns `false` if the
    /// attacker forged the honest peer's address.
    fn finish(mut self) -> bool {
        let until = self.now + Duration::from_secs(5);
        self.drain();
        if self.forged_address {
            self.run(Duration::from_millis(20));
            return false;
        }
        while !self.all_acked() {
            assert!(self.step(until), "not done: {:?} of {:?}", self.sent, self.submitted);
        }
        for end in 0..2 {
            let bytes: u64 = self.submitted[1 - end].iter().map(|&length| u64::from(length)).sum();
            assert_eq!(self.received[end].bytes, bytes);
        }
        true
    }
}
