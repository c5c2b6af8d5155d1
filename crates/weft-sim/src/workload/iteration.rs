//! The result of one iteration of a workload.

use serde::Serialize;

/// A completed collective, or a round of several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Iteration {
    /// The start, microseconds of simulated time.
    pub start_us: f64,
    /// The time of the slowest rank, microseconds.
    pub time_us: f64,
    /// The bus bandwidth: bytes each rank sent over the time, Gb/s; for an all-reduce 2(N-1)/N times its size, as
    /// nccl-tests reports it.
    pub bus_gbps: f64,
    /// The shares of the time, for a model's training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
}

/// The parts of a training iteration's time, as shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Communication that computation did not hide: the iteration's time minus the time it would take if messages took
    /// none.
    pub exposed: f64,
    /// The time a rank computed. This field and those below are means over the ranks.
    pub computing: f64,
    /// The time it took part in tensor-parallel collectives, including waiting for others.
    pub tensor: f64,
    /// The time it waited for other stages, including the pipeline's bubble.
    pub pipeline: f64,
    /// The time of data-parallel collectives, whether or not computation ran at the same time.
    pub data: f64,
    /// The time it took part in the exchange of tokens.
    pub expert: f64,
}
