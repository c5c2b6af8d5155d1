//! The rate and the kind of the best path between two devices of a machine.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{DeviceId, DeviceKind, LinkKind, Machine};
use weft_units::BitRate;

/// The kind of a path, from near to far, as NCCL's path types in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathType {
    /// Only NVLink (`NVL`).
    Nvlink,
    /// At most one PCIe switch (`PIX`).
    OneSwitch,
    /// Several PCIe switches, no CPU (`PXB`).
    Switches,
    /// A CPU's host bridge (`PHB`).
    HostBridge,
    /// A path between two CPUs (`SYS`).
    System,
}

impl PathType {
    /// Returns NCCL's name of the path type.
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

/// The best path between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Rate of its slowest link.
    pub rate: BitRate,
    /// Number of links.
    pub hops: u32,
    /// The kind of the path.
    pub closeness: PathType,
}

/// The best paths from every GPU and NIC: those with the highest rate and, among these, the nearest kind and then the
/// fewest links. A path never passes another GPU or a NIC, because those forward only under software control.
#[derive(Clone, Debug)]
pub struct BestPaths {
    /// Number of devices.
    count: usize,
    /// `paths[from * count + to]`.
    paths: Vec<Option<Path>>,
}

impl BestPaths {
    /// Searches paths from every GPU and every NIC of a rail ([`Machine::nics`]).
    pub fn new(machine: &Machine) -> Self {
        let count = machine.devices.len();
        let mut paths = vec![None; count * count];
        for from in machine.gpus().into_iter().chain(machine.nics()) {
            search(machine, from, &mut paths[from.0 * count..][..count]);
        }
        Self { count, paths }
    }

    /// Returns the path from a GPU or a rail's NIC to a device; `None` if they are not connected or equal, or for any
    /// other `from`.
    ///
    /// # Panics
    /// If the machine has no such device.
    pub fn between(&self, from: DeviceId, to: DeviceId) -> Option<Path> {
        assert!(to.0 < self.count, "no device {}", to.0);
        self.paths[from.0 * self.count + to.0]
    }
}

/// The order of paths in the search: widest first, then nearest, then shortest.
type Rank = (u64, Reverse<PathType>, Reverse<u32>);

/// Dijkstra's search, with the width of a path instead of its length.
fn search(machine: &Machine, from: DeviceId, paths: &mut [Option<Path>]) {
    let mut heap: BinaryHeap<(Rank, usize, u32, u32)> = BinaryHeap::new();
    heap.push(((u64::MAX, Reverse(PathType::Nvlink), Reverse(0)), from.0, 0, 0));
    let mut done = vec![false; paths.len()];
    while let Some(((width, Reverse(closeness), Reverse(hops)), at, switches, cpus)) = heap.pop() {
        if core::mem::replace(&mut done[at], true) {
            continue;
        }
        if at != from.0 {
            paths[at] = BitRate::bps(width).map(|rate| Path { rate, hops, closeness });
            if matches!(machine.devices[at].kind, DeviceKind::Gpu | DeviceKind::Nic) {
                continue;
            }
        }
        for link in machine.links.iter().filter(|link| link.ends.contains(&DeviceId(at))) {
            let next = if link.ends[0].0 == at { link.ends[1].0 } else { link.ends[0].0 };
            let kind = machine.devices[next].kind;
            let switches = switches + u32::from(kind == DeviceKind::PciSwitch);
            let cpus = cpus + u32::from(kind == DeviceKind::Cpu);
            let closeness_at_next = match (cpus, switches) {
                (2.., _) => PathType::System,
                (1, _) => PathType::HostBridge,
                (0, 2..) => PathType::Switches,
                (0, _) if link.kind == LinkKind::Nvlink => PathType::Nvlink,
                (0, _) => PathType::OneSwitch,
            };
            let rank = (
                width.min(link.rate.as_bps()),
                Reverse(closeness.max(closeness_at_next)),
                Reverse(hops + 1),
            );
            heap.push((rank, next, switches, cpus));
        }
    }
}
