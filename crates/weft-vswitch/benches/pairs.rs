//! The first message of each of 64 idle connections between two hosts, after one of four kernel-routed paths became
//! bad: with the findings of another connection about it, and without.
//!
//! `sudo cargo bench -p weft-vswitch --bench pairs -- [rounds] [dead|lossy|slow ...]`. Needs root for namespaces.
//!
//! One connection sends all the time while the path becomes bad, and for a while after; then one idle connection
//! sends a message of eight packets every 2 ms. A message is late after 3 ms: on four good paths it takes a tenth
//! of that.
#![allow(clippy::disallowed_methods, reason = "it watches a kernel in real time")]

use std::process::ExitCode;

use weft_lab::{Direction, Flow, Impairment, Lab, LabSpec, requirements};
use weft_transport::{ConnectionId, Event, Message, Payload, Placement, TransportConfig};
use weft_udp::{Agent, AgentConfig, Application, Endpoint};
use weft_units::{ByteCount, Duration, Instant};

const PORT: u16 = 4791;
const UDP: u8 = 17;
const PAIRS: usize = 64;
const PATHS: u16 = 4;
const LENGTH: u32 = 11_000;
const LATE: Duration = Duration::from_millis(3);
const FAULTS: [&str; 3] = ["dead", "lossy", "slow"];

/// The events of one end.
#[derive(Default)]
struct Ends {
    connected: usize,
    delivered: usize,
    closed: bool,
}

impl Application for Ends {
    fn read(&mut self, _: ConnectionId, _: Payload, out: &mut [u8]) {
        out.fill(1);
    }

    fn place(&mut self, _: Instant, _: &Placement, bytes: &[u8]) {
        std::hint::black_box(bytes);
    }

    fn on_event(&mut self, _: &mut Endpoint, _: Instant, event: Event) {
        match event {
            Event::Connected { .. } => self.connected += 1,
            Event::Delivered { .. } => self.delivered += 1,
            Event::Closed { .. } => self.closed = true,
            _ => {}
        }
    }
}

struct Hosts {
    agents: [Agent; 2],
    ends: [Ends; 2],
}

impl Hosts {
    fn open(lab: &Lab, share_paths: bool) -> Self {
        let first = first_port(lab);
        let transport = TransportConfig { spray_unit: 8, ..AgentConfig::ethernet(PATHS) };
        let agent = |host: usize| {
            let local = (lab.fabric().address(host), PORT).into();
            let mut config = AgentConfig::new(local, transport.clone()).accepting();
            config.sockets.first_source_port = Some(first);
            config.share_paths = share_paths;
            let name = lab.fabric().nodes[host].name.clone();
            lab.enter(&name, || Agent::open(&config)).expect("root").expect("free ports")
        };
        Self { agents: [agent(0), agent(1)], ends: Default::default() }
    }

    fn now(&self) -> Instant {
        self.agents[0].now()
    }

    /// Runs both ends until `done`, at most for ten seconds.
    fn run(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let limit = self.now() + Duration::from_secs(10);
        while !done(self) {
            for (agent, end) in self.agents.iter_mut().zip(&mut self.ends) {
                let _ = agent.turn(end);
            }
            assert!(!self.ends[0].closed && self.now() < limit, "the connections must survive");
        }
    }

    fn run_for(&mut self, span: Duration) {
        let until = self.now() + span;
        self.run(|hosts| hosts.now() >= until);
    }

    fn submit(&mut self, connection: ConnectionId) {
        let (now, endpoint) = (self.now(), self.agents[0].endpoint());
        let message = Message { token: 0, opcode: 0, tag: 0, length: LENGTH };
        endpoint.submit(now, connection, message).expect("room for one");
    }

    /// Sends a message, waits until it is delivered, and returns the time that it took.
    fn send(&mut self, connection: ConnectionId) -> Duration {
        let (began, count) = (self.now(), self.ends[1].delivered);
        self.submit(connection);
        self.run(|hosts| hosts.ends[1].delivered > count);
        self.now().since(began)
    }

