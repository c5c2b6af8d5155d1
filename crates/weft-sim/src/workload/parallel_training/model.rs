//! The computation and communication of a GPU in an iteration, for published models.
//!
//! | model | parallelism (TP, PP, DP, EP) | sizes |
//! | --- | --- | --- |
//! | `llama-33b`, `gpt-200b`, `llama-2b-zero1`, `llama-13b-zero3` | STELLAR, table 1 | from its shares of communication |
//! | `gpt-13b`, `llama-65b` | AICB's traces (Alibaba, public) | from the model's shape, as in the traces |
//! | `mixtral-8x7b` | assumed: 2, 4, 128, 8 | from the model's shape (arXiv 2401.04088) |
//!
//! **Computation** is `6 × parameters × tokens` operations (Narayanan et al. 2021) at 400 TFLOP/s a GPU,
//! which is assumed; only its ratio to communication matters once a scenario has scaled both.
//!
//! **Sizes from shares.** STELLAR's table 1 gives the shares of an iteration that tensor-, data- and pipeline-parallel
//! communication took; it gives neither sizes nor bandwidths. A size here is the number of bytes that takes that share
//! of the time on idle links, with 200 Gb/s of network per GPU, or 1,600 Gb/s to its server's other GPUs. The ratios
//! are then the paper's. The gradients of Llama-33B are then nearly nine times those of 33 billion parameters: the
//! paper's jobs got less than line rate, or waited.
//!
//! **Sizes from shapes.** Every tensor-parallel all-reduce is a micro-batch's activations of 16 bits, four to a layer
//! (Megatron-LM); stages send the same bytes to the next. Gradients have 32 bits, and parameters, gathered after the
//! step, 16: 6,422,958,080 and 3,211,479,040 bytes in AICB's trace of GPT-13B.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::grid::Grid;

weft_units::registry! {
    /// A published model and its parallelism.
    #[non_exhaustive]
    pub enum Model: "model" {
        Llama33b => "llama-33b", "Megatron, TP 2, PP 3, DP 148 (STELLAR, table 1)";
        Gpt200b => "gpt-200b", "Megatron, TP 4, PP 12, DP 34 (STELLAR, table 1)";
        Llama2bZero1 => "llama-2b-zero1", "DeepSpeed ZeRO-1, DP 16 (STELLAR, table 1)";
        Llama13bZero3 => "llama-13b-zero3", "DeepSpeed ZeRO-3, DP 440 (STELLAR, table 1)";
        Gpt13b => "gpt-13b", "Megatron, TP 8, DP 16 (AICB's trace)";
        Llama65b => "llama-65b", "Megatron, TP 2, PP 8, DP 8 (AICB's trace)";
        Mixtral => "mixtral-8x7b", "mixture of 8 experts, TP 2, PP 4, DP 128, EP 8";
    }
}

weft_units::registry! {
    /// The data that data-parallel ranks shard.
    #[non_exhaustive]
    pub enum Sharding: "sharding" {
        Nothing => "none", "all have all: gradients are all-reduced";
        Optimizer => "optimizer", "its state: gradients are reduce-scattered, parameters gathered after (ZeRO-1)";
        Parameters => "parameters", "parameters too: gathered before each layer computes, in both directions (ZeRO-3)";
    }
}

/// The work of one GPU of a job in an iteration. Sizes are those of whole operations, as nccl-tests counts them,
/// summed over an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// The time it computes: one third in the forward pass, two thirds in the backward pass.
    pub compute: Duration,
    /// The bytes of its tensor-parallel all-reduces.
    pub tensor: ByteCount,
    /// The activations it sends to the next stage, bytes; as many bytes of gradients come back.
    pub pipeline: ByteCount,
    /// The gradients that all its data-parallel peers have too, bytes.
    pub gradients: ByteCount,
    /// The gradients of its experts, which one in `expert` of its peers has, bytes.
    pub expert_gradients: ByteCount,
    /// Parameters for each byte of gradients, where they are gathered.
    pub parameters: f64,
    /// The tokens it sends to experts, including its own, bytes; as many come back, and the backward pass repeats
    /// both.
    pub tokens: ByteCount,
    /// The data that data-parallel ranks shard.
    pub sharding: Sharding,
    /// Number of layers of the model, dealt to the stages; all sizes and times above are divided by it.
    pub layers: u32,
    /// Number of micro-batches; all sizes and times above are divided by it too.
    pub micro_batches: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            compute: Duration::from_millis(10),
            tensor: ByteCount(0),
            pipeline: ByteCount(0),
            gradients: ByteCount(0),
            expert_gradients: ByteCount(0),
            parameters: 0.5,
            tokens: ByteCount(0),
            sharding: Sharding::Optimizer,
            layers: 8,
            micro_batches: 8,
        }
    }
}

/// The rate from a GPU to the network, bits per second.
const NETWORK: f64 = 200e9;
/// The rate from a GPU to the other GPUs of its server, bits per second.
const LOCAL: f64 = 1_600e9;
const GPUS_PER_SERVER: u32 = 8;
/// Floating-point operations per second of a GPU; assumed.
const FLOPS: f64 = 400e12;

