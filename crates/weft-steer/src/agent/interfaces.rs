//! The interfaces of a namespace with their kernel counters.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::Deserialize;
use weft_wire::sflow::IfCounters;

use crate::{AnswerFault, SteerError};

/// The interfaces by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Interfaces(pub(super) BTreeMap<u32, IfCounters>);

/// An entry of `ip -j -s link show`.
#[derive(Debug, Deserialize)]
struct LinkEntry {
    ifindex: u32,
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    link_type: String,
    #[serde(default)]
    stats64: Stats,
}

#[derive(Debug, Default, Deserialize)]
struct Stats {
    #[serde(default)]
    rx: Direction,
    #[serde(default)]
    tx: Direction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Direction {
    bytes: u64,
    packets: u64,
    errors: u64,
    dropped: u64,
    multicast: u64,
}

impl Interfaces {
    /// Reads the Ethernet interfaces of this thread's namespace, thus without loopback and tunnels.
    ///
    /// # Errors
    /// Returns `Io` if `ip` cannot be run, `Answer` if it fails or prints invalid JSON.
    pub(super) fn read() -> Result<Self, SteerError> {
        let run = Command::new("ip").args(["-j", "-s", "link", "show"]).output();
        let output = run.map_err(SteerError::io("run `ip` (apt-get install iproute2)"))?;
        let wrong = |reason| SteerError::Answer {
            router: "this machine".into(),
            what: "`ip -j -s link show`",
            reason,
        };
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(wrong(AnswerFault::Command(stderr)));
        }
        let links: Vec<LinkEntry> =
            serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.into()))?;
        let ethernet = links.iter().filter(|it| it.link_type == "ether");
        Ok(Self(ethernet.map(|it| (it.ifindex, counters(it))).collect()))
    }

    /// Returns `true` if packets of this interface are sampled.
    pub(super) fn samples(&self, interface: u32) -> bool {
        self.0.contains_key(&interface)
    }
}

fn counters(link: &LinkEntry) -> IfCounters {
    let has = |flag: &str| link.flags.iter().any(|it| it == flag);
    let Stats { rx, tx } = &link.stats64;
    IfCounters {
        index: link.ifindex,
        kind: 6,
        speed: speed(&link.ifname),
        direction: 1,
        status: u32::from(has("UP")) | u32::from(has("LOWER_UP")) << 1,
        in_octets: rx.bytes,
        in_unicast: truncated(rx.packets.saturating_sub(rx.multicast)),
        in_multicast: truncated(rx.multicast),
        in_discards: truncated(rx.dropped),
        in_errors: truncated(rx.errors),
        out_octets: tx.bytes,
        out_unicast: truncated(tx.packets),
        out_discards: truncated(tx.dropped),
        out_errors: truncated(tx.errors),
        promiscuous: u32::from(has("PROMISC")),
        ..IfCounters::default()
    }
}

/// Returns the speed in bits per second from `/sys`, which shows the namespace in which this process started; elsewhere
/// it is unknown (0).
fn speed(interface: &str) -> u64 {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/speed")).unwrap_or_default();
    text.trim().parse::<u64>().unwrap_or(0) * 1_000_000
}

/// Truncates a counter: sFlow's counters wrap at 2^32.
#[expect(
    clippy::cast_possible_truncation,
    reason = "higher bits are dropped, as the standard requires"
)]
const fn truncated(count: u64) -> u32 {
    count as u32
}
