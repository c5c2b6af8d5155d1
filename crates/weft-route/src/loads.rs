//! What links carry.

use alloc::collections::BTreeMap;

use crate::fabric::{Fabric, LinkId};

/// Bits a second on every link, as last reported; none where nothing was.
pub trait Loads {
    /// The load of a link.
    fn load(&self, link: LinkId) -> Option<u64>;
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

/// How full a link is with this load.
pub(crate) fn per_mille(load: u64, fabric: &Fabric, link: LinkId) -> u32 {
    // Beyond 18 Pb/s nothing is less full.
    let full = load.saturating_mul(1000) / fabric.rate(link).as_bps();
    u32::try_from(full).unwrap_or(u32::MAX)
}
