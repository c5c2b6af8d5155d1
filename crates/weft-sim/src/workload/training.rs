//! Rounds of training: all hosts compute, then run collectives one after another, then wait at a barrier.
//!
//! This is the traffic of a synchronous training job as in Hopper's testbed (section 4.2): no host begins a round
//! before all have finished the previous one. A collective begins when the previous one is complete at all hosts. The
//! default is an all-reduce of 64 MB over all hosts, a bucket of gradients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_plan::collective;
use weft_units::{ByteCount, Duration};

use super::rings::{self, Grouping, Part, Rings};
use super::{HostSet, Iteration, Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one};
use crate::time::{SimSpan, SimTime};
use crate::traffic::Notice;
use crate::world::Session;

/// The settings of the `training` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The ranks.
    pub hosts: HostSet,
    /// Number of rounds.
    pub rounds: u32,
    /// The time that all hosts compute before the collectives of each round.
    pub compute: Duration,
    /// The start of the first round, from the start of the run.
    pub start: Duration,
    /// The collectives of each round, in order.
    #[serde(rename = "collective")]
    pub collectives: Vec<Collective>,
}

/// One collective of each round, among all groups at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Collective {
    /// The operation.
    #[serde(with = "rings::named")]
    #[schemars(schema_with = "rings::named::schema")]
    pub operation: collective::Collective,
    /// The bytes that are reduced or gathered, summed over all ranks' parts.
    pub size: ByteCount,
    /// Ranks of each group; zero puts all hosts in one group.
    pub ranks: u32,
    /// The hosts that form a group.
    pub groups: Grouping,
    /// The largest message, bytes; a step's bytes are cut into messages of this size. Zero never cuts.
    pub chunk: ByteCount,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            rounds: 4,
            compute: Duration::from_micros(100),
            start: Duration::ZERO,
            collectives: vec![Collective::default()],
        }
    }
}

