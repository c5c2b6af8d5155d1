//! A job whose order and ports a route controller plans, over kernel routers that hash: a cable fails while the ranks
//! run, and they change their ports.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

#[path = "../../weft-rdmacm/tests/programs/library.rs"]
#[expect(dead_code, reason = "programs here load the library by themselves")]
mod library;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::{Flow, Lab, LabSpec};
use weft_testkit::{HASH_SEED, lab_is_missing};
// The archives are made with the libraries.
use {weft_rdmacm as _, weft_verbs as _};

use library::LIBRARY;

const RANKS: usize = 4;
const TOKEN: &str = "the-token-of-this-test";

/// A lab of two leaves with two hosts each and four spines, whose first host also runs a controller: the ranks reach it
/// over the fabric.
struct Fabric {
    lab: Lab,
    controller: SocketAddr,
    process: Child,
    token: PathBuf,
}

impl Fabric {
    fn up(name: &str) -> Self {
        let name = format!("w{name}{}", std::process::id());
        let lab = Lab::up(&LabSpec { hosts_per_leaf: 2, ..LabSpec::named(&name) }).unwrap();
        let file = |end: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{end}"));
        let (token, config) = (file("token"), file("toml"));
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
        let text =
            format!("lab = '{name}'\nlisten = '127.0.0.1:0'\nlease = '3s'\nread_every = '300ms'\n");
        fs::write(&config, text).unwrap();
        let controller = SocketAddr::from((lab.fabric().address(0), 7490));
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["route", "serve", "--page", &controller.to_string(), "--config"]).arg(config);
        command.arg("--token-file").arg(&token).stdout(Stdio::null());
        let process = lab.spawn("h0", &mut command).unwrap();
        let fabric = Self { lab, controller, process, token };
        until("the controller steers", || fabric.ask("GET", "/v1/picture")["steers"] == true);
        fabric
    }

    /// Returns the controller's answer; `Null` if it does not answer, or refuses.
    fn ask(&self, method: &str, path: &str) -> Value {
        let exchange = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.controller)?;
            let head = format!("{method} {path} HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.lab.enter("h0", exchange).unwrap().unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_default()
    }

    /// Returns the only job of the controller, if there is one.
    fn job(&self) -> Option<Value> {
        self.ask("GET", "/v1/picture")["jobs"].as_array().and_then(|jobs| jobs.first().cloned())
    }

    /// Returns the planned source ports of a host.
    fn planned(&self, job: &Value, host: usize) -> BTreeSet<u64> {
        let source = self.lab.fabric().address(host);
        let name = job["name"].as_str().unwrap();
        let answer = self.ask("POST", &format!("/v1/ports?job={name}&source={source}"));
        let ports = answer["ports"].as_array().unwrap_or_else(|| panic!("{answer}"));
        ports.iter().map(|port| port["port"].as_u64().unwrap()).collect()
    }

    /// Returns the UDP ports that programs of a host have.
    fn bound(&self, host: usize) -> BTreeSet<u64> {
        let read = || fs::read_to_string("/proc/thread-self/net/udp");
        let table = self.lab.enter(&format!("h{host}"), read).unwrap().unwrap();
        let port = |line: &str| {
            let local = line.split_whitespace().nth(1)?;
            u64::from_str_radix(local.split_once(':')?.1, 16).ok()
        };
        table.lines().filter_map(port).collect()
    }

    /// Returns the spine over which packets from rank 3 to rank 0 go.
    fn spine(&self, port: u64) -> usize {
        let source_port = u16::try_from(port).unwrap();
        let (protocol, destination_port) = (17, 20_480);
        let flow = Flow { source: 3, destination: 0, protocol, source_port, destination_port };
        self.lab.paths().unwrap().spine_of(&flow).unwrap()
    }

    fn rank(&self, rank: usize, controller: &str, time: &str) -> Child {
        let at = SocketAddr::from((self.lab.fabric().address(0), 7000)).to_string();
        let (rank_word, ranks) = (rank.to_string(), RANKS.to_string());
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", "90", env!("CARGO_BIN_EXE_weft"), "coll", "perf"]);
        command.args(["--rank", &rank_word, "--of", &ranks, "--at", &at, "--json"]);
        command.args(["--from", "256KiB", "--to", "256KiB", "--iterations", "1000000"]);
        command.args(["--time", time, "--controller", controller, "--controller-token-file"]);
        command.arg(&self.token).args(["--device", "weft", "--libraries"]).arg(&*LIBRARY);
        command.env("WEFT_JOB_TOKEN", "a-token-of-the-job").env("WEFT_PATHS", "8");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.lab.spawn(&format!("h{rank}"), &mut command).unwrap()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // Without a state file nothing is lost.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(40);
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}: never");
        weft_testkit::pause();
    }
}

