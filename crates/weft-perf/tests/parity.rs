//! One scenario in both worlds: two hosts, four spines, a path that fails silently and is repaired. The engines must
//! return the same events in the simulator and over kernel routers, except for their times.
//!
//! The test needs root for network namespaces; without it, it reports that it was skipped.

use std::collections::BTreeMap;

use weft_lab::{Flow, Lab, LabSpec};
use weft_sim::fabric::FabricConfig;
use weft_sim::fault::Action;
use weft_sim::traffic::{Notice, SendRequest, Side};
use weft_sim::workload::Workload;
use weft_sim::world::{Session, World, WorldConfig};
use weft_sim::{SimSpan, SimTime};
use weft_topo::NodeId;
use weft_topo::build::LeafSpine;
use weft_transport::path::Kind;
use weft_transport::{ConnectionId, Event, Message, Payload, Placement, TransportConfig};
use weft_udp::sockets::Wire;
use weft_udp::{Agent, AgentConfig, Application, Endpoint};
use weft_units::{BitRate, Duration, Instant, Seed};

const PORT: u16 = 4791;
const UDP: u8 = 17;
const MESSAGES: u32 = 40;
const PHASES: u32 = 3;

/// Returns the lengths of one phase's messages, bytes: empty, one byte, one packet, many packets.
fn lengths() -> impl Iterator<Item = u32> {
    [0, 1, 1400, 1401, 20_000, 900_001].into_iter().cycle().take(MESSAGES as usize)
}

fn transport() -> TransportConfig {
    TransportConfig {
        mtu: 1400,
        paths: 4,
        policy: Kind::RoundRobin,
        spray_unit: 1,
        ack_every: 4,
        line_rate: BitRate::gbps(1).expect("not zero"),
        base_rtt: Duration::from_micros(200),
        probe_interval: Duration::from_millis(2),
        ..TransportConfig::bifrost()
    }
}

/// An event of an engine, without times, ids and tokens, which differ between runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Observed {
    Connected,
    Accepted { service: u64 },
    Acked,
    Delivered { message: u32, length: u32 },
    PathDown(u16),
    PathUp(u16),
    Closed,
}

fn observed(event: Event) -> Observed {
    match event {
        Event::Connected { .. } => Observed::Connected,
        Event::Accepted { service, .. } => Observed::Accepted { service },
        Event::Acked { .. } => Observed::Acked,
        Event::Delivered { message, length, .. } => Observed::Delivered { message, length },
        Event::PathDown { path, .. } => Observed::PathDown(path.0),
        Event::PathUp { path, .. } => Observed::PathUp(path.0),
        _ => Observed::Closed,
    }
}

/// A workload that sends one phase's messages at each wake-up.
#[derive(Debug, Default)]
struct Script {
    channel: Option<weft_sim::traffic::ChannelId>,
    left: u32,
    phases: u32,
}

impl Workload for Script {
    fn start(&mut self, session: &mut Session<'_>) {
        self.channel = Some(session.open(NodeId(0), NodeId(1)));
        for phase in 0..PHASES {
            let at = SimTime::EPOCH + Duration::from_millis(200 * u64::from(phase)).into();
            session.wake(at, phase.into());
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => {
                self.phases += 1;
                for length in lengths() {
                    let channel = self.channel.expect("opened at the start");
                    let from = Side::Opener;
                    session.send(SendRequest { channel, from, length, tag: 0, recorded: false });
                    self.left += 1;
                }
            }
            Notice::Acknowledged { .. } => self.left -= 1,
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.phases == PHASES && self.left == 0
    }
}

/// Returns the events of both hosts in a simulated run, in which one spine link is down from 100 to 300 ms.
fn simulate(seed: u64) -> [Vec<Observed>; 2] {
    let shape = LeafSpine { hosts_per_leaf: 1, leaves: 2, spines: 4, ..LeafSpine::default() };
    let topology = shape.build().expect("a small fabric");
    let uplink = topology.ports(topology.link(topology.ports(NodeId(0))[0]).to)[1];
    let config = WorldConfig {
        transport: transport(),
        fabric: FabricConfig::default(),
        handshake: true,
        place_delay: Duration::ZERO,
        pcie: None,
        stack: None,
        controller: None,
        jitter: SimSpan::from_picos(1000),
        nic_packets: 4,
        bond: false,
        source_ports: weft_sim::scenario::SourcePorts::Random,
        reroute_after: None,
    };
    let mut world = World::new(topology, config, Seed(seed)).expect("valid");
    world.network.record = Some(Vec::new());
    world.add_workload(Box::<Script>::default());
    let at = |millis| SimTime::EPOCH + Duration::from_millis(millis).into();
    let uplink = uplink.into();
    world.set_plan(vec![(at(100), Action::LinkDown(uplink)), (at(300), Action::LinkUp(uplink))]);
    world.start();
    assert!(world.run(at(2_000)), "the script finishes");
    let mut events = [Vec::new(), Vec::new()];
    for (host, event) in world.network.record.take().expect("asked for") {
        events[host.index()].push(observed(event));
    }
    events
}

/// One end on real packets, with its events.
#[derive(Default)]
struct End {
    events: Vec<Observed>,
}

impl Application for End {
    fn read(&mut self, _: ConnectionId, _: Payload, out: &mut [u8]) {
        out.fill(0x5a);
    }

    fn place(&mut self, _: Instant, _: &Placement, bytes: &[u8]) {
        assert!(bytes.iter().all(|&byte| byte == 0x5a));
    }

