//! Congestion controls on real packets, side by side over four kernel-routed paths: random loss on
//! every path, several senders into one link, and one sender beside TCP's CUBIC.
//!
//! `sudo cargo bench -p weft-perf --bench congestion -- [loss|fast-loss|share|mark|beside ...] [SECONDSs]
//! [rounds=N] [senders=N] [queue=TARGET] [control ...]`. In `fast-loss` no link is limited, so the processors are the
//! bottleneck. The result is the round with the most goodput, because other programs on the machine only reduce it. It
//! needs root for namespaces, iperf3 and tc. The default controls are `weft`, `fixed-window`, `swift` and TCP's CUBIC.
#![allow(clippy::disallowed_methods, reason = "it watches a kernel in real time")]

use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use weft_lab::{Direction, Impairment, Lab, LabSpec, requirements};
use weft_perf::{Client, ClientConfig, Plan, Server, ServerConfig, TestKind};
use weft_transport::{TransportConfig, congestion};
use weft_udp::{AgentConfig, WaitMode};
use weft_units::{BitRate, ByteCount, Duration};

const PATHS: u16 = 16;
/// Number of hosts behind each leaf: the receiver is the first of one leaf, the senders are those of the other.
const SENDERS: usize = 8;
/// Rate of the receiver's link, bits per second, except in `fast-loss`.
const LINK: u64 = 200_000_000;
/// Queue of the receiver's link, bytes: 10 ms at its rate.
const BUFFER: u64 = LINK / 8 / 100;
/// Bytes of a packet's payload, and of its frame with all headers.
const PAYLOAD: f64 = 1440.0;
const FRAME: f64 = 1514.0;
/// Time at the beginning that results exclude, seconds.
const WARM_UP: f64 = 1.0;

/// A sender: the transport under one control, or the kernel's TCP.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    Weft(congestion::Kind),
    Cubic,
}

impl Sender {
    fn name(self) -> &'static str {
        match self {
            Self::Weft(kind) => kind.name(),
            Self::Cubic => "TCP CUBIC",
        }
    }
}

/// The measurements of one run.
struct Outcome {
    /// Payload rate of each sender, bits per second.
    rates: Vec<f64>,
    /// Retransmissions as a share of the packets sent.
    retransmitted: f64,
    /// The median backlog of the receiver's link, bytes.
    queue: u64,
}

impl Outcome {
    fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns Jain's fairness index: 1 if all rates are equal, 1/n if one sender has the whole rate.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.rates.iter().map(|rate| rate * rate).sum();
        self.total() * self.total() / (self.rates.len() as f64 * squares)
    }
}

struct Bench {
    lab: Lab,
    seconds: u64,
    /// Runs of each row.
    rounds: usize,
    /// Senders that share the link.
    counts: Vec<usize>,
    transport: TransportConfig,
}

impl Bench {
    /// Runs these senders at the same time, [`Self::rounds`] times, and returns the round with the most goodput.
    fn best(&self, senders: &[Sender]) -> Outcome {
        let rounds = (0..self.rounds).map(|_| self.run(senders));
        rounds.max_by(|one, other| one.total().total_cmp(&other.total())).expect("a round")
    }

    fn host(&self, index: usize) -> String {
        self.lab.fabric().nodes[index].name.clone()
    }

    /// Returns the names of the receiver's link and of the leaf at its other end.
    fn bottleneck(&self) -> (String, String) {
        let link = &self.lab.fabric().links[0];
        let ends = [link.near.node, link.far.node].map(|node| &self.lab.fabric().nodes[node].name);
        let leaf = ends.into_iter().find(|name| **name != self.host(0)).expect("two ends");
        (link.name.clone(), leaf.clone())
    }

