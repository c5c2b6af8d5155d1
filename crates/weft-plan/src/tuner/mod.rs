//! Tables from which a tuner plugin of NCCL's answers: the algorithm of an all-reduce by its size, for the communicators of a job.

mod table;
mod times;

use core::ops::Range;

use crate::collective::Collective;

pub use table::{TunerTableError, read_tuner_csv, tuner_csv};
pub use times::{Communicator, HopLatencies, all_reduce_rows, communicators};

weft_units::registry! {
    /// An algorithm of NCCL's that a plan compares.
    pub enum TunedAlgorithm: "algorithm" {
        /// Rings through all ranks.
        Ring => "ring";
        /// Double binary trees over servers, chains inside them.
        Tree => "tree";
    }
}

weft_units::registry! {
    /// A protocol of NCCL's: how a receiver sees that data has arrived.
    pub enum TunedProtocol: "protocol" {
        /// A flag in every 8 bytes.
        Ll => "ll";
        /// A flag in every 128 bytes.
        Ll128 => "ll128";
        /// A counter after each step.
        Simple => "simple";
    }
}

/// The collectives that NCCL asks a tuner about.
pub const TUNED: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
];

/// The largest number of channels, `MAXCHANNELS` of NCCL's.
pub const MAX_CHANNELS: u8 = 64;

/// The answer of a tuner for the calls of one collective, with sizes in one range, on communicators of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunerRow {
    /// The collective.
    pub collective: Collective,
    /// Number of servers of the communicator.
    pub servers: u32,
    /// Number of ranks of the communicator.
    pub ranks: u32,
    /// Sizes, bytes.
    pub bytes: Range<u64>,
    /// The better one of ring and tree; `None` if NCCL chooses.
    pub algorithm: Option<TunedAlgorithm>,
    /// The protocol; `None` if NCCL chooses.
    pub protocol: Option<TunedProtocol>,
    /// Number of channels, 1 to [`MAX_CHANNELS`]; `None` if NCCL chooses.
    pub channels: Option<u8>,
}
