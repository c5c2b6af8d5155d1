//! The IOMMU: its translation cache and its page walks.

use weft_units::Seed;

use super::{Cache, Outstanding, PcieConfig};
use crate::time::{SimSpan, SimTime};

/// The IOMMU of a host.
#[derive(Debug)]
pub(super) struct Iommu {
    iotlb: Cache,
    walkers: Outstanding,
    walk: SimSpan,
    /// Number of the NIC's pages that one entry covers.
    reach: u64,
    pub(super) hits: u64,
    pub(super) walks: u64,
}

impl Iommu {
    pub(super) fn new(config: &PcieConfig, seed: Seed) -> Self {
        Self {
            iotlb: Cache::new(&config.iotlb, seed.child("iotlb", 0)),
            walkers: Outstanding::new(config.walk.walkers),
            walk: config.walk.delay.into(),
            reach: config.iotlb_page.0 / config.page.0,
            hits: 0,
            walks: 0,
        }
    }

    /// Returns the time at which the translation of `frame` is known, if requested at `at`.
    pub(super) fn look_up(&mut self, at: SimTime, frame: u64) -> SimTime {
        let tag = frame / self.reach;
        if let Some(known) = self.iotlb.look_up(tag) {
            self.hits += 1;
            return known.max(at);
        }
        self.walks += 1;
        let known = self.walkers.serve(at, |begun| begun + self.walk);
        self.iotlb.insert(tag, known);
        known
    }
}