    /// Limits the receiver's link to `rate`, bits per second, with marks above a backlog of `mark_above` bytes. `None`
    /// removes the limit.
    fn limit(&mut self, rate: Option<u64>, mark_above: Option<u64>) {
        let (link, leaf) = self.bottleneck();
        let limit = Impairment {
            rate: rate.and_then(BitRate::bps),
            queue: rate.map(|_| ByteCount(BUFFER)),
            mark_above: mark_above.map(ByteCount),
            ..Impairment::default()
        };
        self.lab.impair(&link, Direction::From(leaf), &limit).expect("root");
    }

    /// Sets the loss of the four paths.
    fn set_loss(&mut self, loss: &str) {
        let limit = Impairment { loss: loss.parse().expect("a loss"), ..Impairment::default() };
        let spines = self.lab.fabric().links.iter().skip(2 * SENDERS);
        let links: Vec<_> = spines.take(4).map(|link| link.name.clone()).collect();
        for link in links {
            self.lab.impair(&link, Direction::Both, &limit).expect("root");
        }
    }

    /// Returns the backlog of the receiver's link, bytes.
    fn backlog(&self) -> u64 {
        let (_, leaf) = self.bottleneck();
        let show = || Command::new("tc").args(["-s", "qdisc", "show"]).output();
        let out = self.lab.enter(&leaf, show).expect("root").expect("tc runs");
        let text = String::from_utf8_lossy(&out.stdout);
        let tbf = text.split("qdisc ").find(|part| part.starts_with("tbf")).unwrap_or("");
        let word = tbf.split("backlog ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let word = word.unwrap_or("0b").trim_end_matches('b');
        match word.strip_suffix('K') {
            Some(kilo) => kilo.parse::<u64>().map_or(0, |kilo| kilo * 1024),
            None => word.parse().unwrap_or(0),
        }
    }

    /// Runs these senders at the same time and returns their measurements.
    fn run(&self, senders: &[Sender]) -> Outcome {
        let stop = AtomicBool::new(false);
        let outcome = Mutex::new((vec![0.0; senders.len()], 0_u64, 0_u64));
        let mut backlog = Vec::new();
        thread::scope(|scope| {
            let address = |index: usize| self.lab.fabric().address(index);
            let config = ServerConfig {
                encryption: weft_udp::SealConfig::default(),
                local: SocketAddr::from((address(0), 4791)),
                transport: self.transport.clone(),
                wait: WaitMode::Block,
            };
            let open = || Server::open(&config);
            let mut server = self.lab.enter(&self.host(0), open).expect("root").expect("a server");
            let at = server.local();
            let until = &stop;
            scope.spawn(move || server.run(until));
            let senders: Vec<_> = senders
                .iter()
                .enumerate()
                .map(|(index, &sender)| {
                    let outcome = &outcome;
                    scope.spawn(move || {
                        let (rate, sent, retransmitted) = match sender {
                            Sender::Weft(kind) => self.weft(index, kind, at),
                            Sender::Cubic => (self.cubic(index), 0, 0),
                        };
                        let mut outcome = outcome.lock().expect("no sender panics");
                        outcome.0[index] = rate;
                        outcome.1 += sent;
                        outcome.2 += retransmitted;
                    })
                })
                .collect();
            let started_at = Instant::now();
            while senders.iter().any(|sender| !sender.is_finished()) {
                thread::sleep(std::time::Duration::from_millis(50));
                let seconds = started_at.elapsed().as_secs_f64();
                if (WARM_UP..self.seconds as f64).contains(&seconds) {
                    backlog.push(self.backlog());
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (rates, sent, retransmitted) = outcome.into_inner().expect("no sender panicked");
        backlog.sort_unstable();
        let queue = backlog.get(backlog.len() / 2).copied().unwrap_or(0);
        Outcome { rates, retransmitted: retransmitted as f64 / sent.max(1) as f64, queue }
    }

    /// Runs a stream of the transport and returns bits per second, packets sent, and retransmissions.
    fn weft(&self, index: usize, kind: congestion::Kind, server: SocketAddr) -> (f64, u64, u64) {
        let from = SENDERS + index;
        let config = ClientConfig {
            encryption: weft_udp::SealConfig::default(),
            local: SocketAddr::from((self.lab.fabric().address(from), 0)),
            server,
            transport: TransportConfig { congestion: kind, ..self.transport.clone() },
            plan: Plan::new(TestKind::Throughput, 64 << 10, 32, false).expect("a plan"),
            connections: 1,
            duration: Duration::from_secs(self.seconds),
            wait: WaitMode::Block,
        };
        let open = || Client::open(config);
        let client = self.lab.enter(&self.host(from), open).expect("root").expect("a client");
        let (mut first, mut last) = (None, (0.0, 0));
        let report = client
            .run(|progress| {
                last = (progress.seconds, progress.bytes);
                if progress.seconds >= WARM_UP {
                    first.get_or_insert(last);
                }
            })
            .expect("the server answers");
        let (began, before) = first.unwrap_or_default();
        let rate = (last.1 - before) as f64 * 8.0 / (last.0 - began).max(0.001);
        (rate, report.client.engine.data_sent, report.client.engine.retransmissions())
    }

    /// Runs a stream of the kernel's TCP and returns bits per second; zero if iperf3 reports none.
    fn cubic(&self, index: usize) -> f64 {
        let port = (5201 + index).to_string();
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "-p", &port]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = self.lab.spawn(&self.host(0), &mut server).expect("iperf3");
        let to = self.lab.fabric().address(0).to_string();
        let seconds = self.seconds.to_string();
        let omit = WARM_UP.to_string();
        let run = || {
            let mut client = Command::new("iperf3");
            client.args(["-c", &to, "-p", &port, "-t", &seconds, "-O", &omit, "-C", "cubic", "-J"]);
            // The server may not listen yet.
            (0..50).find_map(|_| {
                let out = client.output().expect("iperf3 runs");
                let json: serde_json::Value = serde_json::from_slice(&out.stdout).ok()?;
                json["end"]["sum_received"]["bits_per_second"].as_f64()
            })
        };
        let rate = self.lab.enter(&self.host(SENDERS + index), run).expect("root");
        let _ = server.kill();
        let _ = server.wait();
        rate.unwrap_or(0.0)
    }
}

/// Returns the maximum payload rate of a link of this rate, both in bits per second.
fn payload_rate(rate: u64) -> f64 {
    rate as f64 * PAYLOAD / FRAME
}

fn loss(bench: &mut Bench, senders: &[Sender], limit: Option<u64>) {
    let link = limit.map_or_else(|| "no limit".into(), |rate| format!("{} Mb/s", rate / 1_000_000));
    println!("Random loss on each of four paths, both ways, one sender, receiver's link: {link}");
    println!(
        "{:<14} {:>8} {:>12} {:>12} {:>10}",
        "sender", "loss", "Mb/s", "of loss-free", "resent"
    );
    bench.limit(limit, None);
    for &sender in senders {
        let mut free = None;
        for loss in ["0%", "0.1%", "1%", "2%"] {
            bench.set_loss(loss);
            let outcome = bench.best(&[sender]);
            let free = *free.get_or_insert_with(|| outcome.total());
            println!(
                "{:<14} {loss:>8} {:>12.1} {:>12.3} {:>9.2}%",
                sender.name(),
                outcome.total() / 1e6,
                outcome.total() / free,
                outcome.retransmitted * 100.0
            );
        }
    }
    let spines = bench.lab.fabric().links.iter().skip(2 * SENDERS);
    let links: Vec<_> = spines.take(4).map(|link| link.name.clone()).collect();
    for link in links {
        bench.lab.impair(&link, Direction::Both, &Impairment::default()).expect("root");
    }
    bench.limit(None, None);
}

fn share(bench: &mut Bench, senders: &[Sender], mark_above: Option<u64>) {
    let marks = mark_above.map_or(String::new(), |bytes| format!(", marks above {bytes} bytes"));
    println!("Senders into one link of {} Mb/s, buffer {BUFFER} bytes{marks}", LINK / 1_000_000);
    println!(
        "{:<14} {:>8} {:>12} {:>8} {:>14} {:>10}",
        "sender", "senders", "of the link", "Jain", "queue/buffer", "resent"
    );
    bench.limit(Some(LINK), mark_above);
    for &sender in senders {
        for &count in &bench.counts {
            let outcome = bench.best(&vec![sender; count]);
            println!(
                "{:<14} {count:>8} {:>12.3} {:>8.3} {:>14.3} {:>9.2}%",
                sender.name(),
                outcome.total() / payload_rate(LINK),
                outcome.fairness(),
                outcome.queue as f64 / BUFFER as f64,
                outcome.retransmitted * 100.0
            );
        }
    }
    bench.limit(None, None);
}

fn beside(bench: &mut Bench, senders: &[Sender]) {
    println!("One sender beside one CUBIC flow, link of {} Mb/s", LINK / 1_000_000);
    println!(
        "{:<14} {:>12} {:>12} {:>14} {:>10}",
        "sender", "its share", "CUBIC's", "queue/buffer", "resent"
    );
    bench.limit(Some(LINK), None);
    for &sender in senders {
        let outcome = bench.best(&[sender, Sender::Cubic]);
        let half = payload_rate(LINK) / 2.0;
        println!(
            "{:<14} {:>12.3} {:>12.3} {:>14.3} {:>9.2}%",
            sender.name(),
            outcome.rates[0] / half,
            outcome.rates[1] / half,
            outcome.queue as f64 / BUFFER as f64,
            outcome.retransmitted * 100.0
        );
    }
    bench.limit(None, None);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let Some(missing) = requirements().into_iter().find(|r| r.essential && !r.met) {
        println!("congestion: skipped, no {} ({})", missing.name, missing.fix);
        return ExitCode::SUCCESS;
    }
    let seconds = arguments.iter().find_map(|a| a.strip_suffix('s')?.parse().ok()).unwrap_or(6);
    let mut senders: Vec<_> =
        arguments.iter().filter_map(|argument| argument.parse().ok().map(Sender::Weft)).collect();
    if senders.is_empty() {
        use congestion::Kind;
        senders.extend([Kind::Weft, Kind::FixedWindow, Kind::Swift].map(Sender::Weft));
        senders.push(Sender::Cubic);
    }
    let spec = LabSpec {
        hosts_per_leaf: SENDERS,
        offloads: false,
        ..LabSpec::named(format!("congestion-{}", std::process::id()))
    };
    let lab = Lab::up(&spec).expect("namespaces can be made");
    let mut transport = AgentConfig::ethernet(PATHS);
    if let Some(target) = arguments.iter().find_map(|a| a.strip_prefix("queue=")) {
        transport.queue_target = target.parse().expect("a duration, as 2ms");
    }
    let number =
        |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.parse::<usize>().ok());
    let counts = number("senders=")
        .map_or_else(|| vec![1, 2, 4, SENDERS], |count| vec![count.clamp(1, SENDERS)]);
    let rounds = number("rounds=").unwrap_or(1).max(1);
    let mut bench = Bench { lab, seconds, rounds, counts, transport };
    let wanted = |name: &str| {
        let named = ["loss", "fast-loss", "share", "beside", "mark"];
        arguments.iter().all(|a| !named.contains(&a.as_str()))
            || arguments.iter().any(|a| a == name)
    };
    if wanted("loss") {
        loss(&mut bench, &senders, Some(LINK));
    }
    if wanted("fast-loss") {
        loss(&mut bench, &senders, None);
    }
    if wanted("share") {
        share(&mut bench, &senders, None);
    }
    if wanted("mark") {
        share(&mut bench, &senders, Some(BUFFER / 5));
    }
    if wanted("beside") {
        beside(&mut bench, &senders);
    }
    ExitCode::SUCCESS
}
