//! Measures the interruption of a steady stream by a failed path: one of four kernel-routed paths becomes a black hole
//! (in both directions; no port loses carrier and no router detects it), fifty times.
//!
//! `sudo cargo bench -p weft-perf --bench failover -- [kills]`. Needs root for namespaces.
//!
//! A message of 25 KB is sent every millisecond. The interruption is the time from the start of the command that fails
//! the path to the in-order delivery of the last late message, whose latency exceeds the median before the failure by
//! more than a millisecond. That includes the time until the kernel has the command's rules, a few milliseconds, so the
//! time from the submission of the first late message is given too. A pause of the machine makes messages late too, so
//! each failure is preceded by the same measurement without one.
#![allow(clippy::disallowed_methods, reason = "it watches a kernel in real time")]

use std::process::ExitCode;
use std::thread;

use weft_lab::{Flow, Lab, LabSpec, requirements};
use weft_testkit::{figure_row, json};
use weft_transport::{ConnectionId, Event, Message, Payload, Placement, TransportConfig};
use weft_udp::{Agent, AgentConfig, Application, Endpoint};
use weft_units::{Duration, Instant};

const PORT: u16 = 4791;
const UDP: u8 = 17;
const MESSAGE_BYTES: u32 = 25_000;
const MESSAGE_INTERVAL: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(1);

/// The submission and delivery times of each message, by number.
#[derive(Default)]
struct Stream {
    submitted: Vec<Instant>,
    delivered: Vec<Instant>,
    connected: bool,
    paths_up: u32,
    closed: bool,
}

impl Application for Stream {
    fn read(&mut self, _: ConnectionId, _: Payload, out: &mut [u8]) {
        out.fill(1);
    }

    fn place(&mut self, _: Instant, _: &Placement, bytes: &[u8]) {
        std::hint::black_box(bytes);
    }

    fn on_event(&mut self, _: &mut Endpoint, now: Instant, event: Event) {
        match event {
            Event::Connected { .. } => self.connected = true,
            Event::Delivered { .. } => self.delivered.push(now),
            Event::PathUp { .. } => self.paths_up += 1,
            Event::Closed { .. } => self.closed = true,
            _ => {}
        }
    }
}

struct Bench {
    agents: [Agent; 2],
    streams: [Stream; 2],
    connection: Option<ConnectionId>,
    next: Instant,
}

impl Bench {
    /// Runs both ends and continues the stream until `done` returns `true`.
    fn run(&mut self, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) {
            let now = self.agents[0].now();
            if let Some(connection) = self.connection.filter(|_| now >= self.next) {
                let token = self.streams[0].submitted.len() as u64;
                let message = Message { token, opcode: 0, tag: 0, length: MESSAGE_BYTES };
                if self.agents[0].endpoint().submit(now, connection, message).is_ok() {
                    self.streams[0].submitted.push(now);
                }
                self.next = self.next.max(now - MESSAGE_INTERVAL) + MESSAGE_INTERVAL;
            }
            for (agent, stream) in self.agents.iter_mut().zip(&mut self.streams) {
                let _ = agent.turn(stream);
            }
            assert!(!self.streams[0].closed, "the connection must survive");
        }
    }

    fn run_for(&mut self, span: Duration) {
        let until = self.agents[0].now() + span;
        self.run(|bench| bench.agents[0].now() >= until);
    }

    /// Returns the times from `since`, and from the first submission of a late message, to the last delivery of one: with
    /// a latency above `late`, of the messages submitted from 5 ms before `since` on. Both are zero if there is none.
    fn interruption(&self, since: Instant, late: Duration) -> [Duration; 2] {
        let latencies = self.latencies(since - Duration::from_millis(5));
        let late: Vec<_> = latencies.filter(|(latency, _)| *latency > late).collect();
        let first = late.iter().map(|&(latency, at)| at - latency).min();
        let last = late.iter().map(|&(_, at)| at).max();
        first
            .zip(last)
            .map_or([Duration::ZERO; 2], |(first, last)| [last.since(since), last.since(first)])
    }

    /// Continues the stream for 100 ms, and until all messages submitted in that time are delivered.
    fn await_delivery(&mut self) {
        self.run_for(Duration::from_millis(100));
        let submitted = self.streams[0].submitted.len();
        self.run(|bench| bench.streams[1].delivered.len() >= submitted);
    }

    /// Returns the latency and the delivery time of each message submitted from `since` on.
    fn latencies(&self, since: Instant) -> impl Iterator<Item = (Duration, Instant)> {
        let submitted = self.streams[0].submitted.iter();
        let both = submitted.zip(&self.streams[1].delivered);
        both.filter(move |(at, _)| **at >= since).map(|(at, done)| (done.since(*at), *done))
    }
}

