//! Compares all-reduce with gloo and Open MPI on the same fabric: four hosts, four paths between any two, a rate limit
//! on every link; healthy, with 1 % loss on the links of one spine or of all, and with a path that fails. Then on one
//! host, where Weft uses shared memory.
//!
//! `cargo bench -p weft-comm --bench rivals -- [ROUNDS [HOST [SPINE [MTU [TABLE]]]]]`: the rates of hosts' and of
//! spines' links in Mb/s, 0 for no limit, bytes of a packet, one table only (`healthy`, `lossy`, `all-lossy`, `dying` or
//! `one-host`). By default the four spines together carry a host's full rate, as in a fabric without oversubscription.
//! Needs root, Debian's python3-torch and openmpi-bin.
#![allow(clippy::disallowed_methods, reason = "it measures programs in real time")]

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weft_comm::{Call, Collective, Communicator, DataType, Op, Options, TOKEN_VARIABLE, Token};
use weft_lab::{Direction, Impairment, Lab, LabSpec};
use weft_testkit::{figure_row, json};
use weft_units::{BitRate, Duration};
// The archive is made with the library.
use weft_verbs as _;

type Outcome<T> = Result<T, Box<dyn Error>>;

const RANKS: usize = 4;
const SPINES: usize = 4;
const SIZES: [usize; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Maximum seconds of one run of a program.
const RUN_TIMEOUT: &str = "45";
/// The environment variable with the rank's number, for the processes that this one starts.
const RANK: &str = "RIVALS_RANK";

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let Ok(rank) = std::env::var(RANK) {
        return run_rank(rank.parse()?, words[0].parse()?, words[1].parse()?, &words[2..]);
    }
    let number = |place: usize, default| words.get(place).map_or(Ok(default), |word| word.parse());
    let (rounds, host): (u64, u64) = (number(0, 3)?, number(1, 200)?);
    let (spine, mtu) = (number(2, host / SPINES as u64)?, number(3, 9000)?);
    let rate = |mbits: u64| BitRate::bps(mbits * 1_000_000);
    let bench = Bench::new(rounds, rate(host), rate(spine), mtu.try_into()?)?;
    println!(
        "{RANKS} hosts of {host} Mb/s, {SPINES} spines with links of {spine} Mb/s, MTU {mtu}; all_reduce of floats, \
         {rounds} rounds; busbw MB/s (wrong elements)"
    );
    for (condition, name, what) in [
        (Condition::Healthy, "healthy", ""),
        (Condition::Lossy, "lossy", ": 1 % loss on the links of one spine"),
        (Condition::AllLossy, "all-lossy", ": 1 % loss on every link of every spine"),
        (Condition::Dying, "dying", ": a path dies after the first size"),
        (Condition::OneHost, "one-host", ": no fabric between the ranks"),
    ] {
        if words.get(4).is_none_or(|only| only == name) {
            bench.table(condition, &format!("{name}{what}"))?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Healthy,
    Lossy,
    AllLossy,
    Dying,
    OneHost,
}

/// A program's result at one size.
struct Cell {
    /// The bus bandwidth, MB/s.
    busbw: f64,
    /// The number of wrong elements, as the program prints it.
    wrong: String,
}

/// Records the rows of `docs/performance/planning.md`: the right results of each program.
fn record(columns: &[Vec<Cell>]) {
    for (program, column) in ["Weft", "gloo", "Open MPI"].into_iter().zip(columns) {
        let right = SIZES.iter().zip(column).filter(|(_, cell)| cell.wrong == "0");
        for (size, cell) in right {
            let row = json!({ "KiB": size >> 10, "program": program, "busbw": cell.busbw });
            figure_row("perf-planning-collectives", &row);
        }
    }
}

struct Bench {
    rounds: u64,
    host: Option<BitRate>,
    spine: Option<BitRate>,
    mtu: u16,
    library: PathBuf,
    mpi: PathBuf,
    shell: PathBuf,
    token: Token,
}

impl Bench {
    fn new(rounds: u64, host: Option<BitRate>, spine: Option<BitRate>, mtu: u16) -> Outcome<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (mpi, shell) = (folder.join("rivals-mpi"), folder.join("rivals-rsh"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rivals/all_reduce.c");
        let compiled = Command::new("mpicc").args(["-O2", source, "-o"]).arg(&mpi).status()?;
        assert!(compiled.success(), "mpicc (scripts/setup.sh verbs)");
        let library = weft_testkit::link_verbs(folder.join("rivals"), false);
        let token = Token::random()?;
        Ok(Self { rounds, host, spine, mtu, library, mpi, shell, token })
    }

    fn words(&self) -> Vec<String> {
        let sizes = SIZES.iter().map(usize::to_string);
        std::iter::once(self.rounds.to_string()).chain(sizes).collect()
    }

    fn table(&self, condition: Condition, what: &str) -> Outcome<()> {
        println!("\n{what}\n{:>10}{:>18}{:>18}{:>18}", "bytes", "weft", "gloo", "Open MPI");
        let mut columns = Vec::new();
        for start in [Self::weft, Self::gloo, Self::open_mpi] {
            let mut lab = match condition {
                Condition::OneHost => None,
                _ => Some(self.lab(condition)?),
            };
            let children = start(self, lab.as_ref())?;
            columns.push(self.run(children, lab.as_mut(), condition)?);
        }
        if condition == Condition::Healthy {
            record(&columns);
        }
        for (row, size) in SIZES.iter().enumerate() {
            let cell = |column: &Vec<Cell>| {
                let text =
                    column.get(row).map(|cell| format!("{:.2} ({})", cell.busbw, cell.wrong));
                format!("{:>18}", text.unwrap_or_else(|| "none".into()))
            };
            println!("{size:>10}{}", columns.iter().map(cell).collect::<String>());
        }
        Ok(())
    }

    /// Creates a fabric for one program, so that no program finds another's packets in queues.
    fn lab(&self, condition: Condition) -> Outcome<Lab> {
        let name = format!("wcr{}", std::process::id());
        let spec = LabSpec { leaves: RANKS, spines: SPINES, mtu: self.mtu, ..LabSpec::named(name) };
        let mut lab = Lab::up(&spec)?;
        let names: Vec<String> = lab.fabric().links.iter().map(|link| link.name.clone()).collect();
        for name in names {
            let lossy = match condition {
                Condition::Lossy => name.ends_with("-s1"),
                Condition::AllLossy => name.contains("-s"),
                _ => false,
            };
            let loss = if lossy { "1%".parse()? } else { Default::default() };
            let rate = if name.contains("-s") { self.spine } else { self.host };
            if lossy || rate.is_some() {
                let limited = Impairment { rate, loss, ..Impairment::default() };
                lab.impair(&name, Direction::Both, &limited)?;
            }
        }
        Ok(lab)
    }

    /// Reads the measurements of rank 0; a path may fail meanwhile.
    fn run(
        &self,
        mut children: Vec<Child>,
        mut lab: Option<&mut Lab>,
        condition: Condition,
    ) -> Outcome<Vec<Cell>> {
        let out = children[0].stdout.take().ok_or("piped")?;
        let mut cells = Vec::new();
        for line in BufReader::new(out).lines() {
            let line = line?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let [size, seconds, wrong] = words[..] else { continue };
            // Programs print other lines too.
            let (Ok(size), Ok(seconds)) = (size.parse::<f64>(), seconds.parse::<f64>()) else {
                continue;
            };
            let busbw = size / seconds * 1.5 / 1e6;
            cells.push(Cell { busbw, wrong: wrong.into() });
            if cells.len() == 1
                && condition == Condition::Dying
                && let Some(lab) = &mut lab
            {
                lab.set_black_hole("l0-s2", true)?;
            }
        }
        for child in &mut children {
            let _ = child.kill();
            child.wait()?;
        }
        Ok(cells)
    }

    fn spawn(
        lab: Option<&Lab>,
        rank: usize,
        program: &Path,
        command: impl FnOnce(&mut Command),
    ) -> Outcome<Child> {
        let mut child = Command::new("timeout");
        child.args(["--kill-after=2", RUN_TIMEOUT]).arg(program);
        command(&mut child);
        let out = if rank == 0 { Stdio::piped() } else { Stdio::null() };
        child.stdout(out).stderr(Stdio::null());
        Ok(match lab {
            Some(lab) => lab.spawn(&format!("h{rank}"), &mut child)?,
            None => child.spawn()?,
        })
    }

    /// Returns the address of rank 0's host.
    fn first(lab: Option<&Lab>) -> Ipv4Addr {
        lab.map_or(Ipv4Addr::LOCALHOST, |lab| lab.fabric().address(0))
    }

    fn weft(&self, lab: Option<&Lab>) -> Outcome<Vec<Child>> {
        let at = SocketAddr::from((Self::first(lab), 7000));
        let own = std::env::current_exe()?;
        let start = |rank: usize| {
            Self::spawn(lab, rank, &own, |command| {
                command.arg(at.to_string()).args(self.words());
                command.env(RANK, rank.to_string()).env("LD_LIBRARY_PATH", &self.library);
                command.env(TOKEN_VARIABLE, self.token.reveal());
                if let Some(rate) = self.host {
                    command.env("WEFT_LINE_RATE", rate.to_string());
                }
                command.env("WEFT_MTU", self.mtu.to_string());
            })
        };
        (0..RANKS).map(start).collect()
    }

    fn gloo(&self, lab: Option<&Lab>) -> Outcome<Vec<Child>> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rivals/all_reduce.py");
        let master = Self::first(lab).to_string();
        let interface = if lab.is_some() { "eth0" } else { "lo" };
        let start = |rank: usize| {
            Self::spawn(lab, rank, Path::new("/usr/bin/python3"), |command| {
                command.arg(script).args(self.words());
                command.envs([("RANK", rank.to_string()), ("WORLD_SIZE", RANKS.to_string())]);
                command.envs([("MASTER_ADDR", master.as_str()), ("MASTER_PORT", "29500")]);
                // The address that gloo finds by the host's name belongs to another host.
                command.envs([("GLOO_SOCKET_IFNAME", interface), ("OMP_NUM_THREADS", "1")]);
            })
        };
        (0..RANKS).map(start).collect()
    }

    fn open_mpi(&self, lab: Option<&Lab>) -> Outcome<Vec<Child>> {
        let Some(lab) = lab else {
            let start = |command: &mut Command| {
                command.args(["--allow-run-as-root", "--oversubscribe", "-np", "4"]);
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
                command.arg(&self.mpi).args(self.words());
            };
            return Ok(vec![Self::spawn(None, 0, Path::new("mpirun"), start)?]);
        };
        let prefix = format!("weft-{}.h", lab.name());
        let hosts: Vec<String> =
            (0..RANKS).map(|host| lab.fabric().address(host).to_string()).collect();
        let cases: String =
            hosts.iter().enumerate().map(|(host, at)| format!("{at}) n={host};; ")).collect();
        // When the path is dead, processes on other hosts do not notice that this one has ended.
        let script = format!(
            "#!/bin/sh\ncase $1 in {cases}esac; shift; exec ip netns exec {prefix}$n \
             timeout --kill-after=2 {RUN_TIMEOUT} sh -c \"$*\"\n"
        );
        std::fs::write(&self.shell, script)?;
        let made = Command::new("chmod").arg("+x").arg(&self.shell).status()?;
        assert!(made.success(), "chmod");
        let child = Self::spawn(Some(lab), 0, Path::new("mpirun"), |command| {
            command.args(["--allow-run-as-root", "--host", &hosts.join(","), "-np", "4"]);
            command.arg("--mca").arg("plm_rsh_agent").arg(&self.shell);
            for (name, value) in [
                ("mpi_yield_when_idle", "1"),
                ("btl", "tcp,self"),
                ("pml", "ob1"),
                ("oob_tcp_if_include", "10.0.0.0/8"),
                ("btl_tcp_if_include", "10.0.0.0/8"),
            ] {
                command.args(["--mca", name, value]);
            }
            command.arg(&self.mpi).args(self.words());
        })?;
        Ok(vec![child])
    }
}

/// Runs a rank of Weft.
fn run_rank(rank: usize, at: SocketAddr, rounds: u32, sizes: &[String]) -> Outcome<()> {
    let options = Options { lanes: 1, ..Options::default() };
    let mut group = Communicator::join(at, rank, RANKS, options)?;
    let timeout = Some(Duration::from_secs(60));
    for word in sizes {
        let elements = word.parse::<usize>()? / 4;
        let call = Call {
            collective: Collective::AllReduce,
            data_type: DataType::Fp32,
            op: Op::Sum,
            root: 0,
            elements,
        };
        let value = |at: usize, rank: usize| ((at + rank) % 100) as f32;
        let (mut took, mut wrong) = (Duration::ZERO, 0);
        for _ in 0..rounds {
            let buffer = (0..elements).flat_map(|at| value(at, rank).to_le_bytes()).collect();
            group.barrier(Vec::new(), timeout)?;
            let began = group.now();
            let buffer: Vec<u8> = group.run(call, buffer, timeout)?;
            took = took + group.now().since(began);
            for (at, got) in buffer.chunks_exact(4).enumerate() {
                let want: f32 = (0..RANKS).map(|rank| value(at, rank)).sum();
                wrong += u64::from(got != want.to_le_bytes());
            }
        }
        if rank == 0 {
            println!("{word} {} {wrong}", took.as_nanos() as f64 / 1e9 / f64::from(rounds));
        }
    }
    group.leave();
    Ok(())
}
