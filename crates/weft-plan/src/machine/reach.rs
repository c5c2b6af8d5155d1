//! How fast and over what two devices of a machine reach each other.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{DeviceId, DeviceKind, LinkKind, Machine};
use weft_units::BitRate;

/// Over what a path leads, from near to far; NCCL's path types of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// NVLink only (`NVL`).
    Nvlink,
    /// One PCIe switch at most (`PIX`).
    OneSwitch,
    /// Several PCIe switches, no CPU (`PXB`).
    Switches,
    /// A CPU's host bridge (`PHB`).
    HostBridge,
    /// From one CPU to another (`SYS`).
    System,
}

impl Closeness {
    /// NCCL's name of it.
    pub const fn nccl(self) -> &'static str {
        match self {
            Self::Nvlink => "NVL",
            Self::OneSwitch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::System => "SYS",
        }
    }
}

/// The best way between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Rate of its slowest link.
    pub rate: BitRate,
    /// How many links it has.
    pub hops: u32,
    /// Over what it leads.
    pub closeness: Closeness,
}

/// The widest ways, and of those the shortest, between all devices. A way never leads through
/// another GPU or a NIC: those forward only when software makes them.
#[derive(Clone, Debug)]
pub struct Reach {
    count: usize,
    ways: Vec<Option<Way>>,
}

impl Reach {
    /// Searches from every GPU and NIC.
    pub fn new(machine: &Machine) -> Self {
        let count = machine.devices.len();
        let mut ways = vec![None; count * count];
        for from in machine.gpus().into_iter().chain(machine.nics()) {
            search(machine, from, &mut ways[from.0 * count..][..count]);
        }
        Self { count, ways }
    }

    /// The way from a GPU or NIC to a device; none where no links lead there.
    ///
    /// # Panics
    /// If either is no device of the machine.
    pub fn between(&self, from: DeviceId, to: DeviceId) -> Option<Way> {
        assert!(to.0 < self.count, "no device {}", to.0);
        self.ways[from.0 * self.count + to.0]
    }
}

/// A way so far: widest first, then nearest, then shortest.
type Rank = (u64, Reverse<Closeness>, Reverse<u32>);

/// Dijkstra's search with the width of a way in place of its length.
fn search(machine: &Machine, from: DeviceId, ways: &mut [Option<Way>]) {
    let mut heap: BinaryHeap<(Rank, usize, u32, u32)> = BinaryHeap::new();
    heap.push(((u64::MAX, Reverse(Closeness::Nvlink), Reverse(0)), from.0, 0, 0));
    let mut done = vec![false; ways.len()];
    while let Some(((width, Reverse(closeness), Reverse(hops)), at, switches, cpus)) = heap.pop() {
        if core::mem::replace(&mut done[at], true) {
            continue;
        }
        if at != from.0 {
            ways[at] = BitRate::bps(width).map(|rate| Way { rate, hops, closeness });
            if matches!(machine.devices[at].kind, DeviceKind::Gpu | DeviceKind::Nic) {
                continue;
            }
        }
        for link in machine.links.iter().filter(|link| link.ends.contains(&DeviceId(at))) {
            let next = if link.ends[0].0 == at { link.ends[1].0 } else { link.ends[0].0 };
            let kind = machine.devices[next].kind;
            let switches = switches + u32::from(kind == DeviceKind::PciSwitch);
            let cpus = cpus + u32::from(kind == DeviceKind::Cpu);
            let over = match (cpus, switches) {
                (2.., _) => Closeness::System,
                (1, _) => Closeness::HostBridge,
                (0, 2..) => Closeness::Switches,
                (0, _) if link.kind == LinkKind::Nvlink => Closeness::Nvlink,
                (0, _) => Closeness::OneSwitch,
            };
            let rank =
                (width.min(link.rate.as_bps()), Reverse(closeness.max(over)), Reverse(hops + 1));
            heap.push((rank, next, switches, cpus));
        }
    }
}
