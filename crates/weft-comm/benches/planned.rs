//! Measures all-reduce on planned source ports, on random ones, and sprayed over all paths: real packets over the
//! kernel's ECMP, with a rate limit on every link.
//!
//! `cargo bench -p weft-comm --bench planned -- [ROUNDS [DRAWS [HOST [SPINE [BYTES]]]]]`: the number of collectives of
//! each variant, the number of draws of random ports, the rates of hosts' and of spines' links in Mb/s, and the
//! buffer's bytes. There are eight hosts behind four leaves and four spines; the ring goes from leaf to leaf, so that
//! all of its traffic crosses spines. A rank sends to the next over two paths; if they share no link, they carry a
//! host's full rate. Packets have 1,500 bytes, the device's default without `WEFT_MTU`; links carry 9,000. Needs
//! root.
#![allow(clippy::disallowed_methods, reason = "it measures programs in real time")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weft_comm::{Call, Collective, Communicator, DataType, Op, Options, TOKEN_VARIABLE, Token};
use weft_lab::{Direction, Impairment, Lab, LabSpec, LinkCounters};
use weft_plan::cluster::Network;
use weft_plan::ports::{Entropy, Fabric, Flow, SearchLimits, loads, plan, random_ports};
use weft_topo::build::LeafSpine;
use weft_topo::hash::{HashAlgorithm, SwitchHash};
use weft_topo::{Failures, NodeId};
use weft_units::{BitRate, Duration, Seed};
// The archive is made with the library.
use weft_verbs as _;

type Outcome<T> = Result<T, Box<dyn Error>>;

const LEAVES: u32 = 4;
const SPINES: u32 = 4;
const HOSTS_PER_LEAF: u32 = 2;
const RANKS: usize = 8;
/// The next rank is always behind another leaf.
const ORDER: [usize; RANKS] = [0, 2, 4, 6, 1, 3, 5, 7];
/// Paths from a rank to the next.
const PATHS: usize = 2;
/// The receive port of the first process of a host with Weft's device.
const RECEIVE_PORT: u16 = 0x5000;
/// Maximum seconds of one variant.
const RUN_TIMEOUT: &str = "120";
/// The environment variable with the rank's number, for the processes that this one starts.
const RANK: &str = "PLANNED_RANK";

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let Ok(rank) = std::env::var(RANK) {
        return run_rank(rank.parse()?, words[0].parse()?, words[1].parse()?, words[2].parse()?);
    }
    let number = |place: usize, default| words.get(place).map_or(Ok(default), |word| word.parse());
    let (rounds, draws): (u64, u64) = (number(0, 2)?, number(1, 3)?);
    let (host, spine) = (number(2, 20)?, number(3, 10)?);
    let bytes = number(4, 2 << 20)?;
    let rate = |mbits: u64| BitRate::bps(mbits * 1_000_000).ok_or("a rate is not zero");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let library = weft_testkit::link_verbs(folder.join("planned"), false);
    let bench = Bench {
        rounds,
        bytes,
        host: rate(host)?,
        spine: rate(spine)?,
        library,
        token: Token::random()?,
    };
    println!(
        "{RANKS} hosts of {host} Mb/s, {SPINES} spines with links of {spine} Mb/s; all_reduce of {bytes} bytes, \
         {rounds} rounds\n{:>10}{:>16}{:>12}{:>12}{:>14}{:>14}",
        "ports", "flows, busiest", "ms", "busbw MB/s", "busiest MB", "mean MB"
    );
    bench.measure_variant(
        "planned",
        Some(&|fabric, flows| Ok(plan(fabric, flows, SearchLimits::default(), Seed(1))?.ports)),
    )?;
    for draw in 0..draws {
        bench.measure_variant(
            "random",
            Some(&|fabric, flows| Ok(random_ports(fabric, flows.len(), Seed(draw)))),
        )?;
    }
    bench.measure_variant("spray", None)
}

