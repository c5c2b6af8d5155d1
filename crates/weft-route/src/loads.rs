//! The load of links.

use alloc::collections::BTreeMap;

use crate::fabric::{Fabric, LinkId};

/// The last reported load of every link, in bits per second.
pub trait Loads {
    /// Returns the load of a link in bits per second; `None` if no report covers it.
    fn load(&self, link: LinkId) -> Option<u64>;

    /// Returns the load in bits per second that is reserved on a link for the time in which moved flows are sent.
    fn reserved(&self, _link: LinkId) -> u64 {
        0
    }
}

impl Loads for BTreeMap<LinkId, u64> {
    fn load(&self, link: LinkId) -> Option<u64> {
        self.get(&link).copied()
    }
}

impl Loads for [u64] {
    fn load(&self, link: LinkId) -> Option<u64> {
        self.get(link.index()).copied()
    }
}

/// Returns the utilisation of a link with this load, in thousandths of its capacity.
pub(crate) fn per_mille(load: u64, fabric: &Fabric, link: LinkId) -> u32 {
    // The product saturates at loads beyond 18 Pb/s.
    let full = load.saturating_mul(1000) / fabric.rate(link).as_bps();
    u32::try_from(full).unwrap_or(u32::MAX)
}
