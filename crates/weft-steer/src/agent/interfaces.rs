//! The interfaces of a namespace with their kernel counters and the marks of their queues.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;
use weft_wire::sflow::{IfCounters, QueueMarks};

use super::{iproute, queues};
use crate::SteerError;

/// The interfaces of a namespace.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    /// The counters by ifIndex.
    pub(super) by_index: BTreeMap<u32, InterfaceCounters>,
    /// The error of reading the queues' marks, if they cannot be read; then no interface has marks.
    pub(super) marks_error: Option<SteerError>,
}

/// The counters of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InterfaceCounters {
    pub(super) counters: IfCounters,
    /// The marks of its queues, if they count any.
    pub(super) marks: Option<QueueMarks>,
}

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
        let links: Vec<LinkEntry> =
            iproute::show("ip", &["-j", "-s", "link", "show"], "`ip -j -s link show`")?;
        let (marks, marks_error) = match queues::read() {
            Ok(marks) => (marks, None),
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        let ethernet = links.iter().filter(|it| it.link_type == "ether").map(|link| {
            let marks = marks.get(&link.ifname).copied();
            (link.ifindex, InterfaceCounters { counters: counters(link), marks })
        });
        Ok(Self { by_index: ethernet.collect(), marks_error })
    }

    /// Returns `true` if packets of this interface are sampled.
    pub(super) fn samples(&self, interface: u32) -> bool {
        self.by_index.contains_key(&interface)
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
