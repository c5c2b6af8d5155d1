//! The checks. Each tries the capability itself where it can, instead of guessing from a version.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, socket};
use weft_udp::sockets::{SocketConfig, Sockets};

use super::{Finding, State};
use crate::libraries;

/// Programs beyond those that a lab needs: name, Debian package, use.
const TOOLS: &[(&str, &str, &str)] = &[
    ("iperf3", "iperf3", "comparing with kernel TCP"),
    ("tcpdump", "tcpdump", "looking at packets"),
    ("ping", "iputils-ping", "a first look at a lab"),
    ("cc", "gcc", "building from source"),
];

/// Returns all findings, in the order in which people need them.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = vec![udp_sockets()];
    findings.extend(lab());
    findings.extend(TOOLS.iter().map(|&(name, package, used_for)| tool(name, package, used_for)));
    findings.extend([receive_buffer(), tun(), af_xdp(), hugepages(), locked_memory()]);
    findings.extend([rdma(), device()]);
    findings
}

fn works(name: &str, detail: impl Into<String>, used_for: &'static str) -> Finding {
    let (name, detail) = (name.to_owned(), detail.into());
    Finding { name, state: State::Works, detail, used_for, fix: String::new(), package: None }
}

fn missing(
    name: &str,
    detail: impl Into<String>,
    used_for: &'static str,
    fix: impl Into<String>,
) -> Finding {
    Finding { state: State::Missing, fix: fix.into(), ..works(name, detail, used_for) }
}

fn limited(
    name: &str,
    detail: impl Into<String>,
    used_for: &'static str,
    fix: impl Into<String>,
) -> Finding {
    Finding { state: State::Limited, ..missing(name, detail, used_for, fix) }
}

/// Checks the programs that `weft lab` needs, from the lab's own list.
fn lab() -> Vec<Finding> {
    let finding = |requirement: weft_lab::Requirement| {
        let used_for =
            if requirement.essential { "weft lab, weft demo" } else { "knowing paths beforehand" };
        if requirement.met {
            return works(&requirement.name, "present", used_for);
        }
        let package = match requirement.name.as_str() {
            "ip" | "tc" => Some("iproute2"),
            "nft" => Some("nftables"),
            "ethtool" => Some("ethtool"),
            _ => None,
        };
        Finding { package, ..missing(&requirement.name, "absent", used_for, requirement.fix) }
    };
    weft_lab::requirements().into_iter().map(finding).collect()
}

fn tool(name: &str, package: &'static str, used_for: &'static str) -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(Into::into));
    match folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file()) {
        Some(file) => works(name, file.display().to_string(), used_for),
        None => {
            let fix = format!("apt-get install {package}");
            Finding { package: Some(package), ..missing(name, "not found", used_for, fix) }
        }
    }
}

/// Checks UDP sockets, which `weft perf` needs, by opening its own sockets on loopback.
fn udp_sockets() -> Finding {
    let (name, used_for) = ("UDP sockets", "everything on real packets");
    match Sockets::open(&SocketConfig::new(([127, 0, 0, 1], 0).into(), 1)) {
        Ok(sockets) if sockets.granted().gro => works(name, "GSO and GRO", used_for),
        Ok(_) => limited(name, "no GRO: every packet costs a call", used_for, "Linux 5.0 or newer"),
        Err(error) => missing(name, error.to_string(), used_for, "allow UDP sockets"),
    }
}

/// Checks the limit of a socket's receive buffer: a burst that exceeds it is lost.
fn receive_buffer() -> Finding {
    const WANTED: u64 = 16 << 20;
    let (name, used_for) = ("UDP receive buffer", "bursts at full rate");
    let path = "/proc/sys/net/core/rmem_max";
    let granted = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    match granted {
        Some(bytes) if bytes >= WANTED => works(name, format!("{} KiB", bytes >> 10), used_for),
        Some(bytes) => {
            let detail = format!("{} KiB of the {} KiB wanted", bytes >> 10, WANTED >> 10);
            limited(name, detail, used_for, format!("sysctl -w net.core.rmem_max={WANTED}"))
        }
        None => limited(name, format!("{path} cannot be read"), used_for, "mount /proc"),
    }
}

