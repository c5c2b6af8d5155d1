//! The time of an all-reduce over rings and over double trees, from the latency of hops and the rate of NICs (the model of
//! Hockney 1994: a latency, and bytes over a rate).
//!
//! Of `n` ranks on servers with `g` of them each, a byte passes `2 (n − 1)` hops of a ring, of which one in `g` is between
//! servers, and each NIC carries `2 (n − 1) / n` of the bytes. In a double tree it passes the depth of the tree twice, with the
//! chain through each server at both ends, and each NIC carries twice the bytes. So trees are faster up to a size.

use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{TunedAlgorithm, TunerRow};
use crate::cluster::{Cluster, ServerId};
use crate::collective::Collective;
use crate::ring::{double_tree, rings_on_rails};

/// The time that a short message takes for a hop, with what the ends do for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopLatencies {
    /// Between servers.
    pub network: Duration,
    /// Between GPUs of a server.
    pub inner: Duration,
}

impl Default for HopLatencies {
    /// Returns those of Astral, section 3.3: 4 us and 200 ns.
    fn default() -> Self {
        Self { network: Duration::from_micros(4), inner: Duration::from_nanos(200) }
    }
}

/// A communicator of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// Number of servers, at least 2.
    pub servers: u32,
    /// Number of its ranks on each server.
    pub gpus: u32,
    /// Rate between servers, all NICs that it uses together.
    pub rate: BitRate,
    /// Depth of the planned trees over servers.
    pub depth: u32,
}

/// Returns the communicators of a job in this order of servers for which a plan has an answer: that of all GPUs, and that of one
/// GPU of each server. A job on one server has none.
///
/// # Panics
/// If the cluster has no such server.
pub fn communicators(cluster: &Cluster, order: &[ServerId]) -> Vec<Communicator> {
    let Ok(servers @ 2..) = u32::try_from(order.len()) else { return Vec::new() };
    let depth = double_tree(cluster, order).iter().map(crate::ring::Tree::depth).max();
    let depth = depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(0);
    let rates = rings_on_rails(cluster.machine()).into_iter().map(|ring| ring.rate.as_bps());
    let rates: Vec<u64> = rates.collect();
    let gpus = u32::try_from(cluster.machine().gpus().len()).unwrap_or(u32::MAX);
    let of = |gpus, bps| BitRate::bps(bps).map(|rate| Communicator { servers, gpus, rate, depth });
    let all = of(gpus, rates.iter().sum());
    // One ring passes a GPU of each server; the slowest rail decides.
    let one = of(1, rates.iter().copied().min().unwrap_or(0)).filter(|_| gpus > 1);
    all.into_iter().chain(one).collect()
}

impl Communicator {
    /// Returns the number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.servers.saturating_mul(self.gpus)
    }

    /// Returns the latency of an all-reduce of few bytes, ns.
    fn latency(&self, algorithm: TunedAlgorithm, hops: HopLatencies) -> u128 {
        let [network, inner] = [hops.network, hops.inner].map(|hop| u128::from(hop.as_nanos()));
        let (ranks, gpus) = (u128::from(self.ranks()), u128::from(self.gpus));
        match algorithm {
            TunedAlgorithm::Ring => {
                let steps = 2 * (ranks - 1);
                let between = steps / gpus;
                between * network + (steps - between) * inner
            }
            TunedAlgorithm::Tree => 2 * (u128::from(self.depth) * network + (gpus - 1) * inner),
        }
    }

    /// Returns the time of an all-reduce of this number of bytes.
    pub fn time(&self, algorithm: TunedAlgorithm, bytes: u64, hops: HopLatencies) -> Duration {
        let ranks = u128::from(self.ranks());
        let carried = match algorithm {
            TunedAlgorithm::Ring => 2 * u128::from(bytes) * (ranks - 1) / ranks,
            TunedAlgorithm::Tree => 2 * u128::from(bytes),
        };
        let transfer = carried * 8 * 1_000_000_000 / u128::from(self.rate.as_bps());
        let nanos = self.latency(algorithm, hops) + transfer;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the size from which rings are as fast as trees, bytes; zero if they always are.
    fn crossover(&self, hops: HopLatencies) -> u64 {
        let ring = self.latency(TunedAlgorithm::Ring, hops);
        let saved = ring.saturating_sub(self.latency(TunedAlgorithm::Tree, hops));
        // Each NIC carries 2 / n of the bytes less in a ring.
        let bytes = saved * u128::from(self.ranks()) * u128::from(self.rate.as_bps());
        u64::try_from(bytes / (2 * 8 * 1_000_000_000)).unwrap_or(u64::MAX)
    }
}