/// Waits for a rank. Returns `true` if it succeeded, its report and its log.
fn outcome(child: Child) -> (bool, Value, String) {
    let output = child.wait_with_output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.success(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_cable_dies_and_running_ranks_send_from_other_ports() {
    if lab_is_missing("a planned job in a lab", &[HASH_SEED]) {
        return;
    }
    let mut fabric = Fabric::up("cc");
    let required = format!("require:{}", fabric.controller);
    let ranks: Vec<Child> = (0..RANKS).map(|rank| fabric.rank(rank, &required, "12s")).collect();
    until("the job is announced", || fabric.job().is_some());
    let job = fabric.job().unwrap();
    // Two edges of the ring cross the spines, with four queue pairs each, and two stay behind a leaf.
    assert_eq!((&job["flows"], &job["version"]), (&16.into(), &1.into()), "{job}");
    let before: Vec<BTreeSet<u64>> = (0..RANKS).map(|host| fabric.planned(&job, host)).collect();
    until("all ranks send from the planned ports", || {
        (0..RANKS).all(|host| fabric.bound(host).is_superset(&before[host]))
    });

    // A cable dies behind the spine that carries one of the flows from rank 3 to rank 0. Its leaf routes around it, the
    // other leaf does not know: packets that it sends to that spine are lost until they leave from other ports.
    let spine = fabric.spine(*before[3].first().unwrap());
    let carried = |fabric: &Fabric| {
        let link = fabric.lab.fabric().link(&format!("l1-s{spine}")).unwrap();
        fabric.lab.counters().unwrap()[link].forward.bytes
    };
    let began = carried(&fabric);
    until("the flow's packets cross the spine", || carried(&fabric) > began + (1 << 20));
    fabric.lab.set_down(&format!("l0-s{spine}")).unwrap();
    until("ports are planned again", || fabric.job().is_some_and(|job| job["version"] != 1));
    let job = fabric.job().expect("the ranks run");
    let after: Vec<BTreeSet<u64>> = (0..RANKS).map(|host| fabric.planned(&job, host)).collect();
    assert!(after[3].iter().all(|&port| fabric.spine(port) != spine), "{after:?}");
    until("all ranks send from the new ports", || {
        (0..RANKS).all(|host| fabric.bound(host).is_superset(&after[host]))
    });
    let bound = fabric.bound(3);
    let mut left = before[3].difference(&after[3]);
    assert!(left.all(|port| !bound.contains(port)), "{before:?}, {after:?}, {bound:?}");

    for (rank, child) in ranks.into_iter().enumerate() {
        let (ended, report, log) = outcome(child);
        assert!(ended, "rank {rank}: {log}");
        assert!(!log.contains(TOKEN), "{log}");
        assert!(log.matches("packets leave from planned ports").count() >= 2, "rank {rank}: {log}");
        if rank == 0 {
            assert_eq!((&report["wrong"], &report["rows"][0]["wrong"]), (&0.into(), &0.into()));
        }
    }
    until("rank 0 has withdrawn the job", || fabric.job().is_none());
}

#[test]
fn a_controller_that_is_away_is_named_and_only_a_required_one_ends_the_job() {
    if lab_is_missing("a controller that is away", &[HASH_SEED]) {
        return;
    }
    let fabric = Fabric::up("ca");
    let away = SocketAddr::new(fabric.controller.ip(), 7491).to_string();
    for (controller, ends_well) in [(away.clone(), true), (format!("require:{away}"), false)] {
        let ranks: Vec<Child> =
            (0..RANKS).map(|rank| fabric.rank(rank, &controller, "100ms")).collect();
        for (rank, child) in ranks.into_iter().enumerate() {
            let (ended, _, log) = outcome(child);
            assert_eq!(ended, ends_well, "rank {rank}: {log}");
            if rank == 0 || !ends_well {
                let wanted = format!("the route controller at {away} cannot be reached");
                assert!(log.contains(&wanted) && log.contains("weft route serve"), "{log}");
            }
        }
    }
}