/// The published facts about a model.
struct Facts {
    /// Number of parameters that every token uses.
    dense: f64,
    /// Number of parameters of all experts.
    experts: f64,
    /// The share of the experts that a token uses.
    expert_share: f64,
    layers: u32,
    /// The hidden size: number of values of a token's activations.
    hidden: f64,
    /// Number of tokens of a micro-batch.
    tokens: f64,
    micro_batches: u32,
    /// The degrees of tensor, pipeline, data and expert parallelism.
    grid: [u32; 4],
    sharding: Sharding,
    sizes: Sizes,
}

/// The source of sizes.
enum Sizes {
    /// Shares of an iteration's time of tensor-, data- and pipeline-parallel communication.
    Shares(f64, f64, f64),
    /// The shape of the model.
    Shape,
}

impl Model {
    /// Returns the parallelism if a scenario does not give one.
    pub(super) fn grid(self) -> Grid {
        let [tensor, pipeline, data, expert] = self.facts().grid;
        Grid { tensor, pipeline, data, expert }
    }

    /// Returns the load of a GPU in an iteration at this parallelism.
    pub(super) fn load(self, grid: Grid) -> Load {
        let facts = self.facts();
        let model_parallelism = f64::from(grid.tensor * grid.pipeline);
        let batch = facts.tokens * f64::from(facts.micro_batches);
        let active = facts.dense + facts.experts * facts.expert_share;
        let seconds = 6.0 * active * batch / model_parallelism / FLOPS;
        let load = Load {
            compute: Duration::from_nanos(rounded(seconds * 1e9)),
            sharding: facts.sharding,
            layers: facts.layers,
            micro_batches: facts.micro_batches,
            ..Load::default()
        };
        match facts.sizes {
            Sizes::Shape => facts.sized_by_shape(grid, load),
            Sizes::Shares(tensor, data, pipeline) => {
                let iteration = seconds / (1.0 - tensor - data - pipeline);
                sized_by_shares(grid, load, [tensor, data, pipeline].map(|share| share * iteration))
            }
        }
    }

    fn facts(self) -> Facts {
        let base = Facts {
            dense: 0.0,
            experts: 0.0,
            expert_share: 0.0,
            layers: 0,
            hidden: 0.0,
            tokens: 2048.0,
            micro_batches: 1,
            grid: [1; 4],
            sharding: Sharding::Optimizer,
            sizes: Sizes::Shape,
        };
        match self {
            Self::Llama33b => Facts {
                dense: 32.5e9,
                layers: 60,
                hidden: 6656.0,
                micro_batches: 58,
                grid: [2, 3, 148, 1],
                sizes: Sizes::Shares(0.0457, 0.2095, 0.0265),
                ..base
            },
            // The paper does not give its shape; as many layers as GPT-3 are assumed.
            Self::Gpt200b => Facts {
                dense: 200e9,
                layers: 96,
                hidden: 13_184.0,
                micro_batches: 117,
                grid: [4, 12, 34, 1],
                sizes: Sizes::Shares(0.1088, 0.0149, 0.2014),
                ..base
            },
            Self::Llama2bZero1 => Facts {
                dense: 2e9,
                layers: 24,
                hidden: 2560.0,
                micro_batches: 2,
                grid: [1, 1, 16, 1],
                sizes: Sizes::Shares(0.0, 0.173, 0.0),
                ..base
            },
            Self::Llama13bZero3 => Facts {
                dense: 13e9,
                layers: 40,
                hidden: 5120.0,
                grid: [1, 1, 440, 1],
                sharding: Sharding::Parameters,
                sizes: Sizes::Shares(0.0, 0.105, 0.0),
                ..base
            },
            Self::Gpt13b => {
                Facts { dense: 12.85e9, layers: 40, hidden: 5120.0, grid: [8, 1, 16, 1], ..base }
            }
            Self::Llama65b => Facts {
                dense: 65.2e9,
                layers: 80,
                hidden: 8192.0,
                micro_batches: 64,
                grid: [2, 8, 8, 1],
                ..base
            },
            // Each token and layer uses two of eight experts of three matrices of 4096 by 14,336.
            Self::Mixtral => Facts {
                dense: 1.6e9,
                experts: 45.1e9,
                expert_share: 0.25,
                layers: 32,
                hidden: 4096.0,
                tokens: 4096.0,
                micro_batches: 32,
                grid: [2, 4, 128, 8],
                ..base
            },
        }
    }
}

