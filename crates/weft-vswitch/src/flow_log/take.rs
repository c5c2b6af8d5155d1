//! The records of the threads, for the collector.

use weft_udp::random;
use weft_vpc::{FlowLogConfig, PortFlow};

use super::exporter::{FlowExporter, FlowLogStatus};
use super::settings::FlowLogSettings;
use crate::{Daemon, OpenError};

/// Largest number of records taken from a thread at a time: some 400 KB of messages.
const MAX_RECORDS: usize = 8192;

impl Daemon {
    /// Begins, changes or ends the flow logs as `settings` say, with the socket that was opened for them.
    ///
    /// # Errors
    /// The system has no random numbers, or a thread has stopped.
    pub(crate) fn set_flow_log(
        &mut self,
        settings: Option<FlowLogSettings>,
        exporter: Option<FlowExporter>,
    ) -> Result<(), OpenError> {
        let secret = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
        let config = settings.as_ref().map(|it| FlowLogConfig {
            interval: it.interval,
            max_flows: it.max_flows,
            secret,
        });
        self.pool.run_on_all(move |worker| worker.switch.set_flow_log(config))?;
        self.flow_exporter = exporter;
        self.config.flow_log = settings;
        Ok(())
    }

    /// Sends the records of intervals that have ended.
    ///
    /// # Errors
    /// A thread has stopped.
    pub(crate) fn export_flows(&mut self) -> Result<(), OpenError> {
        let Some(exporter) = &mut self.flow_exporter else { return Ok(()) };
        let now = self.clock.now();
        let taken = self.pool.run_on_all(move |worker| {
            let flows = worker.switch.take_flows(now, MAX_RECORDS);
            (flows, worker.switch.unrecorded_frames())
        })?;
        exporter.status.unrecorded = taken.iter().map(|(_, frames)| frames).sum();
        let flows: Vec<PortFlow> = taken.into_iter().flat_map(|(flows, _)| flows).collect();
        exporter.names.extend(self.ports.iter().map(|(&id, (_, it))| (id, it.name.clone())));
        exporter.send(&flows, now, self.clock.wall_clock_lead());
        // A port that is gone has its last records taken first.
        if flows.len() < MAX_RECORDS {
            exporter.names.retain(|id, _| self.ports.contains_key(id));
        }
        Ok(())
    }

    /// Ends the present interval and sends its records: the daemon ends.
    ///
    /// # Errors
    /// A thread has stopped.
    pub(crate) fn export_last_flows(&mut self) -> Result<(), OpenError> {
        if self.flow_exporter.is_some() {
            self.pool.run_on_all(|worker| worker.switch.end_flows())?;
            self.export_flows()?;
        }
        Ok(())
    }

    /// Returns the state of the export, if there is one.
    pub(crate) fn flow_log_status(&self) -> Option<FlowLogStatus> {
        self.flow_exporter.as_ref().map(|it| it.status.clone())
    }
}
