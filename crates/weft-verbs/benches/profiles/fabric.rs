//! Eight hosts below two leaves, four spines between them, and every link at one rate, with ECN marks as a switch sets
//! them.

use std::process::{Child, Stdio};
use std::time::Duration;

use weft_lab::{Direction, Impairment, Lab, LabSpec, requirements};
use weft_units::{BitRate, ByteCount};

use crate::Contender;
use crate::library::program;
use crate::pair::{finish, next_port, until_listening};

/// The rate of every link. The full rate takes a small part of a processor, so that the links are the bottleneck.
pub(crate) const LINE_MBPS: u64 = 500;
const HOSTS_PER_LEAF: usize = 4;
const SPINES: usize = 4;
/// The host that receives, and one below the other leaf.
const SERVER: usize = 0;
const CLIENT: usize = HOSTS_PER_LEAF;

/// The size of a port's queue, 5 ms, and the length above which packets are marked, 1 ms.
const QUEUE: ByteCount = ByteCount(312_500);
const MARK_ABOVE: ByteCount = ByteCount(62_500);

/// The time after which a path fails in the test of a failing path.
const LIFETIME: Duration = Duration::from_millis(700);

/// Latency of a SEND, microseconds.
pub(crate) struct Latency {
    pub(crate) typical: f64,
    pub(crate) p99: f64,
}

pub(crate) struct Fabric(Lab);

/// Returns the properties of a link without faults.
fn healthy() -> Impairment {
    Impairment {
        rate: BitRate::bps(LINE_MBPS * 1_000_000),
        queue: Some(QUEUE),
        mark_above: Some(MARK_ABOVE),
        ..Impairment::default()
    }
}

impl Fabric {
    /// Brings the fabric up, or prints why it cannot.
    pub(crate) fn up() -> Option<Self> {
        if let Some(missing) = requirements().into_iter().find(|r| r.essential && !r.met) {
            println!("no lab: no {} ({})", missing.name, missing.fix);
            return None;
        }
        let name = format!("pr{}", std::process::id());
        let spec =
            LabSpec { spines: SPINES, hosts_per_leaf: HOSTS_PER_LEAF, ..LabSpec::named(name) };
        let mut lab = Lab::up(&spec).expect("a lab");
        let hosts =
            (0..2 * HOSTS_PER_LEAF).map(|host| format!("h{host}-l{}", host / HOSTS_PER_LEAF));
        let spines =
            (0..2 * SPINES).map(|number| format!("l{}-s{}", number / SPINES, number % SPINES));
        for link in hosts.chain(spines) {
            lab.impair(&link, Direction::Both, &healthy()).expect("a link");
        }
        Some(Self(lab))
    }

    /// Starts a program of perftest; a client gets the server's address.
    fn start(&self, host: usize, of: &Contender, words: &str) -> Child {
        let mut words: Vec<&str> = words.split_whitespace().collect();
        let address = self.0.fabric().address(SERVER).to_string();
        if host != SERVER {
            words.push(&address);
        }
        let mut command = program(&words);
        command.envs(of.variables.iter().map(|(name, value)| (name, value)));
        command.env("WEFT_LINE_RATE", format!("{LINE_MBPS}Mbps"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.0.spawn(&format!("h{host}"), &mut command).expect("a program on a host")
    }

    /// Runs clients on some hosts at once, each with its own server. Returns the output of each client if all
    /// succeeded.
    fn run(&self, clients: &[usize], of: &Contender, words: &str) -> Option<Vec<String>> {
        let mut ends = vec![];
        for &client in clients {
            let port = next_port();
            let words = format!("{words} -p {port}");
            let mut server = self.start(SERVER, of, &words);
            until_listening(&mut server, port);
            ends.push((client, words, server));
        }
        let running: Vec<_> =
            ends.iter().map(|(client, words, _)| self.start(*client, of, words)).collect();
        let clients: Vec<_> = running.into_iter().map(finish).collect();
        for (mut server, (succeeded, _)) in ends.into_iter().map(|end| end.2).zip(&clients) {
            if !succeeded {
                let _ = server.kill();
            }
            let _ = finish(server);
        }
        for (_, printed) in clients.iter().filter(|client| !client.0) {
            eprintln!("{}: {words} failed: {printed}", of.name);
        }
        clients.into_iter().map(|(succeeded, printed)| succeeded.then_some(printed)).collect()
    }

    /// Returns the rate of `writes` WRITEs, Gb/s.
    pub(crate) fn bandwidth(&self, of: &Contender, writes: u64) -> Option<f64> {
        let printed = self.run(&[CLIENT], of, &bulk(writes))?;
        gbps(&printed[0])
    }

    /// Returns the latency of `sends` SENDs of 64 bytes.
    pub(crate) fn latency(&self, of: &Contender, sends: u64) -> Option<Latency> {
        let printed = self.run(&[CLIENT], of, &format!("ib_send_lat -s 64 -n {sends}"))?;
        let numbers = last_line(&printed[0], "64 ")?;
        Some(Latency { typical: *numbers.get(4)?, p99: *numbers.get(7)? })
    }

    /// Returns the slowest sender's part of its fair share while `senders` send at once; the best value is 1.
    pub(crate) fn incast(&self, of: &Contender, senders: usize, writes: u64) -> Option<f64> {
        let clients: Vec<_> = (1..=senders).map(|number| 2 * HOSTS_PER_LEAF - number).collect();
        let printed = self.run(&clients, of, &bulk(writes / senders as u64))?;
        let rates: Option<Vec<f64>> = printed.iter().map(|printed| gbps(printed)).collect();
        let worst = rates?.into_iter().fold(f64::INFINITY, f64::min);
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        Some(worst * senders as f64 * 1e3 / LINE_MBPS as f64)
    }

    /// Measures while one of the four paths loses packets both ways.
    pub(crate) fn lossy(
        &mut self,
        loss: &str,
        measure: impl FnOnce(&Self) -> Option<f64>,
    ) -> Option<f64> {
        let lossy = Impairment { loss: loss.parse().expect("a loss"), ..healthy() };
        self.0.impair("l1-s1", Direction::Both, &lossy).expect("a link");
        let measured = measure(self);
        self.0.impair("l1-s1", Direction::Both, &healthy()).expect("a link");
        measured
    }

    /// Measures while one of the four paths fails without a notice to any host.
    pub(crate) fn dying(
        &mut self,
        measure: impl FnOnce(&Self) -> Option<f64> + Send,
    ) -> Option<f64> {
        let mut killer = Lab::open(self.0.name()).expect("it is up");
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(LIFETIME);
                killer.set_black_hole("l1-s1", true).expect("a link");
            });
            measure(self)
        });
        killer.set_black_hole("l1-s1", false).expect("a link");
        measured
    }
}

fn bulk(writes: u64) -> String {
    format!("ib_write_bw -s {} -n {writes}", crate::SIZE)
}

/// Returns a rate in Gb/s; perftest prints 2^20 bytes a second.
fn gbps(printed: &str) -> Option<f64> {
    let numbers = last_line(printed, &format!("{} ", crate::SIZE))?;
    numbers.get(3).map(|mib| mib * 1_048_576.0 * 8.0 / 1e9)
}

/// Returns the numbers of the last line that begins with `first`.
fn last_line(printed: &str, first: &str) -> Option<Vec<f64>> {
    let line = printed.lines().rfind(|line| line.trim_start().starts_with(first))?;
    Some(line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}
