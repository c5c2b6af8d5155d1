//! The flow logs of ports: whom a tenant reached, and who was denied.

use alloc::vec::Vec;

use weft_units::Instant;
use weft_wire::VirtioNetHeader;

use super::inspect::count_segments;
use super::{DropCause, Port, PortId, Switch, Vni};
use crate::flow_log::FlowLog;
use crate::{Action, Direction, FlowLogConfig, FlowRecord, Frame};

/// A record of a port's flow log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFlow {
    /// The port.
    pub port: PortId,
    /// Its network.
    pub vni: Vni,
    /// The flow and its sums.
    pub record: FlowRecord,
}

/// The flow logs of a switch.
#[derive(Debug, Default)]
pub(super) struct FlowLogs {
    config: Option<FlowLogConfig>,
    /// Records of ports that are gone.
    left: Vec<PortFlow>,
    /// Number of frames that ports which are gone did not record.
    unrecorded: u64,
}

impl FlowLogs {
    /// Returns the log of a new port.
    pub(super) fn open(&self) -> Option<FlowLog> {
        self.config.map(FlowLog::new)
    }

    /// Keeps the records of a port that is removed.
    pub(super) fn keep(&mut self, port: PortId, mut removed: Port) {
        let (vni, Some(log)) = (removed.config.vni, &mut removed.flows) else { return };
        log.end();
        self.left.extend(log.take(usize::MAX).map(|record| PortFlow { port, vni, record }));
        self.unrecorded += log.unrecorded();
    }
}

impl Port {
    /// Records a frame with the decision on it, if the port has a log. The decision is one of access lists and security
    /// groups: what else drops a frame is counted by the port.
    #[inline]
    pub(super) fn log_flow(
        &mut self,
        direction: Direction,
        virtio: &VirtioNetHeader,
        frame: &Frame,
        decision: Result<(), DropCause>,
        now: Instant,
    ) {
        if let Some(log) = &mut self.flows {
            let action = if decision.is_ok() { Action::Allow } else { Action::Deny };
            let frames = count_segments(virtio, frame).unwrap_or(1);
            log.record(direction, frame, frames, action, now);
        }
    }
}

impl Switch {
    /// Sets the flow logs of all ports, with [`FlowLogConfig::max_flows`] for each; `None` ends them and forgets their
    /// records.
    pub fn set_flow_log(&mut self, config: Option<FlowLogConfig>) {
        self.flow_logs.config = config;
        for port in self.ports.values_mut() {
            match (&mut port.flows, config) {
                (Some(log), Some(config)) => log.set_config(config),
                (log, _) => *log = self.flow_logs.open(),
            }
        }
    }

    /// Returns up to `limit` records of intervals that have ended, and forgets them.
    pub fn take_flows(&mut self, now: Instant, limit: usize) -> Vec<PortFlow> {
        let left = &mut self.flow_logs.left;
        let mut taken: Vec<_> = left.drain(left.len().saturating_sub(limit)..).collect();
        for (&id, port) in &mut self.ports {
            let Some(log) = &mut port.flows else { continue };
            log.end_if_due(now);
            let vni = port.config.vni;
            let records = log.take(limit - taken.len());
            taken.extend(records.map(|record| PortFlow { port: id, vni, record }));
        }
        taken
    }

    /// Ends the present interval of all ports, however short it was.
    pub fn end_flows(&mut self) {
        self.ports.values_mut().filter_map(|port| port.flows.as_mut()).for_each(FlowLog::end);
    }

    /// Returns the number of frames that no record contains, because their port had too many flows.
    pub fn unrecorded_frames(&self) -> u64 {
        let logs = self.ports.values().filter_map(|port| port.flows.as_ref());
        self.flow_logs.unrecorded + logs.map(FlowLog::unrecorded).sum::<u64>()
    }
}
