//! A session of two hosts that encrypt, recorded from the engines with fixed seeds: the bytes are the same on each run.

use std::net::SocketAddr;

use weft_seal::{SealConfig, Seals};
use weft_transport::{
    Arrival, ConnectionId, Endpoint, EndpointConfig, Event, Message, Secret, TransportConfig,
    Verdict,
};
use weft_units::{Duration, Instant, Seed};
use weft_wire::{Cipher, DataHeader, MessageHeader, Packet, RdmaHeader, RdmaOpcode, U4, U24};

use crate::shark::Sent;

struct Host {
    at: SocketAddr,
    endpoint: Endpoint,
    seals: Seals,
    events: Vec<Event>,
}

/// The datagrams that the hosts sent, and their keys.
pub(crate) struct Session {
    hosts: [Host; 2],
    now: Instant,
    pub(crate) sent: Vec<Sent>,
    pub(crate) keys: String,
}

fn host(last: u8, cipher: Cipher) -> Host {
    let transport = TransportConfig { mtu: 1024, paths: 4, ..TransportConfig::bifrost() };
    let config = EndpointConfig {
        transport,
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 64,
    };
    let seed = Seed(1).child("session", last.into());
    let seals = SealConfig { cipher, key_log: true, ..SealConfig::default() };
    Host {
        at: SocketAddr::new([10, 0, 0, last].into(), 4791),
        endpoint: Endpoint::new(config, seed, Secret::from_seed(seed)).unwrap().with_ended(),
        seals: Seals::new(seals, [last; 32]),
        events: Vec::new(),
    }
}

impl Host {
    fn send(&mut self, now: Instant) -> Vec<Sent> {
        let mut out = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now) {
            let wrap = self.seals.wrap(&transmit.to, transmit.connection, &transmit.packet);
            let payload = usize::from(transmit.payload.map_or(transmit.padding, |piece| piece.len));
            let length = transmit.packet.len() + payload + wrap.len();
            let mut bytes =
                b"in the clear ".iter().copied().cycle().take(length).collect::<Vec<_>>();
            transmit.packet.emit(&mut bytes[wrap.inside(0, length)]);
            self.seals.seal(wrap, 0, &mut bytes);
            let from = SocketAddr::new(self.at.ip(), 49152 + transmit.path.0);
            out.push(Sent { from, to: transmit.to, bytes, length });
        }
        out
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, mut bytes: Vec<u8>) {
        let Ok((inside, _)) = self.seals.open(&mut bytes, 0) else { return };
        let Ok((packet, rest)) = Packet::parse(inside) else { return };
        let arrival = Arrival { from, received_at: now, congestion_experienced: false, hops: 1 };
        if let Packet::Setup(header) = &packet {
            let named = self.endpoint.classify_setup(now, &arrival, header);
            let admission = self.seals.admit(from, header, rest, named);
            let _ = self.endpoint.handle_admission(now, &arrival, header, admission);
        } else {
            let len = rest.len().try_into().unwrap();
            if let Verdict::Place(place) = self.endpoint.handle_packet(now, &arrival, &packet, len)
            {
                self.endpoint.placed(now, place.connection, place.psn).unwrap();
            }
        }
    }
}

impl Session {
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_micros(20);
            for from in 0..2 {
                if self.hosts[from].endpoint.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.hosts[from].endpoint.handle_timeout(self.now);
                }
                for sent in self.hosts[from].send(self.now) {
                    self.hosts[1 - from].receive(self.now, sent.from, sent.bytes.clone());
                    self.sent.push(sent);
                }
                let host = &mut self.hosts[from];
                while let Some(event) = host.endpoint.poll_event() {
                    host.events.push(event);
                }
                while let Some(line) = host.seals.poll_key_log() {
                    self.keys += &format!("{line}\n");
                }
            }
        }
    }

    fn submit(&mut self, from: usize, connection: ConnectionId, length: u32) {
        let message = Message { token: 1, opcode: 7, tag: 0, length };
        self.hosts[from].endpoint.submit(self.now, connection, message).unwrap();
        self.pass(Duration::from_micros(200));
    }

    /// Encrypts an RDMA request, as a device would, and adds it to the capture only: no host receives it.
    fn send_rdma(&mut self, connection: ConnectionId, peers_id: u32) {
        let data = DataHeader {
            version: U4::truncate(1),
            psn: 1000,
            destination_cid: peers_id,
            ..DataHeader::default()
        };
        let operation = RdmaOpcode::RcWrite;
        let message =
            MessageHeader { opcode: operation as u8, tag: 0, id: 5, offset: 0, length: 64 };
        let packet = Packet::data(data, Some(message)).with_rdma();
        let rdma = RdmaHeader {
            destination_qp: U24::truncate(0x11_2233),
            psn: U24::truncate(5),
            address: 0x7fff_0000_1000,
            key: 0xfeed_0001,
            ..RdmaHeader::default()
        };
        let [Host { at: from, seals, .. }, Host { at: to, .. }] = &mut self.hosts;
        let wrap = seals.wrap(to, Some(connection), &packet);
        let length = packet.len() + rdma.header_len() + 64 + wrap.len();
        let mut bytes = vec![0x77; length];
        let inside = &mut bytes[wrap.inside(0, length)];
        let len = packet.emit(inside);
        rdma.emit(&mut inside[len..]);
        seals.seal(wrap, 0, &mut bytes);
        self.sent.push(Sent { from: *from, to: *to, bytes, length });
    }
}

/// Records a session of two hosts, of which one sends with AES-128-GCM and the other with AES-256-GCM: set-up, messages
/// in both directions, an RDMA request, a key update and the close; then a packet with one changed byte, and a packet
/// that was captured in part.
pub(crate) fn session() -> Session {
    let hosts = [host(1, Cipher::Aes128Gcm), host(2, Cipher::Aes256Gcm)];
    let now = Instant::from_nanos(1_000_000);
    let mut session = Session { hosts, now, sent: Vec::new(), keys: String::new() };
    let to = session.hosts[1].at;
    let id = session.hosts[0].endpoint.connect(now, to, 7).unwrap();
    session.pass(Duration::from_micros(200));
    let accepted = session.hosts[1].events.iter().find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(*connection),
        _ => None,
    });
    let theirs = accepted.expect("accepted");
    session.submit(0, id, 2500);
    session.submit(1, theirs, 1500);
    session.send_rdma(id, theirs.0);
    session.hosts[0].seals.handle_timeout(Instant::from_nanos(1));
    session.submit(0, id, 100);
    session.hosts[0].endpoint.close(session.now, id);
    session.pass(Duration::from_micros(200));
    let longest = session.sent.iter().max_by_key(|sent| sent.length).unwrap().clone();
    let mut changed = longest.clone();
    changed.bytes[500] ^= 1;
    let mut cut = longest;
    cut.bytes.truncate(100);
    session.sent.extend([changed, cut]);
    session
}