    fn on_event(&mut self, _: &mut Endpoint, _: Instant, event: Event) {
        self.events.push(observed(event));
    }
}

/// The two agents of a lab, driven in turns by one thread.
struct Pair {
    agents: [Agent; 2],
    ends: [End; 2],
}

impl Pair {
    fn run_until(&mut self, goal: &str, done: impl Fn(&[End; 2]) -> bool) {
        let deadline = self.agents[0].now() + Duration::from_secs(5);
        while !done(&self.ends) {
            assert!(self.agents[0].now() < deadline, "{goal}: {:?}", counts(&self.ends[0].events));
            for (agent, end) in self.agents.iter_mut().zip(&mut self.ends) {
                let _ = agent.turn(end);
            }
        }
    }

    fn send_phase(&mut self, connection: ConnectionId, phase: u32) {
        let now = self.agents[0].now();
        for (length, number) in lengths().zip(0..) {
            let token = u64::from(phase * MESSAGES + number);
            let message = Message { token, opcode: 0, tag: 0, length };
            self.agents[0].endpoint().submit(now, connection, message).expect("set up");
        }
        let all = ((phase + 1) * MESSAGES) as usize;
        self.run_until("all sent", |ends| acked(&ends[0].events) == all);
    }
}

fn acked(events: &[Observed]) -> usize {
    events.iter().filter(|observed| **observed == Observed::Acked).count()
}

fn counts(events: &[Observed]) -> BTreeMap<&Observed, usize> {
    let mut counts = BTreeMap::new();
    events.iter().for_each(|observed| *counts.entry(observed).or_default() += 1);
    counts
}

/// Returns the events of both hosts in a run over kernel routers, in which `path` fails silently and is repaired.
fn run_for_real(lab: &mut Lab, wire: Wire, path: u16) -> [Vec<Observed>; 2] {
    let paths = lab.fabric().paths();
    let spine_of = |source_port| {
        let ports =
            Flow { source: 0, destination: 1, protocol: UDP, source_port, destination_port: PORT };
        paths.spine_of(&ports).expect("the hosts hang on two leaves")
    };
    let spines = |first: u16| (0..4).map(|path| spine_of(first + path)).collect::<Vec<_>>();
    let distinct = |first: &u16| (0..4).all(|spine| spines(*first).contains(&spine));
    let first = (40_000..60_000).step_by(4).find(distinct).expect("one in eleven is");
    let silent = lab.fabric().links[2 + spine_of(first + path)].name.clone();
    let agent = |host: usize| {
        let local = (lab.fabric().address(host), PORT).into();
        let mut config = AgentConfig::new(local, transport()).accepting();
        config.sockets.first_source_port = Some(first);
        config.sockets.wire = wire;
        let name = lab.fabric().nodes[host].name.clone();
        let agent = lab.enter(&name, || Agent::open(&config)).expect("root").expect("free ports");
        let (taken, refusal) = agent.sockets().wire();
        assert_eq!(taken, wire, "{refusal:?}");
        agent
    };
    let mut pair = Pair { agents: [agent(0), agent(1)], ends: Default::default() };
    let (now, peer) = (pair.agents[0].now(), pair.agents[1].local());
    let connection = pair.agents[0].endpoint().connect(now, peer, 0).expect("room for one");
    pair.run_until("connected", |ends| ends[0].events.contains(&Observed::Connected));
    pair.send_phase(connection, 0);
    lab.set_black_hole(&silent, true).expect("root");
    pair.send_phase(connection, 1);
    pair.run_until("path down", |ends| ends[0].events.contains(&Observed::PathDown(path)));
    lab.set_black_hole(&silent, false).expect("root");
    pair.run_until("path up", |ends| ends[0].events.contains(&Observed::PathUp(path)));
    pair.send_phase(connection, 2);
    pair.ends.map(|end| end.events)
}

/// Returns the events of each kind in order. Only the order within a kind does not depend on timing.
fn by_kind(events: &[Observed]) -> BTreeMap<&'static str, Vec<&Observed>> {
    let mut kinds = BTreeMap::<_, Vec<_>>::new();
    for observed in events {
        let kind = match observed {
            Observed::Connected | Observed::Accepted { .. } | Observed::Closed => "connection",
            Observed::Acked => "sent",
            Observed::Delivered { .. } => "delivered",
            Observed::PathDown(_) | Observed::PathUp(_) => "path",
        };
        kinds.entry(kind).or_default().push(observed);
    }
    kinds
}

#[test]
fn the_simulator_and_kernel_routers_give_the_same_events() {
    // The seed is one whose four paths take four spines, so that the failed link fails exactly one path.
    let one_path = |events: &[Vec<Observed>; 2]| {
        let down = |observed: &&Observed| matches!(observed, Observed::PathDown(_));
        events[0].iter().filter(down).count() == 1
    };
    let simulated = (0..200).map(simulate).find(one_path).expect("one seed in eleven");
    let path = simulated[0].iter().find_map(|observed| match observed {
        Observed::PathDown(path) => Some(*path),
        _ => None,
    });
    let path = path.expect("it was looked for");
    if weft_testkit::lab_is_missing("parity", &[]) {
        return;
    }
    let mut lab = Lab::up(&LabSpec::named(format!("p{}", std::process::id()))).expect("root");
    for &wire in Wire::ALL {
        let real = run_for_real(&mut lab, wire, path);
        for host in 0..2 {
            assert_eq!(by_kind(&simulated[host]), by_kind(&real[host]), "host {host}, {wire}");
        }
    }
}
