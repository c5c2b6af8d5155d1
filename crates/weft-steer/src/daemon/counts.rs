//! Counters of routers with a gNMI server, which the daemon reads itself: sFlow brings those of other routers.

use weft_units::Instant;

use super::Daemon;
use super::worker::Job;
use crate::gnmi::PortCounters;
use crate::{Method, SteerError};

/// Number of reads in a window of alarms.
const READS_IN_A_WINDOW: u64 = 4;

impl Daemon {
    /// Orders the counters of all gNMI servers if they are due. One that has not answered yet is not asked again.
    pub(super) fn order_counts(&mut self, now: Instant) {
        if now < self.next_count {
            return;
        }
        self.next_count = now + self.config.controller.alarm.window / READS_IN_A_WINDOW;
        let has_gnmi = |apply: &Method| matches!(apply, Method::Gnmi(_));
        for router in self.inventory.routers.iter().filter(|router| has_gnmi(&router.apply)) {
            let Some(worker) = self.workers.get(&router.name) else { continue };
            if self.counting.insert(router.name.clone()) {
                worker.order(Job::Count);
            }
        }
    }

    /// Reports the counters of a gNMI server to the engine.
    pub(super) fn on_counted(
        &mut self,
        router: &str,
        result: Result<Vec<PortCounters>, SteerError>,
        now: Instant,
    ) {
        self.counting.remove(router);
        match result {
            Ok(counters) => {
                let (mut received, fabric) = (vec![], self.controller.fabric());
                self.collector.ingest_counters(router, &counters, now, fabric, &mut received);
                self.pass_on(&mut received);
            }
            // The reads of its tables fail too, and that is an event.
            Err(error) => tracing::debug!(%error, "no counters"),
        }
    }
}
