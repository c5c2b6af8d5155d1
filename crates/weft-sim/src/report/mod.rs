//! The results of a run as data: [`Report`] is JSON with keys in a fixed order, and tables.

mod comparison;
mod controller;
mod fast_forward;
mod overlay;
mod tables;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_transport::{DropReason, Stats};

pub use self::comparison::{Comparison, Errors};
pub use self::controller::{ControllerReport, ControllerWindow};
pub use self::overlay::OverlayReport;
use crate::fast_forward::FastForwardReport;
use crate::measure::{
    Distribution, FlowReport, Goodput, PfcReport, PortReport, QueueReport, ReorderingReport,
};
use crate::pcie::PcieReport;
use crate::workload::Iteration;

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The run's seed.
    pub seed: u64,
    /// `true` if every workload completed before the run's limit.
    pub finished: bool,
    /// The length of the run, microseconds of simulated time.
    pub simulated_us: f64,
    /// The counters of the network.
    pub network: NetworkReport,
    /// The counters of the transport, summed over all hosts.
    pub transport: TransportReport,
    /// The payload that arrived.
    pub goodput: Goodput,
    /// The results of each workload, in the scenario's order.
    pub workloads: Vec<WorkloadReport>,
    /// Switch queues by kind of port.
    pub queues: BTreeMap<String, QueueReport>,
    /// Load of the leaves' ports.
    pub ports: PortReport,
    /// The order of packets at their receivers, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordering: Option<ReorderingReport>,
    /// Pauses, where priority flow control is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfc: Option<PfcReport>,
    /// The hosts' buses to memory, where they are simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<PcieReport>,
    /// Counters of tenants' frames, where hosts run the overlay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<OverlayReport>,
    /// The route controller's counts and windows, where the scenario has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerReport>,
    /// The time that was skipped, if the run was not exact. The counters and loads of this report are then those of the
    /// rest of the time; times of iterations and flows include what was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_forward: Option<FastForwardReport>,
    /// The errors of fast-forward against the exact run, if the scenario requests that too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Every finished flow, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowLine>,
}

/// The counters of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkReport {
    /// Events handled.
    pub events: u64,
    /// Packets serialised, summed over all links.
    pub packet_hops: u64,
    /// Packets that hosts sent into the network.
    pub injected: u64,
    /// Packets that faulty links duplicated.
    pub duplicated: u64,
    /// Control packets that switches sent to each other.
    pub control_sent: u64,
    /// Packets delivered to hosts.
    pub delivered: u64,
    /// Control packets that reached their destination switch.
    pub control_received: u64,
    /// Packets in flight when the run ended.
    pub in_flight: u64,
    /// Packets corrupted so that their receivers cannot detect it.
    pub forged: u64,
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Packets that switches cut to their headers, where they trim.
    #[serde(skip_serializing_if = "is_zero")]
    pub trimmed: u64,
    /// Packets lost, by reason.
    pub lost: BTreeMap<&'static str, u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The counters of the transport, and shares of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransportReport {
    /// Each counter, under its key.
    #[serde(flatten)]
    pub counters: Stats,
    /// Packets accepted before one with a lower number, as a share of all accepted packets.
    pub out_of_order_share: f64,
    /// The time payload waited for a change of path, over the number of changes, microseconds.
    pub switch_stall_us: f64,
    /// Retransmissions of packets found lost, by fast retransmission or timeout, as a share of all data packets. Tail
    /// loss probes are left out, unlike in [`Stats::retransmissions`]: they request an ACK before a packet is found
    /// lost.
    pub retransmit_share: f64,
    /// Probes as a share of all packets sent.
    pub probe_share: f64,
    /// Packets refused, by reason: [`Stats::dropped`].
    pub refused: BTreeMap<&'static str, u64>,
}

impl From<&Stats> for TransportReport {
    fn from(stats: &Stats) -> Self {
        let lost = stats.fast_retransmits + stats.timeout_retransmits;
        let sent = stats.data_sent + stats.acks_sent + stats.probes_sent;
        let reasons = DropReason::ALL.iter();
        Self {
            counters: stats.clone(),
            out_of_order_share: share(stats.out_of_order, stats.data_received),
            switch_stall_us: share(stats.switch_stall_nanos, stats.path_switches) / 1e3,
            retransmit_share: share(lost, stats.data_sent),
            probe_share: share(stats.probes_sent, sent),
            refused: reasons.map(|&reason| (reason.name(), stats.dropped_for(reason))).collect(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The results of one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadReport {
    /// The workload's name.
    pub kind: &'static str,
    /// `true` if the workload completed.
    pub done: bool,
    /// The workload's flows.
    pub flows: FlowReport,
    /// Bus bandwidth of its collective operations that started after the warm-up, Gb/s.
    pub bus_gbps: Distribution,
    /// Each of those operations.
    pub iterations: Vec<Iteration>,
}

/// One finished flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowLine {
    /// The workload's index in the scenario, from zero.
    pub workload: u32,
    /// The flow's number in the workload.
    pub tag: u64,
    /// The host that sent it.
    pub source: u32,
    /// The host that received it.
    pub destination: u32,
    /// The flow's length, bytes.
    pub bytes: u32,
    /// The time of submission, microseconds.
    pub start_us: f64,
    /// The time of delivery, microseconds.
    pub delivered_us: f64,
    /// The time of acknowledgement at the sender, microseconds.
    pub acknowledged_us: f64,
    /// The completion time over the time the flow takes alone; at least 1.
    pub slowdown: f64,
}

impl Report {
    /// Returns the report as JSON, indented, keys in a fixed order.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_shares_of_the_transport_have_their_published_keys() {
        let mut stats =
            Stats { data_sent: 8, fast_retransmits: 1, timeout_retransmits: 1, ..Stats::default() };
        (stats.tail_loss_probes, stats.ecn_marks_reported) = (2, 5);
        let json = serde_json::to_value(TransportReport::from(&stats)).unwrap();
        assert_eq!((&json["data_sent"], &json["ecn_marks_reported"]), (&8.into(), &5.into()));
        assert_eq!(json["retransmit_share"], 0.25, "without tail loss probes");
        assert_eq!(json["refused"]["malformed"], 0);
        assert_eq!(json.get("dropped"), None);
    }
}
