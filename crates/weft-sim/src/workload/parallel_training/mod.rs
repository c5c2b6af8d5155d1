//! Iterations of a model's training, split over GPUs by tensor, pipeline, data and expert parallelism.
//!
//! Every GPU has a program (`program.rs`): it computes the forward and backward passes of its stage's
//! layers, micro-batch by micro-batch, and exchanges what the next computation needs. Between GPUs of one
//! server messages take the server's own links, all others the network. Collectives are the schedules of
//! `weft_plan::collective`; where a server has several ranks of a group they are performed inside of it first,
//! so that what goes between servers stays on its rail.
//!
//! Sizes and times are those of a published model (`model.rs`) or the scenario's own (`load`), all of them
//! divided by `scale`: a second of training is billions of packets. Dividing both keeps the ratio of
//! communication to computation. What does not scale are latencies, so that a scaled iteration spends
//! relatively more time on them; fewer micro-batches and fewer layers (each then larger, their sum the
//! same) keep messages large. Fewer micro-batches also mean a larger bubble of the pipeline, which is not
//! counted as communication.

use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{HostSet, Recipe, Setting, Workload, WorkloadError, at_least_one, one_to_64};

mod channels;
mod exchange;
mod grid;
mod job;
mod model;
mod placement;
mod program;
mod rank;

use grid::Grid;
use job::Job;
pub use job::Shares;
pub use model::{Load, Model, Sharding};
pub use placement::{Placement, ServerConfig};
use program::Plan;
use rank::Rank;

/// Training iterations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The NICs of the servers it runs on.
    pub hosts: HostSet,
    /// What a server has.
    pub server: ServerConfig,
    /// Which rank is where.
    pub placement: Placement,
    /// Which model is trained.
    pub model: Model,
    /// What a GPU does in an iteration, in place of the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// By what all sizes and times of an iteration are divided.
    pub scale: f64,
    /// What a second of the model's computation takes before that. A scenario in slow motion has a
    /// longer one; a `load` says its own times.
    pub second: Duration,
    /// Ranks that share each layer; zero is the model's, here and below.
    pub tensor: u32,
    /// Stages.
    pub pipeline: u32,
    /// Replicas of the model.
    pub data: u32,
    /// Replicas that share experts.
    pub expert: u32,
    /// Micro-batches of an iteration: the same batch in so many parts.
    pub micro_batches: u32,
    /// Layers of all stages: the same computation in so many parts.
    pub layers: u32,
    /// Whether gradients are reduced while the backward pass goes on.
    pub overlap: bool,
    /// Parts of each message, 1 to 64; each is passed on as it arrives.
    pub slices: u32,
    /// Connections between two ranks of a group, to which slices are dealt.
    pub queue_pairs: u32,
    /// How many iterations.
    pub iterations: u32,
    /// When the first starts.
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

impl Recipe for Config {
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
        for (key, value, least) in [("scale", self.scale, 1e-6), ("parameters", ratio, 0.0)] {
            if !(least..=1e9).contains(&value) {
                let (got, expected) = (value.to_string(), "a number of at most 1e9, above zero");
                return Err(WorkloadError::OutOfRange { key, got, expected });
            }
        }
        Ok(())
    }
}

impl Config {
    fn job(&self, setting: &Setting<'_>) -> Result<Job, WorkloadError> {
        self.check()?;
        let hosts = self.hosts.resolve(setting.topology.hosts(), self.server.hosts)?;
        let order = self.placement.order(&hosts, &self.server, setting.topology, setting.seed)?;
        let per_host = self.server.gpus_per_host;
        let most = u32::try_from(order.len()).expect("fewer than 2^20 hosts") * per_host;
        let grid = self.grid();
        let ranks = grid.ranks(most.min(MOST_RANKS))?;
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

    /// What each rank does where the scenario does not say, a second as long as it says.
    fn models_load(&self, grid: Grid) -> Load {
        let load = self.model.load(grid);
        let nanos = u128::from(load.compute.as_nanos()) * u128::from(self.second.as_nanos());
        let nanos = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        Load { compute: Duration::from_nanos(nanos), ..load }
    }

    /// What each rank does, scaled, in the parts that were asked for.
    fn scaled_load(&self, grid: Grid) -> Result<Load, WorkloadError> {
        let load = self.load.clone().unwrap_or_else(|| self.models_load(grid));
        let or = |given: u32, load: u32| if given == 0 { load } else { given };
        let micro_batches = or(self.micro_batches, load.micro_batches);
        let layers = or(self.layers, load.layers);
        for (key, value) in [("micro_batches", micro_batches), ("layers", layers)] {
            at_least_one(key, value)?;
        }
        if u64::from(micro_batches) * u64::from(layers) > MOST_PARTS {
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

/// Refuses what a message's length cannot hold.
fn check_messages(plan: &Plan) -> Result<(), WorkloadError> {
    let phases = plan.exchanges.iter().flat_map(|exchange| &exchange.phases);
    let (got, most) = (phases.map(|phase| phase.bytes).max().unwrap_or(0), u64::from(u32::MAX));
    if got > most { Err(WorkloadError::Size { key: "load", got, most }) } else { Ok(()) }
}

/// So many fit a message's tag.
const MOST_RANKS: u32 = 1 << 24;
/// Micro-batches times layers.
const MOST_PARTS: u64 = 1 << 20;

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
