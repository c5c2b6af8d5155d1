//! A device that only registers memory.

use alloc::vec::Vec;

use crate::verbs::{DeviceError, Region, Registrar};

/// A device that only allocates regions, without memory behind them.
#[derive(Debug, Default)]
pub(crate) struct NoDevice {
    pub(crate) regions: Vec<Region>,
    next: u64,
}

impl Registrar for NoDevice {
    fn allocate(&mut self, len: u64) -> Result<Region, DeviceError> {
        self.next += 1 << 32;
        let region = Region { address: self.next, len, lkey: 1, rkey: 1 };
        self.regions.push(region);
        Ok(region)
    }

    fn free(&mut self, region: Region) {
        let at = self.regions.iter().position(|other| *other == region);
        self.regions.swap_remove(at.expect("it was allocated"));
    }
}