type Choose<'a> = &'a dyn Fn(&Fabric<'_>, &[Flow]) -> Outcome<Vec<u16>>;

struct Bench {
    rounds: u64,
    bytes: u64,
    host: BitRate,
    spine: BitRate,
    library: PathBuf,
    token: Token,
}

impl Bench {
    /// Measures one variant on its own fabric, so that its queues are empty.
    fn measure_variant(&self, name: &str, choose: Option<Choose<'_>>) -> Outcome<()> {
        let lab = self.lab()?;
        let table = choose.map(|choose| table(&lab, choose)).transpose()?;
        let before = lab.counters()?;
        let (file, busiest) = match &table {
            Some((text, busiest)) => {
                let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planned-ports.csv");
                std::fs::write(&file, text)?;
                (Some(file), busiest.to_string())
            }
            None => (None, "-".to_owned()),
        };
        let seconds = self.measure(&lab, file.as_deref())?;
        let carried = carried(&lab, &before, &lab.counters()?);
        let busiest_link_mb = carried.iter().max().copied().unwrap_or(0) as f64 / 1e6;
        let mean = carried.iter().sum::<u64>() as f64 / carried.len() as f64 / 1e6;
        let share = 2.0 * (RANKS - 1) as f64 / RANKS as f64;
        println!(
            "{name:>10}{busiest:>16}{:>12.0}{:>12.2}{busiest_link_mb:>14.2}{mean:>14.2}",
            seconds * 1e3,
            self.bytes as f64 * share / seconds / 1e6,
        );
        Ok(())
    }

    fn lab(&self) -> Outcome<Lab> {
        let name = format!("wp{}", std::process::id());
        let (leaves, spines) = (LEAVES as usize, SPINES as usize);
        let hosts_per_leaf = HOSTS_PER_LEAF as usize;
        let spec = LabSpec { leaves, spines, hosts_per_leaf, mtu: 9000, ..LabSpec::named(name) };
        let mut lab = Lab::up(&spec)?;
        let names: Vec<String> = lab.fabric().links.iter().map(|link| link.name.clone()).collect();
        for name in names {
            let rate = if name.contains("-s") { self.spine } else { self.host };
            let limited = Impairment { rate: Some(rate), ..Impairment::default() };
            lab.impair(&name, Direction::Both, &limited)?;
        }
        Ok(lab)
    }

    /// Returns the mean seconds of a collective, measured by rank 0.
    fn measure(&self, lab: &Lab, ports: Option<&Path>) -> Outcome<f64> {
        let mut ranks =
            (0..RANKS).map(|rank| self.start(lab, rank, ports)).collect::<Outcome<Vec<Child>>>()?;
        let out = ranks[0].stdout.take().ok_or("piped")?;
        let took = BufReader::new(out).lines().next().ok_or("rank 0 printed nothing")??;
        for rank in &mut ranks {
            let status = rank.wait()?;
            assert!(status.success(), "a rank: {status}");
        }
        Ok(took.parse()?)
    }

    fn start(&self, lab: &Lab, rank: usize, ports: Option<&Path>) -> Outcome<Child> {
        let at = SocketAddr::from((lab.fabric().address(0), 7000));
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", RUN_TIMEOUT]).arg(std::env::current_exe()?);
        command.args([at.to_string(), self.rounds.to_string(), self.bytes.to_string()]);
        command.env(RANK, rank.to_string()).env("LD_LIBRARY_PATH", &self.library);
        command.env(TOKEN_VARIABLE, self.token.reveal());
        command.env("WEFT_LINE_RATE", self.host.to_string());
        command.envs(ports.map(|ports| ("WEFT_PORTS", ports)));
        command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
        Ok(lab.spawn(&format!("h{rank}"), &mut command)?)
    }
}

/// Returns the port table of the ring, and the predicted number of flows on its busiest link between switches.
fn table(lab: &Lab, choose: Choose<'_>) -> Outcome<(String, u32)> {
    let network = network(lab)?;
    let entropy = Entropy { destination_port: RECEIVE_PORT, ..Entropy::default() };
    let fabric = Fabric::new(&network, &Failures::none(), entropy)?;
    let host = |place: usize| NodeId(u32::try_from(ORDER[place % RANKS]).expect("few ranks"));
    let flow = |place: usize| Flow {
        first: network.topology.ports(host(place))[0],
        destination: host(place + 1),
    };
    let flows: Vec<Flow> = (0..RANKS).flat_map(|place| [flow(place); PATHS]).collect();
    let ports = choose(&fabric, &flows)?;
    let mut text = String::from("source,destination,source_port\n");
    for (flow, port) in flows.iter().zip(&ports) {
        let source = network.topology.link(flow.first).from;
        let [source, destination] =
            [source, flow.destination].map(|host| Ipv4Addr::from(network.addresses[host.index()]));
        text += &format!("{source},{destination},{port}\n");
    }
    Ok((text, loads(&fabric, &flows, &ports).max()))
}

/// Returns the lab's fabric for the planner: hosts, leaves and spines have the same numbers.
fn network(lab: &Lab) -> Outcome<Network> {
    let topology = LeafSpine {
        leaves: LEAVES,
        spines: SPINES,
        hosts_per_leaf: HOSTS_PER_LEAF,
        ..LeafSpine::default()
    }
    .build()?;
    let fabric = lab.fabric();
    let hash = |seed| SwitchHash { algorithm: HashAlgorithm::LinuxFields, seed, rotate: 0 };
    let switches = &fabric.nodes[fabric.hosts()..];
    Ok(Network {
        hashes: switches.iter().map(|node| hash(node.hash_seed)).collect(),
        addresses: (0..fabric.hosts()).map(|host| fabric.address(host).into()).collect(),
        weights: BTreeMap::new(),
        names: switches.iter().map(|node| node.name.clone()).collect(),
        topology,
    })
}

/// Returns the bytes carried in each direction of each link between leaves and spines.
fn carried(lab: &Lab, before: &[LinkCounters], after: &[LinkCounters]) -> Vec<u64> {
    let links = lab.fabric().links.iter().zip(before).zip(after);
    links
        .filter(|((link, _), _)| link.name.contains("-s"))
        .flat_map(|((_, before), after)| {
            let up = after.forward.bytes - before.forward.bytes;
            [up, after.backward.bytes - before.backward.bytes]
        })
        .collect()
}

/// Runs a rank.
fn run_rank(rank: usize, at: SocketAddr, rounds: u32, bytes: usize) -> Outcome<()> {
    let options = Options { lanes: 1, order: Some(ORDER.to_vec()), ..Options::default() };
    let mut group = Communicator::join(at, rank, RANKS, options)?;
    let timeout = Some(Duration::from_secs(60));
    let elements = bytes / 4;
    let call = Call {
        collective: Collective::AllReduce,
        data_type: DataType::Fp32,
        op: Op::Sum,
        root: 0,
        elements,
    };
    let mut took = Duration::ZERO;
    // The first round starts with empty windows and address tables, and is not counted.
    for round in 0..=rounds {
        let value = |at: usize, rank: usize| ((at + rank) % 100) as f32;
        let buffer = (0..elements).flat_map(|at| value(at, rank).to_le_bytes()).collect();
        group.barrier(Vec::new(), timeout)?;
        let began = group.now();
        let buffer: Vec<u8> = group.run(call, buffer, timeout)?;
        if round > 0 {
            took = took + group.now().since(began);
        }
        for (at, got) in buffer.chunks_exact(4).enumerate() {
            let want: f32 = (0..RANKS).map(|rank| value(at, rank)).sum();
            assert_eq!(got, want.to_le_bytes(), "element {at}");
        }
    }
    if rank == 0 {
        println!("{}", took.as_nanos() as f64 / 1e9 / f64::from(rounds));
    }
    group.leave();
    Ok(())
}
