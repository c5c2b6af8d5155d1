//! Fast-forward in the world: the skipped time, and when it grows.
//!
//! Events, queues and engines are in network time, which runs on without a gap. Workloads, faults, the limit of the run
//! and the report are in world time: network time plus the skipped time. So a skip moves the faults and the limit closer,
//! and nothing else of the world changes.

use super::global_events::Item;
use super::{Network, Session, World};
use crate::fast_forward::{Criterion, Cycle, FastForwardReport, Grain, Refusal, Skip, plan};
use crate::time::{SimSpan, SimTime};

/// The state of fast-forward.
#[derive(Debug, Default)]
pub(super) struct FastForward {
    /// The time since which the network and its routes are unchanged.
    unchanged_since: SimTime,
    /// `true` if nothing acts on the network or observes it but one workload.
    is_undisturbed: bool,
    /// `true` if a skip is to be considered at the next global event of that kind.
    pending: bool,
    report: FastForwardReport,
}

impl World {
    /// Skips periodic states from now on; `threshold` is the maximum difference between durations of units, as a share
    /// of their mean.
    pub fn fast_forward(&mut self, threshold: f64) {
        let report = FastForwardReport { threshold, ..FastForwardReport::default() };
        self.network.fast_forward =
            Some(Box::new(FastForward { report, ..FastForward::default() }));
    }

    /// Returns what was skipped, and why nothing was; `None` if the run is exact.
    pub fn fast_forward_report(&self) -> Option<FastForwardReport> {
        let mut report = self.network.fast_forward.as_ref()?.report.clone();
        for workload in &self.workloads {
            report.add_equal_parts(workload.equal_parts());
        }
        Some(report)
    }

    /// Notes before the start whether one workload has the network for itself.
    pub(super) fn note_disturbances(&mut self) {
        let network = &mut self.network;
        let is_observed =
            network.capture.is_some() || network.observer.is_some() || network.record.is_some();
        let is_disturbed = network.steering.is_some() || !self.plan.is_empty();
        if let Some(state) = &mut network.fast_forward {
            state.is_undisturbed = self.workloads.len() == 1 && !is_observed && !is_disturbed;
        }
    }

    /// Skips as much as the workloads offer now.
    pub(super) fn skip(&mut self) {
        let Some(mut state) = self.network.fast_forward.take() else { return };
        state.pending = false;
        match self.choose_skip(&state) {
            Ok((grain, skip, counts)) => {
                let bytes = self.execute_skip(grain, &skip, &counts);
                state.report.skipped_bytes += bytes;
                state.report.count_skip(grain, &skip);
            }
            Err(refusal) => state.report.count_refusal(refusal),
        }
        self.network.fast_forward = Some(state);
    }

    /// Returns the skip of the largest grain that is possible, with the number of cycles of each workload.
    fn choose_skip(&self, state: &FastForward) -> Result<(Grain, Skip, Vec<usize>), Refusal> {
        if self.network.steering.is_some() {
            return Err(Refusal::Controller);
        }
        if self.network.capture.is_some() {
            return Err(Refusal::Capture);
        }
        let next = self.network.global_events.next_fixed_at().unwrap_or(SimTime::FAR_FUTURE);
        let limit = next.since(self.network.now + self.network.max_skew);
        let criterion =
            Criterion { threshold: state.report.threshold, unchanged_since: state.unchanged_since };
        let mut refusal = Refusal::NoUnits;
        for grain in Grain::ALL {
            let planned = self.cycles(grain, &criterion).and_then(|(cycles, counts)| {
                plan(&cycles, limit).map(|skip| (grain, skip, counts))
            });
            match planned {
                Ok(planned) => return Ok(planned),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// Returns the cycles of all workloads, and how many each of them has. Also a workload that is done may send: as
    /// long as the others do.
    fn cycles(
        &self,
        grain: Grain,
        criterion: &Criterion,
    ) -> Result<(Vec<Option<Cycle>>, Vec<usize>), Refusal> {
        let (mut cycles, mut counts) = (Vec::new(), Vec::new());
        for workload in &self.workloads {
            let own = workload.cycles(grain, criterion)?;
            counts.push(own.len());
            cycles.extend(own);
        }
        Ok((cycles, counts))
    }

    /// Advances the workloads by a skip; returns the bytes they will not send.
    fn execute_skip(&mut self, grain: Grain, skip: &Skip, counts: &[usize]) -> u64 {
        let mut parts = skip.parts.as_slice();
        let mut bytes = 0;
        self.network.traffic.skipped += skip.span;
        for ((number, workload), count) in (0..).zip(&mut self.workloads).zip(counts) {
            let (own, others) = parts.split_at(*count);
            let session = &mut Session::new(&mut self.network, number);
            bytes += workload.skip(grain, own, skip.span, session);
            parts = others;
        }
        self.network.global_events.bring_forward(skip.span);
        self.limit =
            SimTime::from_picos(self.limit.as_picos().saturating_sub(skip.span.as_picos()));
        bytes
    }
}

impl Network {
    /// Returns the world time: the time of workloads and of the report.
    pub(super) fn world_now(&self) -> SimTime {
        self.now + self.traffic.skipped
    }

    /// Returns the network time of a world time; now, if it has passed.
    pub(super) fn network_time(&self, at: SimTime) -> SimTime {
        let since_start = at.since(SimTime::EPOCH + self.traffic.skipped);
        (SimTime::EPOCH + since_start).max(self.now)
    }

    /// Notes that the network or its routes change now.
    pub(super) fn note_change(&mut self) {
        let now = self.world_now();
        if let Some(state) = &mut self.fast_forward {
            state.unchanged_since = now;
        }
    }

    /// Returns `true` if the run may skip time.
    pub(crate) const fn may_skip(&self) -> bool {
        self.fast_forward.is_some()
    }

    /// Returns `true` if nothing acts on the network or observes it but one workload.
    pub(crate) fn has_one_undisturbed_workload(&self) -> bool {
        self.fast_forward.as_ref().is_some_and(|state| state.is_undisturbed)
    }

    /// Returns the least time after which a decision of one host reaches another.
    pub(crate) const fn max_skew(&self) -> SimSpan {
        self.max_skew
    }

    /// Considers a skip as soon as all nodes have reached the current time.
    pub(super) fn request_skip(&mut self) {
        let at = self.now + if self.current_host.is_some() { self.max_skew } else { SimSpan::ZERO };
        if let Some(state) = self.fast_forward.as_mut().filter(|state| !state.pending) {
            state.pending = true;
            self.global_events.add(at, Item::Skip);
        }
    }
}
