//! Ray on two hosts of a lab: four paths of 200 Mb/s between them, and a `ray start` on each. The hosts have folders for
//! temporary files and for shared memory of their own, so that only the network joins them.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use weft_lab::{Direction, Impairment, Lab, LabSpec};

use super::{job, output_text, stock_python};

const PATHS: usize = 4;
/// The rate limit of each link between leaves and spines, and of all paths.
const RATE: &str = "200Mbps";
const LINE_RATE: &str = "800Mbps";
/// The port at which Ray's head listens.
const PORT: u16 = 6379;
/// The bytes that the example reports for an array of 33 MiB with fifteen numbers, and how often.
const BYTES: u64 = 34_603_128;
const ROUNDS: u64 = 3;

/// A node of Ray on each host, which starts the actors' processes.
struct Cluster {
    lab: Lab,
    /// The processes of `ray start`, the head's first.
    nodes: Vec<Child>,
}

/// The traffic of one run of the example.
#[derive(Debug)]
struct Traffic {
    /// The example's lines.
    times: Vec<String>,
    /// Bytes that left the first leaf or came back to it, by spine.
    by_path: Vec<u64>,
    /// Number of TCP segments that the hosts sent.
    tcp_segments: u64,
}

/// Returns a command that runs Python with the package, as programs of jobs, after the words of another program.
fn python_after(program: &str, words: &[&str], arguments: &[&str]) -> Command {
    let python = job(&stock_python(), arguments);
    let mut command = Command::new(program);
    command.args(words).arg(python.get_program()).args(python.get_args());
    command.envs(python.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // Ray's own tokens, which it makes where a cluster begins, would have to be on both hosts.
    command.env("WEFT_LINE_RATE", LINE_RATE).env("RAY_AUTH_MODE", "disabled");
    command.current_dir(python.get_current_dir().expect("the package's"));
    command
}

impl Cluster {
    /// Starts the head on the first host and another node on the second.
    fn start(lab: Lab) -> Self {
        let mut this = Self { lab, nodes: Vec::new() };
        let head = this.head();
        let port = format!("--port={PORT}");
        let address = format!("--address={head}");
        for (host, role) in
            [vec!["--head", &port, "--include-dashboard=false"], vec![&*address]].iter().enumerate()
        {
            this.start_node(host, role);
            this.wait_for_nodes(host + 1);
        }
        this
    }

    fn head(&self) -> String {
        format!("{}:{PORT}", self.lab.fabric().address(0))
    }

    fn start_node(&mut self, host: usize, role: &[&str]) {
        let mounts = "mount -t tmpfs ray /tmp && mount -t tmpfs ray /dev/shm && exec \"$@\"";
        let own = format!("--node-ip-address={}", self.lab.fabric().address(host));
        let words = ["-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", &own];
        let words =
            [&words[..], &["--object-store-memory=300000000", "--disable-usage-stats"], role]
                .concat();
        let mut command = python_after("unshare", &["--mount", "sh", "-c", mounts, "sh"], &words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let node = self.lab.spawn(&format!("h{host}"), &mut command).expect("it starts");
        self.nodes.push(node);
    }

    /// Returns a command that runs Python on the head's host, in its folders.
    fn on_head(&self, arguments: &[&str]) -> Command {
        let target = format!("--target={}", self.nodes[0].id());
        let folder = concat!("--wdns=", env!("CARGO_MANIFEST_DIR"));
        let mut command =
            python_after("nsenter", &["--mount", "--net", folder, &target], arguments);
        command.env("RAY_ADDRESS", self.head());
        command
    }

    /// Waits until the cluster has a number of nodes.
    fn wait_for_nodes(&mut self, nodes: usize) {
        let at = self.head();
        let is_up = || TcpStream::connect(&at).is_ok();
        while !self.lab.enter("h0", is_up).expect("a host") {
            let ended = self.nodes[0].try_wait().expect("it is a child");
            assert!(ended.is_none(), "Ray's head ended: {ended:?}");
            weft_testkit::pause();
        }
        let program = format!(
            "import ray, time\n\
             ray.init(log_to_driver=False)\n\
             while len([node for node in ray.nodes() if node['Alive']]) < {nodes}: time.sleep(0.1)"
        );
        let output = self.on_head(&["-c", &program]).output().expect("it runs");
        assert!(output.status.success(), "{}", output_text(&output));
    }

    /// Runs the example, in which arrays move one way, and returns its traffic.
    fn run(&self, way: &str) -> Traffic {
        let before = self.counters();
        let output =
            self.on_head(&["examples/ray_arrays.py", "33", way]).output().expect("it runs");
        let printed = output_text(&output);
        let expected = format!("{BYTES} bytes by {way}");
        assert!(output.status.success() && printed.matches(&expected).count() == 3, "{printed}");
        let after = self.counters();
        let by_path = before.0.iter().zip(&after.0).map(|(before, after)| after - before).collect();
        let times = printed.lines().filter(|line| line.starts_with(&expected)).map(String::from);
        let times = times.collect();
        Traffic { times, by_path, tcp_segments: after.1 - before.1 }
    }

    /// Returns the bytes of the links between the first leaf and the spines, and the TCP segments of the hosts.
    fn counters(&self) -> (Vec<u64>, u64) {
        let links =
            self.lab.fabric().links.iter().zip(self.lab.counters().expect("they are there"));
        let bytes = links.filter(|(link, _)| link.name.starts_with("l0-s"));
        let bytes = bytes.map(|(_, counted)| counted.forward.bytes + counted.backward.bytes);
        let segments = (0..2).map(|host| {
            let text = self
                .lab
                .enter(&format!("h{host}"), || fs::read_to_string("/proc/thread-self/net/snmp"));
            tcp_segments(&text.expect("a host").expect("Linux has it"))
        });
        (bytes.collect(), segments.sum())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Returns the number of segments that TCP sent, by `/proc/net/snmp`: a line of names, and one of values.
fn tcp_segments(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let found = names.zip(values).find(|(name, _)| *name == "OutSegs");
    found.expect("it is counted").1.parse().expect("a number")
}

/// Arrays cross all four paths, and TCP carries nearly none of their bytes; those of the object store it carries all.
#[test]
#[ignore = "its wheels have gigabytes: make torch"]
fn arrays_of_ray_move_between_two_hosts_over_four_paths() {
    if weft_testkit::lab_is_missing("Ray on two hosts", &[]) {
        return;
    }
    let lab =
        Lab::up(&LabSpec { spines: PATHS, ..LabSpec::named(format!("ray{}", std::process::id())) });
    let mut cluster = Cluster::start(lab.expect("a lab"));
    for loss in ["0%", "1%"] {
        let rate = Some(RATE.parse().expect("a rate"));
        let limit = Impairment {
            rate,
            loss: loss.parse().expect("a probability"),
            ..Impairment::default()
        };
        for (leaf, spine) in (0..2).flat_map(|leaf| (0..PATHS).map(move |spine| (leaf, spine))) {
            cluster
                .lab
                .impair(&format!("l{leaf}-s{spine}"), Direction::Both, &limit)
                .expect("a link");
        }
        let [weft, store] = ["weft", "store"].map(|way| cluster.run(way));
        for line in weft.times.iter().chain(&store.times) {
            println!("loss of {loss}: {line}");
        }
        println!("bytes by path: {:?} and {:?}", weft.by_path, store.by_path);
        for &bytes in &weft.by_path {
            assert!(bytes > ROUNDS * BYTES / 10, "{loss}: {:?}", weft.by_path);
        }
        // A segment has at most 1,448 bytes.
        let segments = ROUNDS * BYTES / 1448;
        assert!(weft.tcp_segments < segments / 4, "{loss}: {} TCP segments", weft.tcp_segments);
        assert!(store.tcp_segments > segments, "{loss}: {} TCP segments", store.tcp_segments);
    }
}
