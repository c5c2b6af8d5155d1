//! Two hosts with encryption, and a network that records, loses, changes and replays datagrams.

use std::collections::BTreeMap;

use weft_transport::{
    Arrival, CloseReason, Endpoint, EndpointConfig, Event, Message, Secret, SubmitError,
    TransportConfig, Verdict,
};
use weft_units::{Duration, Seed};

use super::*;
use crate::PresharedKey;

/// One host.
pub(super) struct Host {
    pub(super) at: SocketAddr,
    pub(super) endpoint: Endpoint,
    pub(super) seals: Seals,
    pub(super) events: Vec<Event>,
    /// Number of bytes placed at their correct positions.
    pub(super) placed: usize,
    /// Messages submitted on each connection: a message's token is its number.
    pub(super) submitted: BTreeMap<ConnectionId, u64>,
}

/// Returns the contents of a message at an offset: no two positions of a message or of consecutive messages are alike.
pub(super) fn contents(message: u64, offset: u32, len: usize) -> Vec<u8> {
    let at =
        |index: usize| (u64::from(offset) + index as u64) * 2_654_435_761 + message * 40_503 + 90;
    (0..len).map(|index| at(index).to_le_bytes()[1]).collect()
}

/// Returns `true` if a datagram contains the beginning of one of the messages up to number `messages`.
pub(super) fn contains_plaintext(bytes: &[u8], messages: u64) -> bool {
    (0..=messages).any(|message| bytes.windows(8).any(|at| at == contents(message, 0, 8)))
}

/// A datagram in the network: its source, its destination and its bytes.
pub(super) type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

/// Both hosts and the network between them.
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) hosts: [Host; 2],
    /// All datagrams that were sent.
    pub(super) recorded: Vec<Datagram>,
}

pub(super) fn host(last: u8, seed: u64, config: SealConfig) -> Host {
    let transport = TransportConfig {
        mtu: 1024,
        peer_timeout: Duration::from_secs(1),
        ..TransportConfig::bifrost()
    };
    let config_of = EndpointConfig {
        transport,
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 64,
    };
    let seed = Seed(seed).child("host", last.into());
    let endpoint = Endpoint::new(config_of, seed, Secret::from_seed(seed)).unwrap();
    let mut entropy = [0; 32];
    entropy[0] = last;
    entropy[1..9].copy_from_slice(&seed.0.to_le_bytes());
    Host {
        at: SocketAddr::new([10, 0, 0, last].into(), 4791),
        endpoint: endpoint.with_ended(),
        seals: Seals::new(config, entropy),
        events: Vec::new(),
        placed: 0,
        submitted: BTreeMap::new(),
    }
}

impl Host {
    pub(super) fn send(&mut self, now: Instant) -> Vec<Datagram> {
        let mut out = Vec::new();
        let Self { endpoint, seals, at, .. } = self;
        seals.handle_timeout(now);
        while let Some(transmit) = endpoint.poll_transmit(now) {
            let wrap = seals.wrap(&transmit.to, transmit.connection, &transmit.packet);
            let payload = usize::from(transmit.payload.map_or(transmit.padding, |piece| piece.len));
            let mut bytes = vec![0; transmit.packet.len() + payload + wrap.len()];
            let inside = wrap.inside_mut(0, &mut bytes);
            let header = transmit.packet.emit(inside);
            if let Some(piece) = transmit.payload {
                inside[header..].copy_from_slice(&contents(
                    piece.token,
                    piece.offset,
                    piece.len.into(),
                ));
            }
            seals.seal(wrap, 0, &mut bytes);
            out.push((*at, transmit.to, bytes));
        }
        while let Some(ended) = endpoint.poll_ended() {
            seals.remove(ended);
        }
        out
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        mut bytes: Vec<u8>,
    ) -> Result<Verdict, OpenError> {
        let opened = self.seals.open(&mut bytes, 0);
        let (inside, content) = opened.inspect_err(|error| {
            if let OpenError::UnknownKey { connection, iv } = *error {
                self.endpoint.handle_unknown_encrypted(from, connection, iv);
            }
        })?;
        assert_eq!(content, SealedContent::Packet);
        let Ok((packet, rest)) = Packet::parse(inside) else { return Ok(Verdict::Done) };
        let arrival = Arrival { from, received_at: now, congestion_experienced: false, hops: 1 };
        let verdict = if let Packet::Setup(header) = &packet {
            let named = self.endpoint.classify_setup(now, &arrival, header);
            let admission = self.seals.admit(from, header, rest, named);
            self.endpoint.handle_admission(now, &arrival, header, admission)
        } else {
            let len = u16::try_from(rest.len()).unwrap();
            self.endpoint.handle_packet(now, &arrival, &packet, len)
        };
        if let Verdict::Place(place) = verdict {
            let expected = contents(place.message.into(), place.offset, place.len.into());
            assert_eq!(&rest[..usize::from(place.len)], expected, "message {}", place.message);
            self.placed += usize::from(place.len);
            self.endpoint.placed(now, place.connection, place.psn).unwrap();
        }
        Ok(verdict)
    }

