//! The counters of the hosts' buses.

use std::ops::AddAssign;

use serde::Serialize;

use crate::time::SimSpan;

/// Counters of one bus, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pieces read.
    pub reads: u64,
    /// Sum of the reads' durations, from their requests.
    pub reading: SimSpan,
    /// Pieces written.
    pub writes: u64,
    /// Sum of the writes' durations, from their arrivals.
    pub writing: SimSpan,
    /// Pages whose translation the NIC had, or had requested.
    pub atc_hits: u64,
    /// Pages whose translation it requested.
    pub atc_misses: u64,
    /// Sum of the times without a translation.
    pub translating: SimSpan,
    /// Pages whose translation the IOMMU had, or was looking up.
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

/// Counters of all hosts together, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PcieReport {
    /// Pieces read.
    pub reads: u64,
    /// Mean duration of a read from its request, nanoseconds.
    pub read_ns: f64,
    /// Pieces written.
    pub writes: u64,
    /// Mean duration of a write from its arrival, nanoseconds.
    pub write_ns: f64,
    /// Requested translations as a share of the pages used.
    pub atc_miss_share: f64,
    /// Mean duration of a translation request, nanoseconds.
    pub translation_ns: f64,
    /// Pages requested from the IOMMUs.
    pub iommu_lookups: u64,
    /// Walks as a share of those pages.
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
