//! Agents whose datagrams take AF_XDP, between namespaces joined by kernel routers: messages, their neighbours, and the
//! kernel's own traffic beside them.
//!
//! The tests need root for namespaces; without it, they report that they were skipped.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use weft_lab::{Direction, Impairment, Lab, LabSpec};
use weft_transport::{ConnectionId, Event, Message, Payload, Placement, TransportConfig};
use weft_udp::sockets::{Refusal, Wire};
use weft_udp::{Agent, AgentConfig, Application, Endpoint, SealConfig};
use weft_units::{Duration, Instant};

const PORT: u16 = 4792;

/// Lengths of messages, bytes: empty, one byte, one packet, some packets, many.
const LENGTHS: [u32; 6] = [0, 1, 1400, 1441, 20_000, 900_001];

/// Returns the byte at a place of a message; the period is no divisor of a packet.
fn byte(at: u64) -> u8 {
    u8::try_from(at % 251).expect("below 256")
}

/// An application that sends the pattern, checks it, and counts events.
#[derive(Default)]
struct End {
    connected: bool,
    acked: usize,
    delivered: Vec<u32>,
}

impl Application for End {
    fn read(&mut self, _: ConnectionId, payload: Payload, out: &mut [u8]) {
        let places = u64::from(payload.offset)..;
        out.iter_mut().zip(places).for_each(|(out, at)| *out = byte(at));
    }

    fn place(&mut self, _: Instant, placement: &Placement, bytes: &[u8]) {
        let places = u64::from(placement.offset)..;
        assert!(bytes.iter().zip(places).all(|(&got, at)| got == byte(at)), "{placement:?}");
    }

    fn on_event(&mut self, _: &mut Endpoint, _: Instant, event: Event) {
        match event {
            Event::Connected { .. } => self.connected = true,
            Event::Acked { .. } => self.acked += 1,
            Event::Delivered { length, .. } => self.delivered.push(length),
            _ => {}
        }
    }
}

/// Two agents, driven in turns by one thread.
struct Pair {
    agents: [Agent; 2],
    ends: [End; 2],
    connection: ConnectionId,
}

impl Pair {
    fn connect(agents: [Agent; 2]) -> Self {
        let [mut client, server] = agents;
        let (now, peer) = (client.now(), server.local());
        let connection = client.endpoint().connect(now, peer, 0).unwrap();
        let mut pair = Self { agents: [client, server], ends: Default::default(), connection };
        pair.run_until("connected", |[client, _]| client.connected);
        pair
    }

    fn run_until(&mut self, goal: &str, done: impl Fn(&[End; 2]) -> bool) {
        let deadline = self.agents[0].now() + Duration::from_secs(20);
        while !done(&self.ends) {
            assert!(self.agents[0].now() < deadline, "{goal}");
            for (agent, end) in self.agents.iter_mut().zip(&mut self.ends) {
                let _ = agent.turn(end);
            }
        }
    }

    /// Sends messages of all lengths, and returns after the last one has been acknowledged.
    fn send(&mut self) {
        let (now, before) = (self.agents[0].now(), self.ends[0].acked);
        self.ends[1].delivered.clear();
        for (token, length) in (0..).zip(LENGTHS) {
            let message = Message { token, opcode: 0, tag: 0, length };
            self.agents[0].endpoint().submit(now, self.connection, message).unwrap();
        }
        self.run_until("acknowledged", |[client, _]| client.acked == before + LENGTHS.len());
        assert_eq!(self.ends[1].delivered, LENGTHS);
    }

    /// Returns the datagrams that each agent sent by AF_XDP.
    fn frames(&self) -> [u64; 2] {
        [0, 1].map(|end: usize| self.agents[end].sockets().outbox.counters().xdp_frames)
    }
}

/// Returns a transport whose every packet takes another path, and fits 1500 bytes over IPv6, too.
fn transport() -> TransportConfig {
    TransportConfig { mtu: 1_400, spray_unit: 1, ..AgentConfig::ethernet(4) }
}

fn config(local: SocketAddr, transport: TransportConfig) -> AgentConfig {
    let mut config = AgentConfig::new(local, transport).accepting();
    config.sockets.wire = Wire::AfXdp;
    config
}

/// Opens an agent on a host of the lab.
fn open(lab: &Lab, host: usize, config: &AgentConfig) -> Agent {
    let name = lab.fabric().nodes[host].name.clone();
    lab.enter(&name, || Agent::open(config)).unwrap().unwrap()
}

