//! Counters of this host's ports that show congestion: pauses of PFC, congestion notifications (CNP), marks of ECN, and drops
//! (X-RDMA, section VI.B). Drivers have no common names for them, so the names are kept, and sorted by the words in them.
//!
//! They come from `ethtool -S`, from the statistics of network interfaces, and from the counters of RDMA devices in sysfs. A driver
//! may take long to answer, so a thread of its own reads them.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The counters of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Port {
    /// The network interface, or the RDMA device with its port's number.
    pub(crate) name: String,
    pub(crate) counters: Vec<Counter>,
}

/// A counter since the port's driver was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub(crate) kind: Kind,
    /// The driver's name of it.
    pub(crate) name: String,
    pub(crate) count: u64,
}

/// The subject of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Pauses by flow control of the link.
    Pause,
    /// Congestion notification packets of DCQCN.
    Cnp,
    /// Packets marked by ECN.
    Ecn,
    /// Packets dropped.
    Drop,
}

impl Kind {
    /// Returns the subject of the counter with this name; `None` if it does not show congestion.
    fn of(counter: &str) -> Option<Self> {
        const WORDS: [(Kind, &[&str]); 4] = [
            (Kind::Cnp, &["cnp"]),
            (Kind::Pause, &["pause", "pfc", "xoff"]),
            (Kind::Ecn, &["ecn"]),
            (Kind::Drop, &["drop", "discard", "out_of_buffer", "missed", "no_buf"]),
        ];
        let counter = counter.to_ascii_lowercase();
        let has = |words: &&[&str]| words.iter().any(|word| counter.contains(word));
        WORDS.into_iter().find(|(_, words)| has(words)).map(|(kind, _)| kind)
    }

    /// Returns the label of the subject.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cnp => "cnp",
            Self::Ecn => "ecn",
            Self::Drop => "drop",
        }
    }
}

/// Interval between two reads: each starts a program for each interface.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum duration of `ethtool` for one interface.
const ETHTOOL_TIME: Duration = Duration::from_secs(2);

/// Reads the ports periodically, on one thread at a time.
pub(super) struct PortReader {
    read: Arc<dyn Fn() -> Vec<Port> + Send + Sync>,
    /// The result of the read in progress.
    reading: Option<Receiver<Vec<Port>>>,
    began: Option<Instant>,
    last: Vec<Port>,
}

impl PortReader {
    pub(super) fn new(read: impl Fn() -> Vec<Port> + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), reading: None, began: None, last: Vec::new() }
    }

    /// Takes the result of a read that has ended, and begins another if it is due and none is in progress. Never blocks.
    pub(super) fn poll(&mut self) {
        match self.reading.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(ports)) => self.last = ports,
            Some(Err(TryRecvError::Disconnected)) | None => {}
        }
        self.reading = None;
        if self.began.is_some_and(|at| at.elapsed() < READ_INTERVAL) {
            return;
        }
        self.began = Some(Instant::now());
        let (done, reading) = mpsc::channel();
        let read = Arc::clone(&self.read);
        let thread = thread::Builder::new().name("ports".into());
        // Nobody waits for the result after the end of the watcher.
        if thread.spawn(move || drop(done.send(read()))).is_ok() {
            self.reading = Some(reading);
        }
    }

    /// Returns the ports as of the last read that ended.
    pub(super) fn last(&self) -> &[Port] {
        &self.last
    }
}

impl fmt::Debug for PortReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortReader").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Returns the ports of this host that have such counters. `sys` is the folder of sysfs.
pub(super) fn read(sys: &Path) -> Vec<Port> {
    let interfaces = names(&sys.join("class/net")).into_iter().map(|name| {
        let statistics = files(&sys.join("class/net").join(&name).join("statistics"));
        let by_ethtool = if name == "lo" { Vec::new() } else { ethtool(&name) };
        (name, [statistics, by_ethtool].concat())
    });
    let devices = names(&sys.join("class/infiniband")).into_iter().flat_map(|device| {
        let ports = sys.join("class/infiniband").join(&device).join("ports");
        names(&ports).into_iter().map(move |port| {
            let folders = ["counters", "hw_counters"].map(|it| files(&ports.join(&port).join(it)));
            (format!("{device}/{port}"), folders.concat())
        })
    });
    let ports = interfaces.chain(devices).map(|(name, counters)| port(name, counters));
    ports.filter(|port| !port.counters.is_empty()).collect()
}

/// Returns a port with those of its counters that show congestion, each name once.
fn port(name: String, counters: Vec<(String, u64)>) -> Port {
    let counters = counters
        .into_iter()
        .filter_map(|(name, count)| Kind::of(&name).map(|kind| Counter { kind, name, count }));
    let mut counters: Vec<Counter> = counters.collect();
    counters.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    counters.dedup_by(|one, other| one.name == other.name);
    Port { name, counters }
}

/// Returns the names in a folder, in order; none if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the counters of a folder with one number per file.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let number = |name: &String| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
    names(folder).into_iter().filter_map(|name| number(&name).map(|count| (name, count))).collect()
}

