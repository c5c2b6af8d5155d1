//! `p_intra`: the path of a ring through a server (Astral, section 3.2, step 2).

use alloc::vec;
use alloc::vec::Vec;

use weft_units::BitRate;

use crate::machine::{BestPaths, DeviceId, Machine, PathType};

/// The path between a GPU and a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicPath {
    /// Over PCIe.
    Direct(PathType),
    /// Over NVLink to the GPU nearest to the NIC, which forwards it (NCCL's `PXN`).
    Through(DeviceId),
}

/// A ring inside a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The rail of the NIC by which traffic enters.
    pub rail_in: usize,
    /// The rail of the NIC by which traffic leaves.
    pub rail_out: usize,
    /// Every GPU, in ring order.
    pub gpus: Vec<DeviceId>,
    /// The path from the NIC to the first GPU.
    pub head: NicPath,
    /// The path from the last GPU to its NIC.
    pub tail: NicPath,
    /// The lowest rate of its links and NICs.
    pub rate: BitRate,
    /// The farthest kind of its links between GPUs.
    pub closeness: PathType,
}

/// With more GPUs or NICs than these, paths are found greedily instead of by exhaustive search.
const MAX_EXACT_GPUS: usize = 12;
const MAX_EXACT_RAILS: usize = 32;
/// The cost of a path segment outside NVLink, in quarters of a link.
const NON_NVLINK_COST: u64 = 16;

/// Returns, for each rail, a ring that enters and leaves by that rail's NIC. Its path through all GPUs has the
/// highest rate and, among those, the fewest and nearest links. Later rings avoid links between GPUs that
/// earlier ones use.
pub fn rings_on_rails(machine: &Machine) -> Vec<Ring> {
    let table = Table::new(machine);
    let mut uses = vec![0u64; table.gpus.len() * table.gpus.len()];
    let rail = |rail| {
        let path = table.best_path(rail, &uses);
        for pair in path.windows(2) {
            uses[pair[0] * table.gpus.len() + pair[1]] += 1;
        }
        table.ring(rail, rail, &path)
    };
    (0..table.nics.len()).map(rail).collect()
}

/// Returns the rings of a library that ignores rails: ring `c` enters at NIC `c`, passes the GPUs in numeric
/// order from the one next to it, and leaves by the NIC next to the last. The paper describes NCCL so: NIC0 →
/// GPU0 → … → GPU7 → NIC7.
pub fn rings_as_listed(machine: &Machine) -> Vec<Ring> {
    let table = Table::new(machine);
    let (gpus, nics) = (table.gpus.len(), table.nics.len());
    let ring = |rail: usize| {
        let start = rail * gpus / nics;
        let path: Vec<usize> = (start..start + gpus).map(|gpu| gpu % gpus).collect();
        table.ring(rail, (rail + nics - 1) % nics, &path)
    };
    (0..nics).map(ring).collect()
}

/// For a set of passed GPUs and the last of them: the cost of the best rest of the path, and its next GPU.
type Best = Option<(u64, usize)>;

/// The paths between GPUs, and between GPUs and NICs, of a machine.
struct Table {
    gpus: Vec<DeviceId>,
    nics: Vec<DeviceId>,
    /// `pairs[a * gpus + b]`: rate, hops, closeness.
    pairs: Vec<(u64, u64, PathType)>,
    /// `exits[rail][gpu]`: rate, hops and kind of the path between the GPU and the rail's NIC.
    exits: Vec<Vec<(u64, u64, NicPath)>>,
}

impl Table {
    fn new(machine: &Machine) -> Self {
        let reach = BestPaths::new(machine);
        let (gpus, nics) = (machine.gpus(), machine.nics());
        let mut pairs = Vec::new();
        for &a in &gpus {
            for &b in &gpus {
                let path = reach.between(a, b);
                pairs.push(path.map_or((u64::MAX, 0, PathType::Nvlink), |path| {
                    (path.rate.as_bps(), path.hops.into(), path.closeness)
                }));
            }
        }
        let mut table = Self { gpus, nics, pairs, exits: Vec::new() };
        let rate = |nic: DeviceId| machine.devices()[nic.0].rate.map_or(u64::MAX, BitRate::as_bps);
        table.exits =
            table.nics.iter().map(|&nic| table.exits_to(&reach, nic, rate(nic))).collect();
        table
    }

    /// Returns, for each GPU, the better of its direct path to the NIC and the path through the GPU next to the NIC.
    fn exits_to(
        &self,
        reach: &BestPaths,
        nic: DeviceId,
        nic_rate: u64,
    ) -> Vec<(u64, u64, NicPath)> {
        let direct = |&gpu: &DeviceId| {
            let path = reach.between(nic, gpu).expect("a machine hangs together");
            (path.rate.as_bps().min(nic_rate), u64::from(path.hops), path.closeness)
        };
        let direct_paths: Vec<_> = self.gpus.iter().map(direct).collect();
        let nearest = |&gpu: &usize| (direct_paths[gpu].2, direct_paths[gpu].1);
        let proxy = (0..direct_paths.len()).min_by_key(nearest).expect("a machine has a GPU");
        let best = |(gpu, &(rate, hops, closeness)): (usize, &(u64, u64, PathType))| {
            let (peer_rate, peer_hops, over) = self.pair(gpu, proxy);
            let through = peer_rate.min(direct_paths[proxy].0);
            let is_better = gpu != proxy
                && over == PathType::Nvlink
                && closeness >= PathType::HostBridge
                && closeness > direct_paths[proxy].2
                && through >= rate;
            match is_better {
                true => {
                    (through, peer_hops + direct_paths[proxy].1, NicPath::Through(self.gpus[proxy]))
                }
                false => (rate, hops, NicPath::Direct(closeness)),
            }
        };
        direct_paths.iter().enumerate().map(best).collect()
    }

