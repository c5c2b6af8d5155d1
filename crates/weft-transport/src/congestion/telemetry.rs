//! In-band telemetry (INT): what a switch writes on a packet about the link by which it leaves, and the receiver returns
//! with the ACK (HPCC, SIGCOMM 2019, section 4.1 and figure 7).

use weft_units::{BitRate, Instant};

/// The state of one link when a packet left by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopTelemetry {
    /// The link, by a number that is unique on the network: a packet that passes others took another way.
    pub link: u32,
    /// Bytes that waited for the link.
    pub queue: u64,
    /// Bytes that the link has sent since it came up.
    pub sent: u64,
    /// The time of the departure, by the switch's clock; only differences of one link's are meaningful.
    pub at: Instant,
    /// The rate of the link.
    pub rate: BitRate,
}
