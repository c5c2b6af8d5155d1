//! How much reordering MP-RDMA accepts, and how often it looks for new paths.

use super::Range;

/// MP-RDMA's parameters (Lu et al., NSDI 2018), for the policy and the congestion control of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct MpRdmaConfig {
    /// A packet acknowledged after one that is numbered more than this beyond it came by a path that
    /// is too slow: the bound on reordering, 1 to 8192 packets. 32 as published.
    pub reordering_bound: u16,
    /// Packets sent on a random new path instead, per mille. A per cent as published.
    pub probe_permille: u16,
}

impl Default for MpRdmaConfig {
    fn default() -> Self {
        Self { reordering_bound: 32, probe_permille: 10 }
    }
}

impl MpRdmaConfig {
    pub(super) fn ranges(&self) -> [Range; 2] {
        let (bound, probe) = (self.reordering_bound.into(), self.probe_permille.into());
        [
            ("mp_rdma.reordering_bound", bound, 1, 8192, "1 to 8192 packets"),
            ("mp_rdma.probe_permille", probe, 0, 1000, "at most 1000 per mille"),
        ]
    }
}