/// Returns the rows for the all-reduces of a communicator: trees up to a size, rings from there.
pub fn all_reduce_rows(communicator: &Communicator, hops: HopLatencies) -> Vec<TunerRow> {
    let crossover = communicator.crossover(hops);
    let row = |bytes: core::ops::Range<u64>, algorithm| TunerRow {
        collective: Collective::AllReduce,
        servers: communicator.servers,
        ranks: communicator.ranks(),
        bytes,
        algorithm: Some(algorithm),
        protocol: None,
        channels: None,
    };
    let rows =
        [row(0..crossover, TunedAlgorithm::Tree), row(crossover..u64::MAX, TunedAlgorithm::Ring)];
    rows.into_iter().filter(|row| !row.bytes.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPS: HopLatencies =
        HopLatencies { network: Duration::from_micros(4), inner: Duration::from_nanos(200) };

    fn of(servers: u32, gpus: u32, gbps: u64, depth: u32) -> Communicator {
        Communicator { servers, gpus, rate: BitRate::gbps(gbps).unwrap(), depth }
    }

    /// Two servers of 8 GPUs and 400 Gb/s each: 30 hops of the ring, 3 of them between servers; a tree of depth 1.
    #[test]
    fn times_are_those_of_the_model() {
        let communicator = of(2, 8, 3_200, 1);
        let time = |algorithm, bytes| communicator.time(algorithm, bytes, HOPS).as_nanos();
        assert_eq!(time(TunedAlgorithm::Ring, 0), 3 * 4_000 + 27 * 200);
        assert_eq!(time(TunedAlgorithm::Tree, 0), 2 * (4_000 + 7 * 200));
        // 400 bytes a nanosecond.
        assert_eq!(time(TunedAlgorithm::Tree, 4_000_000) - time(TunedAlgorithm::Tree, 0), 20_000);
        assert_eq!(time(TunedAlgorithm::Ring, 4_000_000) - time(TunedAlgorithm::Ring, 0), 18_750);
    }

    #[test]
    fn the_answer_changes_where_the_times_cross() {
        for communicator in [of(2, 8, 3_200, 1), of(64, 1, 400, 6), of(512, 8, 3_200, 9)] {
            let rows = all_reduce_rows(&communicator, HOPS);
            let [tree, ring] = &rows[..] else { panic!("{rows:?}") };
            assert_eq!((tree.bytes.start, ring.bytes.end), (0, u64::MAX));
            assert_eq!(tree.bytes.end, ring.bytes.start);
            let faster = |algorithm, other, bytes| {
                communicator.time(algorithm, bytes, HOPS) <= communicator.time(other, bytes, HOPS)
            };
            let at = ring.bytes.start;
            assert!(faster(TunedAlgorithm::Tree, TunedAlgorithm::Ring, at * 9 / 10));
            assert!(faster(TunedAlgorithm::Ring, TunedAlgorithm::Tree, at * 11 / 10));
        }
        // Where a tree is a chain it saves nothing.
        let rows = all_reduce_rows(&of(2, 1, 400, 1), HOPS);
        assert_eq!(
            rows.iter().map(|row| row.algorithm).collect::<Vec<_>>(),
            [Some(TunedAlgorithm::Ring)]
        );
    }
}

#[cfg(all(test, feature = "serde"))]
mod documentation {
    use super::*;
    use crate::cluster::ClusterConfig;
    use crate::tuner::tuner_csv;

    /// `weft plan ring plans/astral.toml --servers 2 --tuner tuner.csv`.
    #[test]
    fn the_table_of_the_documentation_is_that_of_its_command() {
        let config: ClusterConfig =
            toml::from_str(include_str!("../../../../plans/astral.toml")).unwrap();
        let machine = config.machine.build().unwrap();
        let cluster = config.build(machine).unwrap();
        let job: Vec<ServerId> = cluster.server_ids().take(2).collect();
        let known = communicators(&cluster, &job);
        let rows: Vec<_> =
            known.iter().flat_map(|of| all_reduce_rows(of, HopLatencies::default())).collect();
        let table = tuner_csv(&rows);
        assert!(include_str!("../../../../docs/nccl.md").contains(&table), "{table}");
    }
}