impl Default for Collective {
    fn default() -> Self {
        Self {
            operation: collective::Collective::AllReduce,
            size: ByteCount(64_000_000),
            ranks: 0,
            groups: Grouping::Strided,
            chunk: ByteCount(1_000_000),
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = self.hosts.resolve(setting.topology.hosts(), 2)?;
        let phase = |collective: &Collective| {
            let groups = collective.groups.divide(&hosts, collective.ranks)?;
            let part = collective.size.0.div_ceil(groups[0].len() as u64);
            let part = Part::new(part, collective.chunk)?;
            let operation = collective.operation;
            Ok(Phase { operation, part, rings: Rings::new(groups)?, busy: 0 })
        };
        let phases = self.collectives.iter().map(phase).collect::<Result<_, WorkloadError>>()?;
        let config = self.clone();
        Ok(Box::new(Training { config, phases, ..Training::default() }))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        at_least_one("rounds", self.rounds)?;
        let (key, got, expected) = ("collective", "empty".into(), "at least one");
        let some = !self.collectives.is_empty();
        if some { Ok(()) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
    }
}

/// The workload: the collectives of a round, and the round in progress.
#[derive(Debug, Default)]
struct Training {
    config: Config,
    phases: Vec<Phase>,
    /// The current phase of the round.
    phase: usize,
    /// The start of this round's collectives.
    began: SimTime,
    /// The latest delivery: hosts are simulated one after another, so the last one processed may not be the latest.
    latest: SimTime,
    finished: Vec<Iteration>,
    /// Number of messages that have been acknowledged.
    acknowledged: u64,
    /// `true` if a channel closed: this round will never finish.
    broken: bool,
}

/// A collective, with the groups that take part.
#[derive(Debug)]
struct Phase {
    operation: collective::Collective,
    part: Part,
    rings: Rings,
    /// Number of groups that have not finished it.
    busy: usize,
}

impl Phase {
    /// Begins the collective in every group.
    fn begin(&mut self, session: &mut Session<'_>) {
        self.busy = self.rings.len();
        for ring in 0..self.rings.len() {
            self.rings.begin(ring, self.operation, self.part, session);
        }
    }

    /// Returns the bits each rank sends.
    #[expect(clippy::cast_precision_loss, reason = "sizes of a report")]
    fn bits(&self) -> f64 {
        (rings::steps(self.operation, self.rings.ranks(0)) * self.part.bytes() * 8) as f64
    }
}

impl Training {
    /// Handles a delivered chunk: begins the next collective, or ends the round, if it was the last chunk.
    fn received(&mut self, tag: u64, session: &mut Session<'_>) {
        self.latest = self.latest.max(session.now());
        let phase = &mut self.phases[self.phase];
        if phase.rings.received(tag, session).is_none() {
            return;
        }
        phase.busy -= 1;
        if phase.busy > 0 {
            return;
        }
        self.phase += 1;
        match self.phases.get_mut(self.phase) {
            Some(next) => next.begin(session),
            None => self.finish(session),
        }
    }

    /// Ends a round at the barrier.
    fn finish(&mut self, session: &mut Session<'_>) {
        let duration = self.latest.since(self.began);
        let bits: f64 = self.phases.iter().map(Phase::bits).sum();
        self.finished.push(Iteration {
            start_us: self.began.since(SimTime::EPOCH).as_micros_f64(),
            time_us: duration.as_micros_f64(),
            bus_gbps: bits / duration.as_secs_f64() / 1e9,
            shares: None,
        });
        if !self.has_all_rounds() {
            session.wake(self.latest + SimSpan::from(self.config.compute), 0);
        }
    }

    fn has_all_rounds(&self) -> bool {
        self.finished.len() >= self.config.rounds as usize
    }
}

impl Workload for Training {
    fn start(&mut self, session: &mut Session<'_>) {
        self.phases.iter_mut().for_each(|phase| phase.rings.open(session));
        let start = SimSpan::from(self.config.start) + SimSpan::from(self.config.compute);
        session.wake(SimTime::EPOCH + start, 0);
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => {
                (self.began, self.phase) = (session.now(), 0);
                self.phases[0].begin(session);
            }
            Notice::Delivered { request } => self.received(request.tag, session),
            Notice::Closed { .. } => self.broken = true,
            Notice::Acknowledged { .. } => self.acknowledged += 1,
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        let sent = || self.phases.iter().map(|phase| phase.rings.sent()).sum::<u64>();
        self.broken || self.has_all_rounds() && self.acknowledged == sent()
    }

    fn iterations(&self) -> &[Iteration] {
        &self.finished
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use crate::report::Report;
    use crate::scenario::Scenario;

    fn run(training: &str) -> Result<Report, String> {
        let text = format!(
            "topology = {{ kind = \"leaf-spine\", leaves = 2, spines = 4, hosts_per_leaf = 4 }}\n\
             [[workload]]\nkind = \"training\"\n{training}"
        );
        let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
        crate::run(&scenario, Seed(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn rounds_follow_each_other_after_a_barrier_and_a_pause() {
        let report =
            run("rounds = 3\ncompute = \"50us\"\ncollective = [{ size = \"8MB\" }]").unwrap();
        let rounds = &report.workloads[0].iterations;
        assert!(report.finished && rounds.len() == 3, "{rounds:?}");
        assert_eq!(rounds[0].start_us, 50.0);
        for pair in rounds.windows(2) {
            let pause = pair[1].start_us - pair[0].start_us - pair[0].time_us;
            assert!((pause - 50.0).abs() < 1e-6, "{pause}");
        }
        // 14 steps of 1 MB at 100 Gb/s, 98.1 of it payload: 1,142 us and the latency of the steps.
        assert!((1_142.0..1_300.0).contains(&rounds[0].time_us), "{}", rounds[0].time_us);
        assert!((86.0..98.1).contains(&rounds[0].bus_gbps), "{}", rounds[0].bus_gbps);
        // 8 ranks, 14 steps, one chunk of 1 MB.
        assert_eq!(report.workloads[0].flows.finished, 3 * 8 * 14);
    }

    #[test]
    fn collectives_of_a_round_come_one_after_another_among_their_groups() {
        let both = "{ operation = \"reduce-scatter\", size = \"4MB\", ranks = 4, groups = \"neighbours\" }, \
                    { operation = \"all-gather\", size = \"4MB\", ranks = 2 }";
        let report = run(&format!("rounds = 1\ncollective = [{both}]")).unwrap();
        // 3 steps of 1 MB, then 1 of 2 MB in two chunks: 408 us at 98.1 Gb/s.
        let round = report.workloads[0].iterations[0];
        assert!((408.0..470.0).contains(&round.time_us), "{}", round.time_us);
        assert_eq!(report.workloads[0].flows.finished, 8 * 3 + 8 * 2);
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (training, want) in [
            ("rounds = 0", "line 4: workload 1 (training): rounds is 0, expected at least 1"),
            ("collective = []", "line 4: workload 1 (training): collective is empty"),
            ("collective = [{ ranks = 3 }]", "workload 1 (training): ranks is 3 with 8 hosts"),
            ("collective = [{ size = \"0B\" }]", "workload 1 (training): size is 0 bytes"),
        ] {
            let error = run(training).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
