//! Counters of this host's ports that show congestion: pauses of PFC, congestion notifications (CNP), marks of ECN, and drops
//! (X-RDMA, section VI.B). Drivers have no common names for them, so the names are kept, and sorted by the words in them.
//!
//! They come from `ethtool -S`, from the statistics of network interfaces, and from the counters of RDMA devices in sysfs.

use std::fs;
use std::path::Path;
use std::process::Command;

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

/// Returns the driver's counters of an interface; none if it has none, or the program is not installed.
fn ethtool(interface: &str) -> Vec<(String, u64)> {
    let output = Command::new("ethtool").args(["-S", interface]).output();
    output
        .map_or_else(|_| Vec::new(), |output| statistics(&String::from_utf8_lossy(&output.stdout)))
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
    fn the_output_of_ethtool_is_parsed() {
        let text =
            "NIC statistics:\n     rx_prio3_pause: 17\n     rx[0]: dropped: 4\n     note: none\n";
        let want = [("rx_prio3_pause", 17), ("rx[0]: dropped", 4)];
        assert_eq!(statistics(text), want.map(|(name, count)| (name.to_owned(), count)));
    }
}