/// Returns the driver's counters of an interface; none if it has none or does not answer in time, or the program is not
/// installed.
fn ethtool(interface: &str) -> Vec<(String, u64)> {
    let output = output(Command::new("ethtool").args(["-S", interface]), ETHTOOL_TIME);
    output.map_or_else(Vec::new, |output| statistics(&String::from_utf8_lossy(&output)))
}

/// Returns the standard output of a program; `None` if it cannot be started, or has not ended its output within `limit`: then
/// it is killed.
fn output(command: &mut Command, limit: Duration) -> Option<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let (done, output) = mpsc::channel();
    let reader = child.stdout.take().and_then(|mut out| {
        let mut bytes = Vec::new();
        let read = move || drop(out.read_to_end(&mut bytes).map(|_| done.send(bytes)));
        thread::Builder::new().name("ethtool".into()).spawn(read).ok()
    });
    let output = reader.and_then(|_| output.recv_timeout(limit).ok());
    if output.is_none() {
        // It may have ended just now.
        let _ = child.kill();
    }
    let _ = child.wait();
    output
}

/// Parses the output of `ethtool -S`.
fn statistics(text: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let (name, count) = line.rsplit_once(':')?;
        Some((name.trim().to_owned(), count.trim().parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn counters_of_congestion_are_recognised_by_the_names_of_several_drivers() {
        for (name, kind) in [
            ("rx_prio3_pause", Some(Kind::Pause)),
            ("tx_pfc_ena_frames_pri3", Some(Kind::Pause)),
            ("priority_3_xoff_rx", Some(Kind::Pause)),
            ("np_cnp_sent", Some(Kind::Cnp)),
            ("rx_cnp_pkts", Some(Kind::Cnp)),
            ("np_ecn_marked_roce_packets", Some(Kind::Ecn)),
            ("rx_out_of_buffer", Some(Kind::Drop)),
            ("rx_discards_phy", Some(Kind::Drop)),
            ("rx_missed_errors", Some(Kind::Drop)),
            ("rx_bytes", None),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn the_ports_of_interfaces_and_of_rdma_devices_are_read() {
        let sys = std::env::temp_dir().join(format!("weft-ports-{}", std::process::id()));
        for (file, content) in [
            ("class/net/no-such-port/statistics/rx_dropped", "3\n"),
            ("class/net/no-such-port/statistics/rx_bytes", "1000\n"),
            ("class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "12\n"),
            ("class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10\n"),
            ("class/infiniband/mlx5_0/ports/1/counters/port_rcv_switch_drops", "x\n"),
        ] {
            let path = sys.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let counter = |kind, name: &str, count| Counter { kind, name: name.into(), count };
        let want = [
            ("no-such-port", counter(Kind::Drop, "rx_dropped", 3)),
            ("mlx5_0/1", counter(Kind::Cnp, "np_cnp_sent", 12)),
        ];
        let want = want.map(|(name, it)| Port { name: name.into(), counters: vec![it] });
        let found = read(&sys);
        fs::remove_dir_all(&sys).unwrap();
        assert_eq!(found, want);
    }

    #[test]
    fn a_read_that_hangs_blocks_nobody_and_is_not_begun_twice() {
        let (release, released) = mpsc::channel::<()>();
        let (released, begun) = (Mutex::new(released), Arc::new(AtomicU32::new(0)));
        let port = Port { name: "eth0".into(), counters: Vec::new() };
        let (result, count) = (port.clone(), Arc::clone(&begun));
        let mut reader = PortReader::new(move || {
            count.fetch_add(1, Relaxed);
            let _ = released.lock().unwrap().recv();
            vec![result.clone()]
        });
        for _ in 0..3 {
            reader.poll();
            // Another read would be due.
            reader.began = None;
            assert_eq!(reader.last(), []);
        }
        release.send(()).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while reader.last().is_empty() {
            assert!(Instant::now() < until, "it was released");
            assert_eq!(begun.load(Relaxed).max(1), 1, "one at a time");
            reader.began = Some(Instant::now());
            reader.poll();
            weft_testkit::pause();
        }
        assert_eq!(reader.last(), [port]);
        assert_eq!(begun.load(Relaxed), 1, "the next is not due");
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_a_long_output_is_read_whole() {
        let begun = Instant::now();
        assert_eq!(output(Command::new("sleep").arg("600"), Duration::from_millis(50)), None);
        assert!(begun.elapsed() < Duration::from_secs(60), "killed");
        let long =
            output(Command::new("head").args(["-c", "300000", "/dev/zero"]), ETHTOOL_TIME * 10);
        assert_eq!(long.map(|output| output.len()), Some(300_000));
        assert_eq!(output(&mut Command::new("no-such-program"), ETHTOOL_TIME), None);
    }

    #[test]
    fn the_output_of_ethtool_is_parsed() {
        let text =
            "NIC statistics:\n     rx_prio3_pause: 17\n     rx[0]: dropped: 4\n     note: none\n";
        let want = [("rx_prio3_pause", 17), ("rx[0]: dropped", 4)];
        assert_eq!(statistics(text), want.map(|(name, count)| (name.to_owned(), count)));
    }
}
