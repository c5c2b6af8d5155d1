//! Iterations of a model's training, split over GPUs by tensor, pipeline, data and expert parallelism.
//!
//! Every GPU has a program (`program.rs`): it computes the forward and backward passes of its stage's layers,
//! micro-batch by micro-batch, and exchanges the data that the next computation needs. Messages between GPUs of one
//! server take the server's own links, all others the network. Collectives are the schedules of
//! `weft_plan::collective`; where a server has several ranks of a group, they first run inside the server, so that
//! traffic between servers stays on its rail.
//!
//! Sizes and times are those of a published model (`model.rs`) or the scenario's own (`load`), all divided by `scale`:
//! a second of training is billions of packets. Dividing both keeps the ratio of communication to computation.
//! Latencies do not scale, so that a scaled iteration spends relatively more time on them; fewer micro-batches and
//! fewer layers (each larger, with the same sum) keep messages large. Fewer micro-batches also mean a larger bubble of
//! the pipeline, which is not counted as communication.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{HostSet, Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one, one_to_64};

mod channels;
mod equal_parts;
mod exchange;
mod first_lane;
mod grid;
mod job;
mod model;
mod moves;
mod op;
mod placement;
mod program;
mod rank;
mod repeats;
mod representatives;
mod skipping;
mod timeline;
mod track;

use grid::Grid;
use job::Job;
pub use model::{Load, Model, Sharding};
pub use placement::{Placement, ServerConfig};
use program::Plan;
use rank::Rank;

/// The settings of the `parallel-training` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The NICs of the servers it runs on.
    pub hosts: HostSet,
    /// The GPUs, NICs and links of a server.
    pub server: ServerConfig,
    /// The assignment of ranks to GPUs.
    pub placement: Placement,
    /// The model that is trained.
    pub model: Model,
    /// The work of a GPU in an iteration; replaces the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The divisor of all sizes and times of an iteration.
    pub scale: f64,
    /// The simulated duration of one second of the model's computation before scaling. A scenario in slow motion sets
    /// a longer one; `load` has times of its own.
    pub second: Duration,
    /// Number of ranks that share each layer; zero is the model's, here and below.
    pub tensor: u32,
    /// Number of pipeline stages.
    pub pipeline: u32,
    /// Number of replicas of the model.
    pub data: u32,
    /// Number of replicas that share experts.
    pub expert: u32,
    /// Number of micro-batches of an iteration; the batch stays the same.
    pub micro_batches: u32,
    /// Number of layers of all stages; the computation stays the same.
    pub layers: u32,
    /// `true` if gradients are reduced during the backward pass.
    pub overlap: bool,
    /// Slices of each message, 1 to 64; each is forwarded as it arrives.
    pub slices: u32,
    /// Connections between two ranks of a group, to which slices are dealt.
    pub queue_pairs: u32,
    /// Number of iterations.
    pub iterations: u32,
    /// The start of the first iteration, from the start of the run.
    pub start: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            server: ServerConfig::default(),
            placement: Placement::Reranked,
            model: Model::Llama33b,
            load: None,
            scale: 1_000.0,
            second: Duration::from_secs(1),
            tensor: 0,
            pipeline: 0,
            data: 0,
            expert: 0,
            micro_batches: 0,
            layers: 0,
            overlap: true,
            slices: 4,
            queue_pairs: 4,
            iterations: 1,
            start: Duration::ZERO,
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        Ok(Box::new(self.job(setting)?))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        at_least_one("iterations", self.iterations)?;
        self.server.check()?;
        for (key, value) in [("slices", self.slices), ("queue_pairs", self.queue_pairs)] {
            one_to_64(key, value)?;
        }
        let ratio = self.load.as_ref().map_or(1.0, |load| load.parameters);
        for (key, value, min) in [("scale", self.scale, 1e-6), ("parameters", ratio, 0.0)] {
            if !(min..=1e9).contains(&value) {
                let (got, expected) = (value.to_string(), "a number of at most 1e9, above zero");
                return Err(WorkloadError::OutOfRange { key, got, expected });
            }
        }
        Ok(())
    }
}