fn tun() -> Finding {
    let (name, used_for) = ("TUN/TAP", "carrying ordinary traffic");
    match OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => works(name, "/dev/net/tun opens", used_for),
        Err(error) => missing(name, error.to_string(), used_for, "modprobe tun; run with sudo"),
    }
}

fn af_xdp() -> Finding {
    let (name, used_for) = ("AF_XDP", "packets past the kernel's stack");
    // AF_XDP's number in the kernel's socket.h.
    match socket(AddressFamily::from_raw(44), SocketType::RAW, None) {
        Ok(_) => works(name, "a socket opens", used_for),
        Err(error) => {
            missing(name, error.to_string(), used_for, "Linux with CONFIG_XDP_SOCKETS; sudo")
        }
    }
}

fn hugepages() -> Finding {
    let (name, used_for) = ("huge pages", "pinning large buffers quickly");
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match (meminfo(&text, "HugePages_Total"), meminfo(&text, "HugePages_Free")) {
        (Some(total), Some(free)) if total > 0 => {
            works(name, format!("{free} of {total} free"), used_for)
        }
        _ => limited(name, "none reserved", used_for, "sysctl -w vm.nr_hugepages=512"),
    }
}

fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn locked_memory() -> Finding {
    let (name, used_for) = ("locked memory", "registering memory regions");
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match locked_limit(&limits) {
        None => works(name, "unlimited", used_for),
        Some(bytes) => {
            let detail = format!("at most {} KiB without root", bytes >> 10);
            limited(name, detail, used_for, "ulimit -l unlimited, or memlock in limits.conf")
        }
    }
}

/// Returns the soft limit in bytes; `None` without one.
fn locked_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn rdma() -> Finding {
    let (name, used_for) = ("RDMA devices", "comparing with hardware");
    let devices: Vec<String> = fs::read_dir(Path::new("/sys/class/infiniband"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    match devices.as_slice() {
        [] => limited(name, "none", used_for, "not needed: Weft needs no RDMA hardware"),
        names => works(name, names.join(", "), used_for),
    }
}

/// Checks `weft run` by letting a program read, through the preloaded libraries, what stacks read first in sysfs.
fn device() -> Finding {
    let (name, used_for) = ("Weft's device", "weft run: RDMA programs, NIXL, Mooncake, NCCL");
    let folder = match libraries::find(None) {
        Ok(folder) => folder,
        Err(error) => return missing(name, error.to_string(), used_for, "cargo xtask verbs"),
    };
    let mut read = Command::new("cat");
    read.arg("/sys/class/infiniband/weft0/ports/1/gid_attrs/types/0").env_remove("WEFT_DEVICE");
    match libraries::use_them(&mut read, &folder).output() {
        Ok(output) if output.stdout == b"RoCE v2\n" => {
            works(name, "weft0, RoCE v2, in sysfs of a program", used_for)
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let detail = said.lines().next().unwrap_or("a program does not find it").to_owned();
            let fix = "a dynamic C library, and an interface with an address";
            missing(name, detail, used_for, fix)
        }
        Err(error) => missing(name, error.to_string(), used_for, "apt-get install coreutils"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_proc() {
        let text = "MemTotal:  1 kB\nHugePages_Total:       12\nHugePages_Free:  3\n";
        assert_eq!(meminfo(text, "HugePages_Total"), Some(12));
        assert_eq!(meminfo(text, "HugePages_Surp"), None);
        let limits = "Max locked memory         8388608              8388608              bytes\n";
        assert_eq!(locked_limit(limits), Some(8_388_608));
        assert_eq!(locked_limit("Max locked memory    unlimited    unlimited   bytes\n"), None);
    }

    #[test]
    fn every_capability_that_does_not_work_has_a_fix() {
        for finding in all() {
            assert_eq!(finding.state == State::Works, finding.fix.is_empty(), "{finding:?}");
        }
    }
}