/// Returns the first of four consecutive source ports that take four different spines.
fn first_port(lab: &Lab) -> u16 {
    let paths = lab.fabric().paths();
    let spine = |source_port| {
        let flow =
            Flow { source: 0, destination: 1, protocol: UDP, source_port, destination_port: PORT };
        paths.spine_of(&flow)
    };
    let distinct = |first: &u16| {
        let mut spines: Vec<_> = (0..4).map(|path| spine(first + path)).collect();
        spines.sort_unstable();
        spines.dedup();
        spines.len() == 4
    };
    (40_000..60_000).step_by(4).find(distinct).expect("one in eleven is")
}

fn open(lab: &Lab) -> Bench {
    let first = first_port(lab);
    let transport = TransportConfig { spray_unit: 8, ..AgentConfig::ethernet(4) };
    let agent = |host: usize| {
        let local = (lab.fabric().address(host), PORT).into();
        let mut config = AgentConfig::new(local, transport.clone()).accepting();
        config.sockets.first_source_port = Some(first);
        let name = lab.fabric().nodes[host].name.clone();
        lab.enter(&name, || Agent::open(&config)).expect("root").expect("free ports")
    };
    let agents = [agent(0), agent(1)];
    let next = agents[0].now();
    Bench { agents, streams: Default::default(), connection: None, next }
}

/// The interruptions without a failure, after a path's failure, and from the first message that the failure delays.
struct Interruptions {
    nothing: Duration,
    death: Duration,
    first_late: Duration,
}

/// Measures the interruption without a failure, then fails the path over `spine`, measures it again, and repairs the
/// path.
fn kill(bench: &mut Bench, lab: &mut Lab, spine: usize) -> Interruptions {
    let quiet_since = bench.agents[0].now();
    bench.await_delivery();
    let mut quiet: Vec<_> = bench.latencies(quiet_since).map(|(latency, _)| latency).collect();
    quiet.sort_unstable();
    let late = quiet[quiet.len() / 2] + LATE;
    let control_since = bench.agents[0].now();
    bench.await_delivery();
    let [nothing, _] = bench.interruption(control_since, late);
    let link = lab.fabric().links[2 + spine].name.clone();
    let killed_at = bench.agents[0].now();
    thread::scope(|scope| {
        let killer = scope.spawn(|| lab.set_black_hole(&link, true).expect("root"));
        bench.run(|_| killer.is_finished());
    });
    bench.await_delivery();
    let [death, first_late] = bench.interruption(killed_at, late);
    let ups = bench.streams[0].paths_up;
    thread::scope(|scope| {
        let healer = scope.spawn(|| lab.set_black_hole(&link, false).expect("root"));
        bench.run(|_| healer.is_finished());
    });
    let until = bench.agents[0].now() + Duration::from_secs(1);
    bench.run(|bench| bench.streams[0].paths_up > ups || bench.agents[0].now() >= until);
    Interruptions { nothing, death, first_late }
}

fn print_quantiles(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros_f64() / 1e3;
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(at);
    println!("  after {what:<22}  p50 {p50:.1}  p90 {p90:.1}  p99 {p99:.1}  max {max:.1}");
    let row = json!({ "after": what, "p50": p50, "p90": p90, "p99": p99, "max": max });
    figure_row("perf-transport-failover", &row);
}

fn main() -> ExitCode {
    let kills = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(50);
    if let Some(missing) = requirements().into_iter().find(|r| r.essential && !r.met) {
        println!("failover: skipped, no {} ({})", missing.name, missing.fix);
        return ExitCode::SUCCESS;
    }
    let spec = LabSpec::named(format!("failover-{}", std::process::id()));
    let mut lab = Lab::up(&spec).expect("namespaces can be made");
    let mut bench = open(&lab);
    let (now, peer) = (bench.agents[0].now(), bench.agents[1].local());
    let connection = bench.agents[0].endpoint().connect(now, peer, 0).expect("room for one");
    bench.run(|bench| bench.streams[0].connected);
    bench.connection = Some(connection);
    bench.run_for(Duration::from_millis(300));
    let measured: Vec<Interruptions> =
        (0..kills).map(|number| kill(&mut bench, &mut lab, number % 4)).collect();
    let stats = bench.agents[0].endpoint().stats();
    println!("until the last late message, {kills} times, ms");
    print_quantiles("a path's death", measured.iter().map(|it| it.death).collect());
    print_quantiles("the first late message", measured.iter().map(|it| it.first_late).collect());
    print_quantiles("nothing", measured.iter().map(|it| it.nothing).collect());
    println!(
        "  paths down {}, up {}; retransmits: fast {}, timeout {}, needless {}",
        stats.paths_down,
        stats.paths_up,
        stats.fast_retransmits,
        stats.timeout_retransmits,
        stats.spurious_retransmits
    );
    ExitCode::SUCCESS
}
