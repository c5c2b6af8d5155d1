//! The overlay's part of a report.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_vpc::{DropCause, SwitchCounters};

use crate::overlay::{OverlayCounters, TenantCounters};

/// Counters of tenants' frames, summed over all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverlayReport {
    /// Ends of pairs' connections at the end of the run: two per connection.
    pub pair_ends: u64,
    /// Counters of tenants.
    #[serde(flatten)]
    pub tenants: TenantCounters,
    /// Frames that switches sent on connections.
    pub reliable_sent: u64,
    /// Frames that switches received on connections.
    pub reliable_received: u64,
    /// Frames that switches sent as plain VXLAN, counted before segmentation.
    pub plain_sent: u64,
    /// Frames that switches received as plain VXLAN.
    pub plain_received: u64,
    /// Frames between ports of one host.
    pub local_sent: u64,
    /// Packets that were redelivered because the tenant had no room for them.
    pub declined: u64,
    /// Frames that switches dropped, by cause.
    pub dropped: BTreeMap<&'static str, u64>,
}

impl From<&OverlayCounters> for OverlayReport {
    fn from(counters: &OverlayCounters) -> Self {
        // The fields are named, so that a new counter is not forgotten.
        let OverlayCounters { ref switch, tenants, pair_ends } = *counters;
        let &SwitchCounters {
            reliable_sent,
            plain_sent,
            local_sent,
            reliable_received,
            plain_received,
            declined,
            dropped: _,
        } = switch;
        let dropped = DropCause::ALL.iter().map(|&cause| (cause.name(), switch.dropped_for(cause)));
        Self {
            pair_ends,
            tenants,
            reliable_sent,
            reliable_received,
            plain_sent,
            plain_received,
            local_sent,
            declined,
            dropped: dropped.collect(),
        }
    }
}