impl Config {
    /// Returns the job of these settings.
    fn job(&self, setting: &Setting<'_>) -> Result<Job, WorkloadError> {
        self.check()?;
        let hosts = self.hosts.resolve(setting.topology.hosts(), self.server.hosts)?;
        let order = self.placement.order(&hosts, &self.server, setting.topology, setting.seed)?;
        let per_host = self.server.gpus_per_host;
        let gpus = u32::try_from(order.len()).expect("fewer than 2^20 hosts") * per_host;
        let grid = self.grid();
        let ranks = grid.ranks(gpus.min(MAX_RANKS))?;
        let load = self.scaled_load(grid)?;
        let plan = Plan::new(grid, &load, self.overlap, self.server.gpus())?;
        check_messages(&plan)?;
        let rank = |rank: u32| {
            let host = order[(rank / per_host) as usize];
            Rank::new(host, rank / self.server.gpus(), plan.records)
        };
        let ranks = (0..ranks).map(rank).collect();
        Ok(Job::new(self.clone(), plan, ranks))
    }

    /// Returns the degrees of parallelism: the scenario's, or the model's where it gives none.
    fn grid(&self) -> Grid {
        let Grid { tensor, pipeline, data, expert } = self.model.grid();
        let or = |given: u32, model: u32| if given == 0 { model } else { given };
        Grid {
            tensor: or(self.tensor, tensor),
            pipeline: or(self.pipeline, pipeline),
            data: or(self.data, data),
            expert: or(self.expert, expert),
        }
    }

    /// Returns the model's load of each rank, with the scenario's `second`.
    fn models_load(&self, grid: Grid) -> Load {
        let load = self.model.load(grid);
        let nanos = u128::from(load.compute.as_nanos()) * u128::from(self.second.as_nanos());
        let nanos = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        Load { compute: Duration::from_nanos(nanos), ..load }
    }

    /// Returns the load of each rank, scaled, in the requested numbers of layers and micro-batches.
    fn scaled_load(&self, grid: Grid) -> Result<Load, WorkloadError> {
        let load = self.load.clone().unwrap_or_else(|| self.models_load(grid));
        let or = |given: u32, load: u32| if given == 0 { load } else { given };
        let micro_batches = or(self.micro_batches, load.micro_batches);
        let layers = or(self.layers, load.layers);
        for (key, value) in [("micro_batches", micro_batches), ("layers", layers)] {
            at_least_one(key, value)?;
        }
        if u64::from(micro_batches) * u64::from(layers) > MAX_PARTS {
            let (key, got) = ("micro_batches", format!("{micro_batches} of {layers} layers"));
            let expected = "a product of at most 2^20";
            return Err(WorkloadError::OutOfRange { key, got, expected });
        }
        if !layers.is_multiple_of(grid.pipeline) {
            let (got, expected) =
                (format!("{layers} with {} stages", grid.pipeline), "a multiple of the stages");
            return Err(WorkloadError::OutOfRange { key: "layers", got, expected });
        }
        let bytes = |size: ByteCount| ByteCount(divided(size.0, self.scale));
        Ok(Load {
            compute: Duration::from_nanos(divided(load.compute.as_nanos(), self.scale)),
            tensor: bytes(load.tensor),
            pipeline: bytes(load.pipeline),
            gradients: bytes(load.gradients),
            expert_gradients: bytes(load.expert_gradients),
            tokens: bytes(load.tokens),
            micro_batches,
            layers,
            ..load
        })
    }
}

/// Checks that every message fits the length field of a message.
fn check_messages(plan: &Plan) -> Result<(), WorkloadError> {
    let phases = plan.exchanges.iter().flat_map(|exchange| &exchange.phases);
    let (got, max) = (phases.map(|phase| phase.bytes).max().unwrap_or(0), u64::from(u32::MAX));
    if got > max { Err(WorkloadError::Size { key: "load", got, max }) } else { Ok(()) }
}

/// Maximum number of ranks: the largest that fits a message's tag.
const MAX_RANKS: u32 = 1 << 24;
/// Maximum product of micro-batches and layers.
const MAX_PARTS: u64 = 1 << 20;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes and times of a model"
)]
fn divided(value: u64, by: f64) -> u64 {
    if value == 0 { 0 } else { ((value as f64 / by).round() as u64).max(1) }
}

#[cfg(test)]
mod tests;
