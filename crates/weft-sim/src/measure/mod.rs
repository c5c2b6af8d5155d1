//! The measurements of a run: completion times, queues, port load, goodput, reordering, and sums of counters. This module
//! only reads the network.

mod counts;
mod distribution;
mod flows;
mod goodput;
mod pauses;
mod ports;
mod queues;
mod reordering;

pub use distribution::Distribution;
pub use flows::{
    FlowReport, IdealTime, IdealTimeParameters, REFERENCE_BINS, SizeBin, base_round_trip_time,
    binned, ideal_time,
};
pub use goodput::Goodput;
pub use pauses::{PfcReport, PortPauses, TierPauses};
pub use ports::{PortReport, PortWatch, SlowUplinks, TierLoad};
pub use queues::{QueuePoint, QueueReport, QueueWatch, kind_of_port};
pub use reordering::{ReorderingReport, ReorderingWatch};
