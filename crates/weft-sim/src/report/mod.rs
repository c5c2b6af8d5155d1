//! What a run found, as data: [`Report`] is JSON with keys in a fixed order, and tables.

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

/// What a run found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The run's seed.
    pub seed: u64,
    /// Whether every workload had all it waited for before the run's limit.
    pub finished: bool,
    /// How long the run lasted, microseconds of simulated time.
    pub simulated_us: f64,
    /// What the network counted.
    pub network: NetworkReport,
    /// What the engines counted, all hosts together.
    pub transport: TransportReport,
    /// What arrived.
    pub goodput: Goodput,
    /// Each workload, in the scenario's order.
    pub workloads: Vec<WorkloadReport>,
    /// Switch queues by kind of port.
    pub queues: BTreeMap<String, QueueReport>,
    /// Load of the leaves' ports.
    pub ports: PortReport,
    /// Pauses, where switches ask for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfc: Option<PfcReport>,
    /// The hosts' buses to memory, where they take time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<PcieReport>,
    /// Counters of tenants' frames, where hosts are an overlay's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<OverlayReport>,
    /// The route controller's counts and windows, where the scenario has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerReport>,
    /// Every finished flow, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowLine>,
}

/// What the network counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkReport {
    /// Events handled.
    pub events: u64,
    /// Packets serialised, summed over all links.
    pub packet_hops: u64,
    /// Packets hosts put in.
    pub injected: u64,
    /// Packets faulty links made.
    pub duplicated: u64,
    /// Control packets switches made for each other.
    pub switch_made: u64,
    /// Packets given to hosts.
    pub delivered: u64,
    /// Control packets that reached the switch they were for.
    pub switch_taken: u64,
    /// Packets on their way when the run ended.
    pub in_flight: u64,
    /// Packets damaged so that their receivers cannot tell.
    pub forged: u64,
    /// Packets marked for congestion.
    pub marked: u64,
    /// Packets lost, by reason.
    pub lost: BTreeMap<&'static str, u64>,
}

/// What the engines counted; see [`weft_transport::Stats`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransportReport {
    /// Data packets sent, with repeats.
    pub data_sent: u64,
    /// Data packets accepted.
    pub data_received: u64,
    /// ACKs sent.
    pub acks_sent: u64,
    /// ACKs received.
    pub acks_received: u64,
    /// Repeats because a later packet of the path was acknowledged.
    pub fast_retransmits: u64,
    /// Repeats because the timeout passed.
    pub timeout_retransmits: u64,
    /// Repeats after a shorter silence, to ask for an ACK.
    pub tail_loss_probes: u64,
    /// Repeats of packets that had arrived.
    pub spurious_retransmits: u64,
    /// Accepted packets that were marked.
    pub ecn_marks: u64,
    /// Marks that senders heard of.
    pub ecn_marks_heard: u64,
    /// NACKs that senders heard of.
    pub nacks_received: u64,
    /// Packets accepted before one with a lower number.
    pub out_of_order: u64,
    /// The same as a share of accepted packets.
    pub out_of_order_share: f64,
    /// Times a path went down.
    pub paths_down: u64,
    /// Times a path came back.
    pub paths_up: u64,
    /// Times a new packet took another path than the one before it.
    pub path_switches: u64,
    /// How long payload waited for a change of path, over the changes of path, microseconds.
    pub switch_stall_us: f64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Bytes of probes and their answers, as UDP carries them.
    pub probe_bytes: u64,
    /// Repeats as a share of all data packets.
    pub retransmit_share: f64,
    /// Probes as a share of all packets sent.
    pub probe_share: f64,
    /// Packets refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl From<&Stats> for TransportReport {
    fn from(stats: &Stats) -> Self {
        // By name, so that a new counter is not forgotten.
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
            ecn_marks_heard,
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

/// One workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadReport {
    /// Its name.
    pub kind: &'static str,
    /// Whether it had all it waited for.
    pub done: bool,
    /// Its flows.
    pub flows: FlowReport,
    /// Bus bandwidth of its collective operations that started after the warm-up, Gb/s.
    pub bus_gbps: Distribution,
    /// Each of those operations.
    pub iterations: Vec<Iteration>,
}

/// One finished flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowLine {
    /// Its workload's place in the scenario, from zero.
    pub workload: u32,
    /// Its number in the workload.
    pub tag: u64,
    /// Who sent it.
    pub source: u32,
    /// Who received it.
    pub destination: u32,
    /// Its bytes.
    pub bytes: u32,
    /// When it was submitted, microseconds.
    pub start_us: f64,
    /// When it was delivered.
    pub delivered_us: f64,
    /// When its sender knew.
    pub acknowledged_us: f64,
    /// What that took over the time the flow takes alone; at least 1.
    pub slowdown: f64,
}

impl Report {
    /// The report as JSON, indented, keys in a fixed order.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names are JSON")
    }
}
