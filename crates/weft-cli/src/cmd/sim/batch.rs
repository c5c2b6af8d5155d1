//! Options that all commands with many runs have in common.

use std::num::NonZeroUsize;

use super::workers;

/// Options of concurrent runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Batch {
    /// Threads: one for each run at a time [default: one for each processor]; `weft sim run` of one seed divides its
    /// network among them [default: 1], with the same result for any number
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Replace a value for all, such as transport.mtu=1000 or workload.0.size=1MB; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Show no progress; without a terminal there is none
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Batch {
    pub(crate) fn workers(&self) -> usize {
        workers(self.threads)
    }

    /// Returns the number of threads among which a single run is divided.
    pub(crate) fn threads_of_run(&self) -> NonZeroUsize {
        self.threads.unwrap_or(NonZeroUsize::MIN)
    }
}

/// Options of the seeds of the runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Seeds {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs, each with the next seed
    #[arg(long, default_value_t = NonZeroUsize::MIN)]
    seeds: NonZeroUsize,
}

impl Seeds {
    pub(crate) fn each(&self) -> impl Iterator<Item = u64> {
        (0..self.seeds.get() as u64).map(|index| self.seed.wrapping_add(index))
    }
}
