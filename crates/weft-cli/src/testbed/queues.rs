//! Samples of the queues at a lab's routers, taken beside a run.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use weft_lab::LabError;
use weft_sim::measure::{QueueReport, QueueWatch};
use weft_sim::{SimSpan, SimTime};
use weft_topo::{LinkId, Topology};
use weft_udp::Clock;

use super::network::{ByPort, Network};

/// The minimum interval between two samples. A sample starts `tc` once for each leaf and takes the processor for
/// milliseconds, which the agents need too.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The queues of the leaves' ports during a run.
#[derive(Debug)]
pub(super) struct QueueSamples(QueueWatch);

impl QueueSamples {
    /// Takes a sample each `interval`, but not more often than [`MIN_INTERVAL`], until the other end of `stop` is dropped.
    ///
    /// # Errors
    /// Returns an error if the kernel's queues cannot be read.
    pub(super) fn take(
        network: &Network,
        topology: &Topology,
        interval: Duration,
        stop: &Receiver<()>,
    ) -> Result<Self, LabError> {
        let mut watch = QueueWatch::new(topology);
        let (clock, interval) = (Clock, interval.max(MIN_INTERVAL));
        let began = clock.now();
        while stop.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            let waiting = network.leaf_queues(topology)?;
            let now = SimTime::EPOCH + SimSpan::from(clock.now().since(began));
            watch.sample(|link| waiting.of(link), now);
        }
        Ok(Self(watch))
    }

    /// Returns the report of the leaves' ports, of which those that `carried` anything count.
    pub(super) fn report(
        &self,
        topology: &Topology,
        carried: &ByPort,
    ) -> BTreeMap<String, QueueReport> {
        let is_leaf = |link: LinkId| topology.tier(topology.link(link).from) == 1;
        self.0.report_samples(|link| is_leaf(link) && carried.of(link) > 0)
    }
}
