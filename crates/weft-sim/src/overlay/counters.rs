//! Counters of tenants' frames.

use serde::Serialize;
use weft_vpc::SwitchCounters;

/// Counters of tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TenantCounters {
    /// Frames sent, including retransmissions and frames without payload.
    pub frames_sent: u64,
    /// Frames with retransmitted bytes.
    pub frames_retransmitted: u64,
    /// Timeouts of flows that received no ACK.
    pub timeouts: u64,
    /// Frames received; each part of a frame that was segmented on the way counts.
    pub frames_received: u64,
    /// New bytes of flows.
    pub bytes_received: u64,
    /// Bytes of flows that had been received before.
    pub bytes_duplicate: u64,
    /// Frames that arrived after a later one; counted while no frame arrived as plain VXLAN.
    pub late: u64,
    /// Frames that arrived twice; counted while no frame arrived as plain VXLAN.
    #[serde(rename = "twice")]
    pub frames_duplicate: u64,
    /// Frames with other bytes than those sent.
    pub damaged: u64,
    /// Frames of flows that were closed.
    #[serde(rename = "strays")]
    pub frames_after_close: u64,
}

/// Counters of a host's switch and tenants, or of all hosts together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayCounters {
    /// The switch's, at all its ports.
    pub switch: SwitchCounters,
    /// The tenants'.
    pub tenants: TenantCounters,
    /// Ends of pairs' connections.
    pub pair_ends: u64,
}

impl OverlayCounters {
    pub(super) fn new<'a>(
        ports: impl Iterator<Item = &'a SwitchCounters>,
        tenants: TenantCounters,
        pair_ends: u64,
    ) -> Self {
        let mut switch = SwitchCounters::default();
        ports.for_each(|port| add_switch(&mut switch, port));
        Self { switch, tenants, pair_ends }
    }
}

impl std::ops::AddAssign for OverlayCounters {
    fn add_assign(&mut self, other: Self) {
        add_switch(&mut self.switch, &other.switch);
        add_tenants(&mut self.tenants, &other.tenants);
        self.pair_ends += other.pair_ends;
    }
}

fn add_switch(all: &mut SwitchCounters, one: &SwitchCounters) {
    // By name, so that a new counter is not forgotten.
    let SwitchCounters {
        reliable_sent,
        plain_sent,
        local_sent,
        reliable_received,
        plain_received,
        declined,
        dropped,
    } = one;
    all.reliable_sent += reliable_sent;
    all.plain_sent += plain_sent;
    all.local_sent += local_sent;
    all.reliable_received += reliable_received;
    all.plain_received += plain_received;
    all.declined += declined;
    all.dropped.iter_mut().zip(dropped).for_each(|(all, one)| *all += one);
}

fn add_tenants(all: &mut TenantCounters, one: &TenantCounters) {
    let TenantCounters {
        frames_sent,
        frames_retransmitted,
        timeouts,
        frames_received,
        bytes_received,
        bytes_duplicate,
        late,
        frames_duplicate,
        damaged,
        frames_after_close,
    } = one;
    all.frames_sent += frames_sent;
    all.frames_retransmitted += frames_retransmitted;
    all.timeouts += timeouts;
    all.frames_received += frames_received;
    all.bytes_received += bytes_received;
    all.bytes_duplicate += bytes_duplicate;
    all.late += late;
    all.frames_duplicate += frames_duplicate;
    all.damaged += damaged;
    all.frames_after_close += frames_after_close;
}
