//! The settings of DWRR.

use super::Range;

/// DWRR's parameters. Neither STELLAR (section 7.2) nor Kwon et al. (1998) gives weights for paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct DwrrConfig {
    /// A path has half its weight where its queueing delay exceeds the best path's by the transmission time of this
    /// many packets, 1 to 1000. A smaller value is sharper: fewer paths stay in use.
    pub half_weight_packets: u16,
}

impl Default for DwrrConfig {
    fn default() -> Self {
        Self { half_weight_packets: 2 }
    }
}

impl DwrrConfig {
    pub(super) fn ranges(&self) -> [Range; 1] {
        let packets = self.half_weight_packets.into();
        [("dwrr.half_weight_packets", packets, 1, 1000, "1 to 1000 packets")]
    }
}