    pub(super) fn closed(&self) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            Event::Closed { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    pub(super) fn delivered(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Delivered { .. })).count()
    }
}

impl Pair {
    pub(super) fn new(configs: [SealConfig; 2]) -> Self {
        let [a, b] = configs;
        let hosts = [host(1, 1, a), host(2, 1, b)];
        Self { now: Instant::from_nanos(1_000_000), hosts, recorded: Vec::new() }
    }

    /// Runs the network for a time. `alter` gets each datagram that was sent, and returns the datagrams that arrive
    /// instead.
    pub(super) fn pass(
        &mut self,
        span: Duration,
        mut alter: impl FnMut(Datagram) -> Vec<Datagram>,
    ) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_micros(50);
            for from in 0..2 {
                if self.hosts[from].endpoint.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.hosts[from].endpoint.handle_timeout(self.now);
                }
                for datagram in self.hosts[from].send(self.now) {
                    self.recorded.push(datagram.clone());
                    for (from, to, bytes) in alter(datagram) {
                        let host = self.hosts.iter_mut().find(|host| host.at == to).unwrap();
                        let _ = host.receive(self.now, from, bytes);
                    }
                }
            }
            for host in &mut self.hosts {
                while let Some(event) = host.endpoint.poll_event() {
                    host.events.push(event);
                }
            }
        }
    }

    pub(super) fn run(&mut self, span: Duration) {
        self.pass(span, |datagram| vec![datagram]);
    }

    pub(super) fn connect(&mut self) -> ConnectionId {
        let to = self.hosts[1].at;
        self.hosts[0].endpoint.connect(self.now, to, 7).unwrap()
    }

    pub(super) fn submit(&mut self, from: usize, connection: ConnectionId, length: u32) {
        self.try_submit(from, connection, length).unwrap();
    }

    pub(super) fn try_submit(
        &mut self,
        from: usize,
        connection: ConnectionId,
        length: u32,
    ) -> Result<(), SubmitError> {
        let host = &mut self.hosts[from];
        let number = host.submitted.entry(connection).or_default();
        let message = Message { token: *number, opcode: 1, tag: 0, length };
        *number += 1;
        host.endpoint.submit(self.now, connection, message)
    }

    /// Returns hosts with a connection, and its identifier at each end.
    pub(super) fn connected(configs: [SealConfig; 2]) -> (Self, [ConnectionId; 2]) {
        let mut pair = Self::new(configs);
        let id = pair.connect();
        pair.run(Duration::from_millis(5));
        let accepted = pair.hosts[1].events.iter().find_map(|event| match event {
            Event::Accepted { connection, .. } => Some(*connection),
            _ => None,
        });
        (pair, [id, accepted.expect("accepted")])
    }
}

pub(super) fn with_key(first: u8) -> SealConfig {
    let key = PresharedKey::new([first; 32]);
    SealConfig { preshared_key: Some(key), mode: Mode::Required, ..SealConfig::default() }
}

pub(super) fn both(config: &SealConfig) -> [SealConfig; 2] {
    [config.clone(), config.clone()]
}

pub(super) fn mode(mode: Mode) -> SealConfig {
    SealConfig { mode, ..SealConfig::default() }
}

pub(super) const MS: Duration = Duration::from_millis(1);