/// Opens an agent by AF_XDP at each of two addresses.
fn pair(lab: &Lab, addresses: [IpAddr; 2], transport: &TransportConfig, seal: &SealConfig) -> Pair {
    let agents = [0, 1].map(|host: usize| {
        let local = SocketAddr::new(addresses[host], PORT);
        let config = AgentConfig { encryption: seal.clone(), ..config(local, transport.clone()) };
        // The kernel detaches the program of a closed agent a moment after its end.
        for _ in 0..1_000 {
            let agent = open(lab, host, &config);
            let (wire, refusal) = agent.sockets().wire();
            let Some(refusal) = refusal.map(ToString::to_string) else {
                assert_eq!(wire, Wire::AfXdp);
                return agent;
            };
            assert!(refusal.contains("Device or resource busy"), "{refusal}");
        }
        panic!("the interface of host {host} stays busy");
    });
    Pair::connect(agents)
}

/// Builds a lab of two hosts with IPv4 and IPv6; `None` without root.
fn lab(test: &str, mtu: u16) -> Option<Lab> {
    if weft_testkit::lab_is_missing(test, &[]) {
        return None;
    }
    let name = format!("x{}{test}", std::process::id());
    let spec = LabSpec { spines: 2, mtu, ipv6: true, ..LabSpec::named(name) };
    Some(Lab::up(&spec).unwrap())
}

fn v4(lab: &Lab) -> [IpAddr; 2] {
    [0, 1].map(|host| lab.fabric().address(host).into())
}

fn v6(lab: &Lab) -> [IpAddr; 2] {
    [0, 1].map(|host| lab.fabric().address6(host).unwrap().into())
}

/// Runs a command on host 0; it must succeed.
fn run(lab: &Lab, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let name = lab.fabric().nodes[0].name.clone();
    let output =
        lab.enter(&name, || Command::new(words[0]).args(&words[1..]).output()).unwrap().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the IPv4 datagrams that the kernel's stack has delivered to sockets on host 1.
fn delivered_by_the_kernel(lab: &Lab) -> u64 {
    let name = lab.fabric().nodes[1].name.clone();
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let counters = lab.enter(&name, read).unwrap();
    let udp = counters.lines().filter_map(|line| line.strip_prefix("Udp: ")).nth(1).unwrap();
    udp.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn messages_arrive_over_ipv4_and_ipv6_in_the_clear_and_encrypted() {
    let Some(lab) = lab("messages", 1500) else { return };
    for (addresses, seal) in [
        (v4(&lab), SealConfig::off()),
        (v6(&lab), SealConfig::off()),
        (v4(&lab), SealConfig::default()),
    ] {
        let mut pair = pair(&lab, addresses, &transport(), &seal);
        pair.send();
        let (before, by_kernel) = (pair.frames(), delivered_by_the_kernel(&lab));
        pair.send();
        let by_kernel = delivered_by_the_kernel(&lab) - by_kernel;
        assert!(by_kernel < 20, "the kernel delivered {by_kernel} datagrams");
        let [sent, acks] = [0, 1].map(|end: usize| pair.frames()[end] - before[end]);
        // All packets but one of each second.
        assert!(sent > 600 && acks > 0, "{sent} packets and {acks} ACKs of {addresses:?}");
    }
}

#[test]
fn jumbo_frames_take_several_chunks() {
    let Some(lab) = lab("jumbo", 9000) else { return };
    let transport = TransportConfig { mtu: 8_900, ..transport() };
    let mut pair = pair(&lab, v4(&lab), &transport, &SealConfig::off());
    pair.send();
    let before = pair.frames();
    pair.send();
    let sent = pair.frames()[0] - before[0];
    assert!((100..400).contains(&sent), "{sent} packets");
}

#[test]
fn lost_packets_are_retransmitted() {
    let Some(mut lab) = lab("loss", 1500) else { return };
    // Between routers: frames of AF_XDP pass by the host's own queue, which would lose them.
    let links: Vec<_> = lab.fabric().links[2..4].iter().map(|link| link.name.clone()).collect();
    let impairment = Impairment { loss: "2%".parse().unwrap(), ..Impairment::default() };
    for link in links {
        lab.impair(&link, Direction::Both, &impairment).unwrap();
    }
    let mut pair = pair(&lab, v4(&lab), &transport(), &SealConfig::off());
    (0..3).for_each(|_| pair.send());
    assert!(pair.frames()[0] > 1_500, "{:?}", pair.frames());
}

#[test]
fn the_kernels_traffic_passes_beside_it() {
    let Some(lab) = lab("kernel", 1500) else { return };
    let mut pair = pair(&lab, v4(&lab), &transport(), &SealConfig::off());
    let peers = [v4(&lab)[1], v6(&lab)[1]];
    for peer in peers {
        run(&lab, &format!("ping -c 1 -W 5 {peer}"));
    }
    let names = [0, 1].map(|host: usize| lab.fabric().nodes[host].name.clone());
    let listener = lab.enter(&names[1], || TcpListener::bind((peers[0], PORT))).unwrap().unwrap();
    let mut client =
        lab.enter(&names[0], || TcpStream::connect((peers[0], PORT))).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[7; 100_000]).unwrap();
    let mut got = vec![0; 100_000];
    server.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == 7));
    pair.send();
}

