//! The results of a run as data: [`Report`] is JSON with keys in a fixed order, and tables.

mod controller;
mod overlay;
mod tables;

use std::collections::BTreeMap;

use serde::Serialize;
use weft_transport::{DropReason, Stats};

pub use self::controller::{ControllerReport, ControllerWindow};
pub use self::overlay::OverlayReport;
use crate::measure::{Distribution, FlowReport, Goodput, PfcReport, PortReport, QueueReport};
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
    pub switch_made: u64,
    /// Packets delivered to hosts.
    pub delivered: u64,
    /// Control packets that reached their destination switch.
    pub switch_taken: u64,
    /// Packets in flight when the run ended.
    pub in_flight: u64,
    /// Packets corrupted so that their receivers cannot detect it.
    pub forged: u64,
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Packets lost, by reason.
    pub lost: BTreeMap<&'static str, u64>,
}

/// The counters of the transport; see [`weft_transport::Stats`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransportReport {
    /// Data packets sent, including retransmissions.
    pub data_sent: u64,
    /// Data packets accepted.
    pub data_received: u64,
    /// ACKs sent.
    pub acks_sent: u64,
    /// ACKs received.
    pub acks_received: u64,
    /// Retransmissions because a later packet of the path was acknowledged.
    pub fast_retransmits: u64,
    /// Retransmissions because the retransmission timeout expired.
    pub timeout_retransmits: u64,
    /// Retransmissions after a shorter silence, to elicit an ACK.
    pub tail_loss_probes: u64,
    /// Retransmissions of packets that had arrived.
    pub spurious_retransmits: u64,
    /// Accepted packets with a congestion mark.
    pub ecn_marks: u64,
    /// Congestion marks reported to senders.
    pub ecn_marks_heard: u64,
    /// NACKs that senders received.
    pub nacks_received: u64,
    /// Packets accepted before one with a lower number.
    pub out_of_order: u64,
    /// The share of those packets in all accepted packets.
    pub out_of_order_share: f64,
    /// Times a path went down.
    pub paths_down: u64,
    /// Times a path came back.
    pub paths_up: u64,
    /// Times a new packet took another path than the one before it.
    pub path_switches: u64,
    /// The time payload waited for a change of path, over the number of changes, microseconds.
    pub switch_stall_us: f64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Bytes of probes and their replies, as UDP payload.
    pub probe_bytes: u64,
    /// Retransmissions as a share of all data packets.
    pub retransmit_share: f64,
    /// Probes as a share of all packets sent.
    pub probe_share: f64,
    /// Packets refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl From<&Stats> for TransportReport {
    fn from(stats: &Stats) -> Self {
        // The fields are named, so that a new counter is not forgotten.
        let &Stats {
            data_sent,
            data_received,
            acks_sent,
            acks_received,
            fast_retransmits,
            timeout_retransmits,
            tail_loss_probes,
            spurious_retransmits,
            ecn_marks,
            ecn_marks_reported: ecn_marks_heard,
            nacks_received,
            declined: _,
            shed: _,
            out_of_order,
            paths_down,
            paths_lossy: _,
            paths_up,
            path_switches,
            switch_stall_nanos,
            probes_sent,
            probe_bytes,
            dropped: _,
        } = stats;
        let refused =
            DropReason::ALL.iter().map(|&reason| (reason.name(), stats.dropped_for(reason)));
        Self {
            data_sent,
            data_received,
            acks_sent,
            acks_received,
            fast_retransmits,
            timeout_retransmits,
            tail_loss_probes,
            spurious_retransmits,
            ecn_marks,
            ecn_marks_heard,
            nacks_received,
            out_of_order,
            out_of_order_share: share(out_of_order, data_received),
            paths_down,
            paths_up,
            path_switches,
            switch_stall_us: share(switch_stall_nanos, path_switches) / 1e3,
            probes_sent,
            probe_bytes,
            retransmit_share: share(fast_retransmits + timeout_retransmits, data_sent),
            probe_share: share(probes_sent, data_sent + acks_sent + probes_sent),
            refused: refused.collect(),
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
