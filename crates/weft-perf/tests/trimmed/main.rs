//! Packets that a switch cuts to their headers, on real packets (`docs/design/trimming.md`): two agents in namespaces of
//! their own, with a switch between them that cuts packets and changes their DSCP. The receiver asks for them at once, and
//! the sender retransmits them without waiting for a timeout: no timeout passes within a test.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use socket2::SockRef;
use weft_transport::{
    ConnectionId, DropReason, Endpoint, Event, Message, Payload, Placement, Stats,
};
use weft_udp::sockets::TrimmedConfig;
use weft_udp::{Agent, AgentConfig, Application, EncryptionMode, SealConfig};
use weft_units::{Duration, Instant};
use weft_wire::{DataHeader, U6};

mod switch;
mod wire;

use switch::{Form, Switch};
use wire::{ADDRESSES, Wire};

/// The DSCP of cut packets, Cumulus Linux's default.
const DSCP: u8 = 11;

/// Each message arrives within this time.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the byte at this offset of message `token`.
fn byte(token: u64, offset: u32) -> u8 {
    let [low, next, ..] = offset.to_le_bytes();
    low.wrapping_mul(31).wrapping_add(next).wrapping_add(token.to_le_bytes()[0])
}

/// An end: its messages have known bytes, and it keeps those that arrive.
#[derive(Default)]
struct End {
    connection: Option<ConnectionId>,
    acked: u64,
    arrived: BTreeMap<u64, Vec<u8>>,
    delivered: u64,
}

impl Application for End {
    fn read(&mut self, _: ConnectionId, payload: Payload, out: &mut [u8]) {
        for (offset, out) in (payload.offset..).zip(out) {
            *out = byte(payload.token, offset);
        }
    }

