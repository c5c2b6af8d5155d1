//! The settings of MP-RDMA.

use super::Range;

/// MP-RDMA's parameters (Lu et al., NSDI 2018), for the path policy and the congestion control of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct MpRdmaConfig {
    /// The bound on reordering, 1 to 8192 packets: a packet acknowledged after one whose number is higher by more than
    /// this took a path that is too slow. 32 as published.
    pub reordering_bound: u16,
    /// The share of packets sent on a random new path, per mille. One per cent as published.
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
