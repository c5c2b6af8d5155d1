//! The settings of a simulation: cluster, jobs and failures.

use alloc::vec::Vec;

use weft_plan::collective::Collective;
use weft_topo::RouteError;
use weft_topo::build::{BuildError, FatTree, Hpn, Rail, TopologyConfig};
use weft_topo::hash::HashAlgorithm;
use weft_units::{BitRate, ByteCount};

use super::Iterations;
use crate::controller::ControllerConfig;
use crate::installed::InstalledError;

/// The settings of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Number of GPUs, each with a NIC, eight in a server.
    pub gpus: u32,
    /// The collective that jobs run: an all-reduce in rings, one on each rail, or an all-to-all, in which every server
    /// of a job sends to every other, on each rail.
    pub collective: Collective,
    /// The data sizes per GPU for which bandwidth is reported.
    pub sizes: Vec<ByteCount>,
    /// Number of servers of a job.
    pub job_servers: u32,
    /// Number of servers of a job that are adjacent; the others are elsewhere.
    pub side_by_side: u32,
    /// Share of servers that have a job, in percent.
    pub busy_percent: u32,
    /// Share of jobs whose library draws source ports at random, in percent (Astral, section 2.3, point 4); the ports
    /// of other jobs are planned for the network without failures.
    pub unplanned_percent: u32,
    /// Number of spines of a cluster of up to 4,096 GPUs: 64 have as many cables as hosts have, fewer are oversubscribed.
    pub spines: u32,
    /// Share of cables between switches that have failed since, in thousandths.
    pub failed_per_mille: u32,
    /// `true` if planned jobs are announced to a controller, which plans flows again whose paths the failed cables have
    /// changed.
    pub replans: bool,
    /// The iterations of jobs, which announce themselves to the controller; none for jobs that always send.
    pub iterations: Option<Iterations>,
    /// Number of simulated windows.
    pub windows: u64,
    /// The number of windows after which a quarter of the jobs is replaced; zero means never.
    pub change_every: u64,
    /// The hash function of switches.
    pub hash: HashAlgorithm,
    /// The seed of all random draws.
    pub seed: u64,
    /// The controller, or none.
    pub controller: Option<ControllerConfig>,
    /// Share of changes that routers refuse, in percent.
    pub refused_percent: u32,
    /// Probability, in percent, that the controller is killed before one of its actions is carried out; it restarts
    /// from its saved state.
    pub killed_percent: u32,
}

/// The reason why a simulation cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A cluster size that is not supported.
    #[error("{gpus} GPUs: a cluster has 512 to 262144, in multiples of 512")]
    Gpus {
        /// Number of GPUs.
        gpus: u32,
    },
    /// A collective that is not simulated.
    #[error(
        "{collective} is not simulated, only {} and {}",
        Collective::AllReduce,
        Collective::AllToAll
    )]
    Collective {
        /// The collective.
        collective: Collective,
    },
    /// A number out of its range.
    #[error("{what} is {got}, expected {expected}")]
    OutOfRange {
        /// The setting.
        what: &'static str,
        /// Its value.
        got: u64,
        /// Its permitted range.
        expected: &'static str,
    },
    /// A network that cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A network whose routes exceed a limit.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// Tables that contradict themselves.
    #[error(transparent)]
    Installed(#[from] InstalledError),
    /// Ports that cannot be planned.
    #[error(transparent)]
    Plan(#[from] weft_plan::ports::PlanError),
}

impl Setup {
    /// Returns the settings of a cluster with a controller, as reported in docs/design/route.md.
    pub fn new(gpus: u32, collective: Collective) -> Self {
        let (job_servers, side_by_side) = match collective {
            Collective::AllToAll => (16, 8),
            _ => (32, 8),
        };
        Self {
            gpus,
            collective,
            sizes: (0..5).map(|doubled| ByteCount::mib(64 << doubled)).collect(),
            job_servers,
            side_by_side,
            busy_percent: 100,
            unplanned_percent: 10,
            spines: 64,
            failed_per_mille: 5,
            replans: false,
            iterations: None,
            windows: 60,
            change_every: 20,
            hash: HashAlgorithm::Crc32,
            seed: 1,
            controller: Some(ControllerConfig::default()),
            refused_percent: 0,
            killed_percent: 0,
        }
    }

    /// Returns the cluster's network: Astral's blocks below 64 spines up to 4,096 GPUs, HPN's segments below 60
    /// aggregation switches per plane up to 16,384, and beyond that a fat tree of three tiers with 400 Gb/s links and
    /// half as many uplinks as hosts at each leaf.
    pub fn shape(&self) -> TopologyConfig {
        match self.gpus {
            0..=4096 => TopologyConfig::Rail(Rail {
                blocks: self.gpus / 256,
                spines: self.spines,
                ..Rail::default()
            }),
            4097..=16_384 => {
                TopologyConfig::Hpn(Hpn { segments: self.gpus / 1024, rails: 8, ..Hpn::default() })
            }
            hosts => TopologyConfig::FatTree(FatTree {
                hosts,
                tiers: 3,
                oversubscription: 2,
                rate: BitRate::gbps(400).expect("it is not zero"),
                ..FatTree::default()
            }),
        }
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        let is_whole = self.gpus.is_multiple_of(if self.gpus > 4096 { 1024 } else { 512 });
        if !(512..=262_144).contains(&self.gpus) || !is_whole {
            return Err(SetupError::Gpus { gpus: self.gpus });
        }
        let collective = self.collective;
        if !matches!(collective, Collective::AllReduce | Collective::AllToAll) {
            return Err(SetupError::Collective { collective });
        }
        let Iterations { shortest, longest, busy_percent: busy } =
            self.iterations.unwrap_or(Iterations::DEFAULT);
        let ranges = [
            (
                "servers of a job",
                u64::from(self.job_servers),
                2..=u64::from(self.gpus / 8),
                "2 to the cluster's",
            ),
            (
                "servers side by side",
                self.side_by_side.into(),
                1..=u64::from(self.job_servers),
                "1 to a job's",
            ),
            ("busy servers", self.busy_percent.into(), 1..=100, "1 to 100 percent"),
            ("unplanned jobs", self.unplanned_percent.into(), 0..=100, "0 to 100 percent"),
            ("spines", self.spines.into(), 1..=64, "1 to 64"),
            ("failed cables", self.failed_per_mille.into(), 0..=200, "0 to 200 in a thousand"),
            ("refused changes", self.refused_percent.into(), 0..=100, "0 to 100 percent"),
            ("kills", self.killed_percent.into(), 0..=90, "0 to 90 percent"),
            ("busy part of an iteration", busy.into(), 1..=99, "1 to 99 percent"),
            (
                "shortest iteration",
                shortest.as_nanos(),
                1_000_000..=longest.as_nanos(),
                "1 ms to the longest",
            ),
            ("windows", self.windows, 1..=100_000, "1 to 100000"),
            ("sizes", self.sizes.len() as u64, 1..=64, "1 to 64 of them"),
        ];
        for (what, got, range, expected) in ranges {
            if !range.contains(&got) {
                return Err(SetupError::OutOfRange { what, got, expected });
            }
        }
        Ok(())
    }
}