    fn place(&mut self, _: Instant, placement: &Placement, bytes: &[u8]) {
        let message = self.arrived.entry(placement.message.into()).or_default();
        message.resize(placement.length as usize, 0);
        message[placement.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn on_event(&mut self, _: &mut Endpoint, _: Instant, event: Event) {
        match event {
            Event::Connected { connection } => self.connection = Some(connection),
            Event::Acked { .. } => self.acked += 1,
            Event::Delivered { .. } => self.delivered += 1,
            _ => {}
        }
    }
}

/// Two connected agents with a switch between them.
struct Bench<Rule> {
    agents: [Agent; 2],
    ends: [End; 2],
    switch: Switch<Rule>,
    _wire: Wire,
}

impl<Rule: FnMut() -> bool + Send> Bench<Rule> {
    fn new(number: u32, form: Form, trimmed: bool, encryption: EncryptionMode, rule: Rule) -> Self {
        let wire = Wire::new(number);
        let mut transport = AgentConfig::ethernet(4);
        transport.retransmission.rto_min = Duration::from_secs(1);
        transport.retransmission.rto_max = Duration::from_secs(1);
        let agents = [0, 1].map(|end| {
            let local = SocketAddr::new(ADDRESSES[end].parse().unwrap(), 4791);
            let mut config = AgentConfig::new(local, transport.clone()).accepting();
            config.sockets.offload = false;
            config.encryption = SealConfig { mode: encryption, ..SealConfig::default() };
            let dscp = TrimmedConfig { fabric: U6::new(DSCP).unwrap(), last_hop: None };
            config.trimmed = trimmed.then_some(dscp);
            weft_lab::enter(&wire.hosts[end], || Agent::open(&config)).unwrap().unwrap()
        });
        let open = || Switch::open(wire.interfaces, DSCP, form, rule);
        let switch = weft_lab::enter(&wire.switch, open).unwrap();
        let mut bench = Self { agents, ends: Default::default(), switch, _wire: wire };
        let (to, now) = (bench.agents[1].local(), bench.agents[0].now());
        bench.agents[0].endpoint().connect(now, to, 0).unwrap();
        bench.run_until(|bench| bench.ends[0].connection.is_some());
        bench
    }

    /// Runs agents and switch until `done` returns `true`.
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let deadline = self.agents[0].now() + LIMIT;
        while !done(self) {
            let is_late = self.agents[0].now() > deadline;
            assert!(!is_late, "not within {LIMIT:?}: {:?}", self.stats());
            for (agent, end) in self.agents.iter_mut().zip(&mut self.ends) {
                let _ = agent.turn(end);
            }
            self.switch.forward();
        }
    }

    /// Sends a message, until it has arrived and is acknowledged. Returns the counters.
    fn send(&mut self, token: u64, length: u32) -> Stats {
        let (now, connection) = (self.agents[0].now(), self.ends[0].connection.unwrap());
        let message = Message { token, opcode: 0, tag: 0, length };
        self.agents[0].endpoint().submit(now, connection, message).unwrap();
        let sent = self.ends[0].acked + 1;
        self.run_until(|bench| bench.ends[0].acked == sent && bench.ends[1].delivered == sent);
        self.stats()
    }

    fn stats(&mut self) -> Stats {
        self.agents[0].endpoint().stats().clone()
    }
}

#[test]
fn packets_that_a_switch_cut_are_retransmitted_without_a_timeout() {
    if weft_testkit::lab_is_missing("trimmed packets", &["ethtool"]) {
        return;
    }
    for (number, form) in (0..).zip([Form::AsItWas, Form::IpLength, Form::BothLengths]) {
        // All packets of the first message, 20 with full payload, and a seventh of the others.
        let mut seen = 0;
        let rule = move || {
            seen += 1;
            seen <= 20 || seen % 7 == 0
        };
        let mut bench = Bench::new(number, form, true, EncryptionMode::Off, rule);
        let stats = bench.send(0, 20 * 1_400);
        // A packet whose answer comes late may be lost already, by the reordering window or a tail loss probe.
        assert!(bench.switch.cut >= 20 && stats.nacks_received > 10, "{form:?}: {stats:?}");
        let stats = bench.send(1, 2_000_000);
        assert!(bench.switch.cut > 200 && stats.nacks_received > 100, "{form:?}: {stats:?}");
        assert_eq!(stats.timeout_retransmits, 0, "{form:?}: {stats:?}");
        for (token, message) in (0..).zip(bench.ends[1].arrived.values()) {
            let is_intact = (0..).zip(message).all(|(offset, it)| *it == byte(token, offset));
            assert!(is_intact, "{form:?}: message {token}");
        }
    }
}

/// A cut packet of an encrypted connection proves nothing, and without the packet socket none is received.
#[test]
fn cut_packets_without_proof_or_without_the_socket_are_lost() {
    if weft_testkit::lab_is_missing("trimmed packets", &["ethtool"]) {
        return;
    }
    for (number, trimmed, mode) in
        [(10, false, EncryptionMode::Off), (11, true, EncryptionMode::Required)]
    {
        let mut left = 1;
        let rule = move || std::mem::replace(&mut left, 0) == 1;
        let mut bench = Bench::new(number, Form::AsItWas, trimmed, mode, rule);
        // One packet, after which no other shows its loss.
        let stats = bench.send(0, 1_000);
        assert_eq!((bench.switch.cut, stats.nacks_received), (1, 0), "{mode:?}");
        assert!(stats.tail_loss_probes + stats.timeout_retransmits > 0, "{mode:?}: {stats:?}");
    }
}

/// The kernel's filter passes packets with the DSCP of cut ones, and no others. These are whole, so that the UDP socket gets
/// each, too; no connection is theirs.
#[test]
fn packets_are_selected_by_their_dscp_in_both_versions_of_ip() {
    if weft_testkit::lab_is_missing("the filter for trimmed packets", &[]) {
        return;
    }
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let mut config = AgentConfig::new(local.parse().unwrap(), AgentConfig::ethernet(1));
        config.trimmed =
            Some(TrimmedConfig { fabric: U6::new(DSCP).unwrap(), last_hop: U6::new(13) });
        let (mut agent, mut end) = (Agent::open(&config).unwrap(), End::default());
        let sender = UdpSocket::bind(local).unwrap();
        let mut packet = [0; 60];
        DataHeader { destination_cid: 7, ..DataHeader::default() }.emit(&mut packet);
        let mut received = 0;
        for (dscp, copies) in [(0, 1), (DSCP, 2), (12, 1), (13, 2)] {
            let socket = SockRef::from(&sender);
            match agent.local() {
                SocketAddr::V4(_) => socket.set_tos_v4(u32::from(dscp) << 2).unwrap(),
                SocketAddr::V6(_) => socket.set_tclass_v6(u32::from(dscp) << 2).unwrap(),
            }
            sender.send_to(&packet, agent.local()).unwrap();
            let _ = agent.turn(&mut end);
            received += copies;
            let stats = agent.endpoint().stats();
            assert_eq!(stats.dropped_for(DropReason::UnknownConnection), received, "DSCP {dscp}");
        }
    }
}
