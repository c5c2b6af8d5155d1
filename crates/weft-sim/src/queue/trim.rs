//! Packet trimming (Ultra Ethernet 1.0.3, section 4.1; NDP, SIGCOMM 2017): a packet that finds a long queue loses its
//! payload; its headers go ahead of that queue and tell the receiver at once what is missing. Below that depth packets
//! are marked as by [`ecn`](super::ecn).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Rng};

use super::{Admission, QueueDiscipline, Thresholds, ecn};
use crate::time::SimSpan;

/// The cutting of packets. The defaults are those of Ultra Ethernet's public simulator (uet-htsim) for a bandwidth-delay
/// product of 150 KB, and the share of the link that the specification suggests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrimConfig {
    /// Depth up to which packets stay whole, for a port of 100 Gb/s; for others in proportion. About a bandwidth-delay
    /// product.
    pub threshold: ByteCount,
    /// Maximum number of bytes of cut packets that wait at one port, for a port of 100 Gb/s; for others in proportion.
    /// Those beyond it are dropped.
    pub limit: ByteCount,
    /// The length to which packets are cut, bytes on the wire; shorter ones stay whole.
    pub size: u16,
    /// The part of the link that cut packets may take while whole ones wait, per cent; 100 is strict priority.
    pub share_percent: u8,
}

impl Default for TrimConfig {
    fn default() -> Self {
        Self {
            threshold: ByteCount(150_000),
            limit: ByteCount(300_000),
            size: 64,
            share_percent: 50,
        }
    }
}

impl TrimConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The key that is out of its range, with the range.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.size < 64 {
            return Err("trim.size is below 64, the headers of a packet");
        }
        if !(1..=100).contains(&self.share_percent) {
            return Err("trim.share_percent is not 1 to 100");
        }
        Ok(())
    }
}

/// Marks packets by queue depth and cuts those beyond a depth.
#[derive(Clone, Debug)]
pub struct Discipline {
    marks: ecn::Discipline,
    threshold: SimSpan,
}

impl Discipline {
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Self { marks: ecn::Discipline::new(thresholds), threshold: thresholds.trim }
    }
}

impl QueueDiscipline for Discipline {
    #[inline]
    fn admit(&self, backlog: SimSpan, packet: SimSpan, rng: &mut Rng) -> Admission {
        if backlog + packet > self.threshold && backlog > SimSpan::ZERO {
            return Admission::Trim;
        }
        self.marks.admit(backlog, packet, rng)
    }

    fn accepts_up_to(&self) -> SimSpan {
        self.marks.accepts_up_to().min(self.threshold)
    }
}
