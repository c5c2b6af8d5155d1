//! What the hosts' buses counted.

use std::ops::AddAssign;

use serde::Serialize;

use crate::time::SimSpan;

/// What one bus, or all together, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pieces read.
    pub reads: u64,
    /// How long they took, from when they were asked for, all together.
    pub reading: SimSpan,
    /// Pieces written.
    pub writes: u64,
    /// How long they took, from when they came, all together.
    pub writing: SimSpan,
    /// Pages whose translation the NIC had, or had asked for.
    pub atc_hits: u64,
    /// Pages it asked for.
    pub atc_misses: u64,
    /// How long it was without them, all together.
    pub translating: SimSpan,
    /// Pages the IOMMU had, or was looking up.
    pub iotlb_hits: u64,
    /// Walks through its page table.
    pub walks: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            reads,
            reading,
            writes,
            writing,
            atc_hits,
            atc_misses,
            translating,
            iotlb_hits,
            walks,
        } = other;
        self.reads += reads;
        self.reading += reading;
        self.writes += writes;
        self.writing += writing;
        self.atc_hits += atc_hits;
        self.atc_misses += atc_misses;
        self.translating += translating;
        self.iotlb_hits += iotlb_hits;
        self.walks += walks;
    }
}

/// The same for people, all hosts together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PcieReport {
    /// Pieces read.
    pub reads: u64,
    /// How long one took, from when it was asked for, nanoseconds.
    pub read_ns: f64,
    /// Pieces written.
    pub writes: u64,
    /// How long one took, from when it had come, nanoseconds.
    pub write_ns: f64,
    /// Pages the NICs asked for as a share of those they used.
    pub atc_miss_share: f64,
    /// How long a request for a page took, from when it was needed, nanoseconds.
    pub translation_ns: f64,
    /// Pages the IOMMUs were asked for.
    pub iommu_lookups: u64,
    /// Walks as a share of them.
    pub iotlb_miss_share: f64,
}

impl From<Counts> for PcieReport {
    fn from(counts: Counts) -> Self {
        let lookups = counts.iotlb_hits + counts.walks;
        let nanos = |span: SimSpan, of| ratio(span.as_picos(), of) / 1e3;
        Self {
            reads: counts.reads,
            read_ns: nanos(counts.reading, counts.reads),
            writes: counts.writes,
            write_ns: nanos(counts.writing, counts.writes),
            atc_miss_share: ratio(counts.atc_misses, counts.atc_hits + counts.atc_misses),
            translation_ns: nanos(counts.translating, counts.atc_misses),
            iommu_lookups: lookups,
            iotlb_miss_share: ratio(counts.walks, lookups),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