    fn pair(&self, a: usize, b: usize) -> (u64, u64, PathType) {
        self.pairs[a * self.gpus.len() + b]
    }

    /// Returns the path whose lowest rate is the highest; among those the path with the fastest links between
    /// GPUs, and among those the cheapest.
    fn best_path(&self, rail: usize, uses: &[u64]) -> Vec<usize> {
        let count = self.gpus.len();
        let shared = |a: usize, b: usize| self.pair(a, b).0 / (1 + uses[a * count + b]);
        if count > MAX_EXACT_GPUS || self.nics.len() > MAX_EXACT_RAILS {
            return self.greedy_path(rail, shared);
        }
        let pairs = (0..count * count).map(|ab| shared(ab / count, ab % count));
        let mut rates: Vec<u64> = pairs.chain(self.exits[rail].iter().map(|exit| exit.0)).collect();
        rates.sort_unstable();
        rates.dedup();
        let path = |exit, pair| self.cheapest_path(rail, exit, pair, shared, uses);
        // At the lowest rate a path exists, because all devices are connected.
        let slowest = rates.partition_point(|&rate| path(rate, rate).is_some());
        let slowest = rates[slowest.saturating_sub(1)];
        let between = rates.partition_point(|&rate| path(slowest, rate).is_some());
        let between = rates[between.saturating_sub(1)];
        path(slowest, between).expect("every GPU reaches every other and the NIC")
    }

    /// Returns the cheapest path over links of at least these rates, over all orders (Held and Karp 1962).
    fn cheapest_path(
        &self,
        rail: usize,
        exit_rate: u64,
        pair_rate: u64,
        shared: impl Fn(usize, usize) -> u64,
        uses: &[u64],
    ) -> Option<Vec<usize>> {
        let count = self.gpus.len();
        let exits = &self.exits[rail];
        let exit_cost = |gpu: usize| {
            let (rate, hops, exit) = exits[gpu];
            // NICs access GPU memory slowly over a CPU, so this costs more than the same path between GPUs.
            let far = matches!(exit, NicPath::Direct(PathType::HostBridge | PathType::System));
            (rate >= exit_rate).then_some(4 * hops + if far { 2 * NON_NVLINK_COST } else { 0 })
        };
        let full = (1usize << count) - 1;
        // From the full set down, `best[set][last]` is the remaining cost.
        let mut best: Vec<Best> = vec![None; (full + 1) * count];
        for set in (1..=full).rev() {
            for last in (0..count).filter(|last| set >> last & 1 == 1) {
                best[set * count + last] = if set == full {
                    exit_cost(last).map(|cost| (cost, last))
                } else {
                    let onward = (0..count).filter(|&next| set >> next & 1 == 0);
                    let fast = onward.filter(|&next| shared(last, next) >= pair_rate);
                    let costs = fast.filter_map(|next| {
                        let (rest, _) = best[(set | 1 << next) * count + next]?;
                        let (_, hops, closeness) = self.pair(last, next);
                        let far = if closeness == PathType::Nvlink { 0 } else { NON_NVLINK_COST };
                        Some((rest + far + 4 * hops + uses[last * count + next], next))
                    });
                    costs.min()
                };
            }
        }
        // Of two equal ends, the one nearer to its NIC is the head.
        let starts = (0..count).filter_map(|gpu| {
            Some((exit_cost(gpu)? + exits[gpu].1 + best[(1 << gpu) * count + gpu]?.0, gpu))
        });
        let (_, start) = starts.min()?;
        let (mut path, mut set) = (vec![start], 1 << start);
        while set != full {
            let last = path[path.len() - 1];
            let (_, next) = best[set * count + last].expect("the start has a way to the end");
            path.push(next);
            set |= 1 << next;
        }
        Some(path)
    }

    /// Returns a greedy path: it starts at the GPU nearest to the NIC and continues at each step with the GPU that it
    /// reaches at the highest rate.
    fn greedy_path(&self, rail: usize, shared: impl Fn(usize, usize) -> u64) -> Vec<usize> {
        let count = self.gpus.len();
        let nearest =
            |&gpu: &usize| (core::cmp::Reverse(self.exits[rail][gpu].0), self.exits[rail][gpu].1);
        let start = (0..count).min_by_key(nearest).expect("a machine has a GPU");
        let mut remaining: Vec<usize> = (0..count).map(|gpu| (start + gpu) % count).collect();
        let mut path = vec![remaining.remove(0)];
        while !remaining.is_empty() {
            let last = path[path.len() - 1];
            // The first of equals wins, so that equal links keep the numeric order.
            let rank = |&at: &usize| (shared(last, remaining[at]), core::cmp::Reverse(at));
            let next = (0..remaining.len()).max_by_key(rank).expect("not empty");
            path.push(remaining.remove(next));
        }
        path
    }

    fn ring(&self, rail_in: usize, rail_out: usize, path: &[usize]) -> Ring {
        let (head, tail) =
            (self.exits[rail_in][path[0]], self.exits[rail_out][path[path.len() - 1]]);
        let pairs = || path.windows(2).map(|pair| self.pair(pair[0], pair[1]));
        let slowest = pairs().map(|pair| pair.0).chain([head.0, tail.0]).min().unwrap_or(head.0);
        Ring {
            rail_in,
            rail_out,
            gpus: path.iter().map(|&gpu| self.gpus[gpu]).collect(),
            head: head.2,
            tail: tail.2,
            rate: BitRate::bps(slowest).expect("every link has a rate"),
            closeness: pairs().map(|pair| pair.2).max().unwrap_or(PathType::Nvlink),
        }
    }
}