    fn connect(&mut self) -> Vec<ConnectionId> {
        let (now, peer) = (self.now(), self.agents[1].local());
        let connect = |_| self.agents[0].endpoint().connect(now, peer, 0).expect("room for all");
        let ids: Vec<_> = (0..=PAIRS).map(connect).collect();
        self.run(|hosts| hosts.ends[0].connected > PAIRS);
        for &id in &ids {
            self.send(id);
        }
        self.run_for(Duration::from_secs(1));
        ids
    }
}

/// Returns a first source port from which four consecutive ones take four different spines.
fn first_port(lab: &Lab) -> u16 {
    let paths = lab.fabric().paths();
    let spine = |source_port| {
        let flow =
            Flow { source: 0, destination: 1, protocol: UDP, source_port, destination_port: PORT };
        paths.spine_of(&flow)
    };
    let distinct = |first: &u16| {
        let mut spines: Vec<_> = (0..PATHS).map(|path| spine(first + path)).collect();
        spines.sort_unstable();
        spines.dedup();
        spines.len() == usize::from(PATHS)
    };
    (40_000..60_000).step_by(4).find(distinct).expect("one in eleven is")
}

/// Applies `fault` to a path if `bad` is `true`; otherwise removes it.
fn set(lab: &mut Lab, fault: &str, bad: bool) {
    let link = lab.fabric().links[2].name.clone();
    let good = Impairment::default();
    let worse = match fault {
        "lossy" => Impairment { loss: "10%".parse().expect("a percentage"), ..good },
        "slow" => Impairment {
            rate: Some("10Mbps".parse().expect("a rate")),
            queue: Some(ByteCount(256 << 10)),
            ..good
        },
        _ => return lab.set_black_hole(&link, bad).expect("root"),
    };
    let impairment = if bad { worse } else { good };
    lab.impair(&link, Direction::Both, &impairment).expect("root");
}

/// Returns the numbers of late messages and of retransmitted data packets, and the longest time of a message.
fn measure(lab: &mut Lab, fault: &str, share_paths: bool, rounds: usize) -> (usize, u64, Duration) {
    let (mut late, mut retransmits, mut longest) = (0, 0, Duration::ZERO);
    for _ in 0..rounds {
        let mut hosts = Hosts::open(lab, share_paths);
        let ids = hosts.connect();
        set(lab, fault, true);
        let busy_until = hosts.now() + Duration::from_millis(400);
        while hosts.now() < busy_until {
            hosts.send(ids[0]);
        }
        hosts.run_for(Duration::from_millis(15));
        let before = hosts.agents[0].endpoint().stats().retransmissions();
        for &id in &ids[1..] {
            let took = hosts.send(id);
            late += usize::from(took > LATE);
            longest = longest.max(took);
            hosts.run_for(Duration::from_millis(2));
        }
        retransmits += hosts.agents[0].endpoint().stats().retransmissions() - before;
        set(lab, fault, false);
    }
    (late, retransmits, longest)
}

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let rounds = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(5);
    let named = |fault: &&str| arguments.iter().any(|word| word == fault);
    let all = !FAULTS.iter().any(named);
    if let Some(missing) = requirements().into_iter().find(|r| r.essential && !r.met) {
        println!("pairs: skipped, no {} ({})", missing.name, missing.fix);
        return ExitCode::SUCCESS;
    }
    let spec = LabSpec::named(format!("pairs-{}", std::process::id()));
    let mut lab = Lab::up(&spec).expect("namespaces can be made");
    println!(
        "first messages of {PAIRS} idle connections, {rounds} times; one of {PATHS} paths is bad"
    );
    println!(
        "{:6} {:8} {:>6} {:>10} {:>12} {:>12}",
        "path", "learns", "sent", "late", "retransmits", "longest, ms"
    );
    for fault in FAULTS.into_iter().filter(|fault| all || named(fault)) {
        for (share, learns) in [(false, "alone"), (true, "together")] {
            let (late, retransmits, longest) = measure(&mut lab, fault, share, rounds);
            let (sent, longest) = (rounds * PAIRS, longest.as_micros_f64() / 1e3);
            println!("{fault:6} {learns:8} {sent:6} {late:10} {retransmits:12} {longest:12.1}");
        }
    }
    ExitCode::SUCCESS
}