#[test]
fn a_neighbours_new_address_is_used() {
    let Some(lab) = lab("neighbour", 1500) else { return };
    let mut pair = pair(&lab, v4(&lab), &transport(), &SealConfig::off());
    pair.send();
    let route = run(&lab, &format!("ip -o route get {}", v4(&lab)[1]));
    let word = |after: &str| {
        let mut words = route.split_whitespace().skip_while(|word| *word != after);
        words.nth(1).unwrap().to_owned()
    };
    let (gateway, device) = (word("via"), word("dev"));
    let neighbour = run(&lab, &format!("ip -o neigh show {gateway} dev {device}"));
    let address = neighbour.split_whitespace().nth(2).unwrap().to_owned();
    // Nothing has this address, so that packets are lost until the kernel's table is right again.
    let replace = |to: &str| {
        run(&lab, &format!("ip neigh replace {gateway} lladdr {to} dev {device} nud permanent"));
    };
    replace("02:00:00:00:00:99");
    let (now, connection) = (pair.agents[0].now(), pair.connection);
    let message = Message { token: 9, opcode: 0, tag: 0, length: 20_000 };
    pair.agents[0].endpoint().submit(now, connection, message).unwrap();
    let (acked, frames) = (pair.ends[0].acked, pair.frames()[0]);
    let until = pair.agents[0].now() + Duration::from_millis(200);
    while pair.agents[0].now() < until {
        for (agent, end) in pair.agents.iter_mut().zip(&mut pair.ends) {
            let _ = agent.turn(end);
        }
    }
    assert_eq!(pair.ends[0].acked, acked, "nothing arrives at a wrong address");
    assert!(pair.frames()[0] > frames, "and packets leave");
    replace(&address);
    pair.run_until("acknowledged", |[client, _]| client.acked == acked + 1);
}

#[test]
fn the_kernels_sockets_carry_what_af_xdp_refuses() {
    let Some(lab) = lab("refusals", 1500) else { return };
    let refusal = |agent: &Agent| agent.sockets().wire().1.map(ToString::to_string);
    let [near, far] = v4(&lab);
    let first = open(&lab, 0, &config((near, 0).into(), transport()));
    assert_eq!(refusal(&first), None);
    // The interface has a program, and this agent stays with the kernel.
    let second = open(&lab, 0, &config((near, 0).into(), transport()));
    assert!(matches!(second.sockets().wire(), (Wire::Kernel, Some(Refusal::Busy { .. }))));
    let peer = open(&lab, 1, &config((far, 0).into(), transport()));
    Pair::connect([second, peer]).send();
    for (local, reason) in [
        ("0.0.0.0:0", "it takes the address of one interface, not 0.0.0.0"),
        ("127.0.0.1:0", "lo is no Ethernet interface: it is the loopback interface"),
    ] {
        let agent = open(&lab, 0, &config(local.parse().unwrap(), transport()));
        assert_eq!(refusal(&agent).as_deref(), Some(reason));
    }
    let deadline = first.now() + Duration::from_secs(20);
    drop(first);
    // The kernel releases the program and the queue a moment after both have been closed: each agent is a new attempt.
    loop {
        let third = open(&lab, 0, &config((near, 0).into(), transport()));
        let Some(reason) = refusal(&third) else { break };
        assert!(third.now() < deadline, "{reason}");
    }
}