impl Facts {
    /// Returns a load with the sizes that follow from the model's shape.
    fn sized_by_shape(&self, grid: Grid, load: Load) -> Load {
        let (tensor, pipeline) = (f64::from(grid.tensor), f64::from(grid.pipeline));
        let activations = self.tokens * self.hidden * 2.0 * f64::from(self.micro_batches);
        let per_stage = f64::from(self.layers) / pipeline;
        let gradients = |parameters: f64| bytes(4.0 * parameters / (tensor * pipeline));
        // A token goes to two experts; each tensor-parallel rank sends its part of the tokens.
        let is_split = grid.expert > 1 && self.experts > 0.0;
        let tokens = if is_split { 2.0 * activations * per_stage / tensor } else { 0.0 };
        Load {
            tensor: bytes(4.0 * activations * per_stage),
            pipeline: bytes(activations),
            gradients: gradients(self.dense),
            expert_gradients: gradients(self.experts / f64::from(grid.expert)),
            tokens: bytes(tokens),
            ..load
        }
    }
}

/// Returns a load whose sizes take these seconds each on idle links: tensor, data, pipeline.
fn sized_by_shares(grid: Grid, load: Load, [tensor, data, pipeline]: [f64; 3]) -> Load {
    let around = |ranks: f64| (ranks - 1.0) / ranks;
    let inside = grid.tensor <= GPUS_PER_SERVER;
    let tensor_rate = if inside { LOCAL } else { NETWORK };
    // Gradients are first reduced inside a server, so that each GPU sends a part.
    let local = (GPUS_PER_SERVER / grid.tensor.min(GPUS_PER_SERVER)).min(grid.data);
    let servers = f64::from(grid.data / local);
    let parameters =
        if load.sharding == Sharding::Optimizer && grid.tensor == 1 { 1.0 } else { 0.5 };
    let (parameters, passes) = match load.sharding {
        Sharding::Parameters => (1.0, 3.0),
        Sharding::Optimizer => (parameters, 1.0 + parameters),
        Sharding::Nothing => (parameters, 2.0),
    };
    let sized = |seconds: f64, rate: f64, passes: f64| bytes_if(seconds * rate / 8.0 / passes);
    Load {
        tensor: sized(tensor, tensor_rate, 2.0 * around(f64::from(grid.tensor))),
        pipeline: sized(pipeline, NETWORK, 2.0),
        gradients: sized(data, NETWORK * f64::from(local), passes * around(servers)),
        parameters,
        ..load
    }
}

/// Returns whole bytes; zero where a group of one has no peers.
fn bytes_if(value: f64) -> ByteCount {
    if value.is_finite() { bytes(value) } else { ByteCount(0) }
}

fn bytes(value: f64) -> ByteCount {
    ByteCount(rounded(value))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and times of models"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_gives_the_sizes_of_the_traces() {
        // One all-reduce of GPT-13B is 20,971,520 bytes; two of its 162 belong to the embedding.
        let load = Model::Gpt13b.load(Model::Gpt13b.grid());
        assert_eq!(load.tensor, ByteCount(160 * 20_971_520));
        let parts_in_a_million =
            load.gradients.0.abs_diff(6_422_958_080) * 1_000_000 / 6_422_958_080;
        assert!(parts_in_a_million < 1_000, "{:?}", load.gradients);
        // Llama-65B reduces and forwards 33,554,432 bytes, 64 times each: 20,480 of the 20,608 all-reduces of all
        // eight stages.
        let load = Model::Llama65b.load(Model::Llama65b.grid());
        assert_eq!(load.pipeline, ByteCount(64 * 33_554_432));
        assert_eq!(load.tensor, ByteCount(20_480 / 8 * 33_554_432));
    }

    #[test]
    fn shares_of_an_iteration_are_the_papers_on_idle_links() {
        let load = Model::Llama33b.load(Model::Llama33b.grid());
        // 37 servers of four members each, gradients once and parameters in half as many bits.
        let data = load.gradients.0 as f64 * 1.5 * (36.0 / 37.0) / 4.0 / 25e9;
        let tensor = load.tensor.0 as f64 / 200e9;
        let pipeline = 2.0 * load.pipeline.0 as f64 / 25e9;
        let iteration = load.compute.as_secs_f64() + data + tensor + pipeline;
        for (part, share) in [(data, 0.2095), (tensor, 0.0457), (pipeline, 0.0265)] {
            assert!((part / iteration - share).abs() < 1e-6, "{part} of {iteration}");
        }
    }

    #[test]
    fn a_group_of_one_exchanges_nothing() {
        for &model in Model::ALL {
            let grid = Grid { tensor: 1, pipeline: 1, data: 8, expert: 1 };
            let load = model.load(grid);
            assert_eq!(load.tokens, ByteCount(0), "{model}");
            assert!(load.compute > Duration::ZERO && load.layers > 0, "{model}");
        }
        let alone = Grid { tensor: 1, pipeline: 1, data: 1, expert: 1 };
        let load = Model::Llama33b.load(alone);
        assert_eq!((load.tensor, load.gradients), (ByteCount(0), ByteCount(0)));
    }

    #[test]
    fn experts_get_two_copies_of_each_token() {
        let load = Model::Mixtral.load(Model::Mixtral.grid());
        // 8 layers a stage, 32 micro-batches of 4096 tokens of 8 KiB, twice, half of them on each rank.
        assert_eq!(load.tokens, ByteCount(8 * 32 * 4096 * 8192));
        assert!(load.expert_gradients > load.gradients);
    }
}
