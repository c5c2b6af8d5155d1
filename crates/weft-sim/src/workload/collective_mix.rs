//! A mix of collectives, as from jobs that share a fabric: each group of hosts runs one collective after another, of
//! random kind and size, at random times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_plan::collective::Collective;
use weft_units::{ByteCount, Duration, Rng};

use super::poisson::exponential;
use super::rings::{Grouping, Part, Rings, steps};
use super::sizes::Sizes;
use super::{HostSet, Iteration, Setting, Workload, WorkloadBuilder, WorkloadError};
use crate::time::{SimSpan, SimTime};
use crate::traffic::Notice;
use crate::world::Session;

/// The settings of the `collective-mix` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The hosts that take part.
    pub hosts: HostSet,
    /// Ranks of each group; zero puts all hosts in one group.
    pub ranks: u32,
    /// The hosts that form a group.
    pub groups: Grouping,
    /// The relative frequency of each operation.
    pub mix: Mix,
    /// The bytes that one rank sends in one step: a published distribution, a distribution's file, or one size.
    pub sizes: String,
    /// The largest message, bytes; a step's bytes are cut into messages of this size. Zero never cuts.
    pub chunk: ByteCount,
    /// Mean of the exponentially distributed pause of a group between two collectives.
    pub pause: Duration,
    /// The start of the workload, from the start of the run.
    pub start: Duration,
    /// Time after `start` in which collectives begin; collectives that have begun are completed.
    pub duration: Duration,
}

/// The relative frequency of each operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Mix {
    /// The weight of all-reduce, as in data-parallel training.
    pub all_reduce: f64,
    /// The weight of all-gather, as in fully sharded training.
    pub all_gather: f64,
    /// The weight of reduce-scatter, as in fully sharded training.
    pub reduce_scatter: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self { all_reduce: 1.0, all_gather: 1.0, reduce_scatter: 1.0 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            ranks: 8,
            groups: Grouping::Strided,
            mix: Mix::default(),
            sizes: "ai-collectives".into(),
            chunk: ByteCount(1_000_000),
            pause: Duration::from_micros(100),
            start: Duration::ZERO,
            duration: Duration::from_millis(10),
        }
    }
}

impl Mix {
    fn weights(self) -> [(Collective, f64); 3] {
        [
            (Collective::AllReduce, self.all_reduce),
            (Collective::AllGather, self.all_gather),
            (Collective::ReduceScatter, self.reduce_scatter),
        ]
    }

    fn draw(self, rng: &mut Rng) -> Collective {
        self.at(rng.unit())
    }

    /// Returns the operation at a share of the sum of the weights, at least 0 and below 1.
    fn at(self, share: f64) -> Collective {
        let all: f64 = self.weights().iter().map(|(_, weight)| weight).sum();
        let mut left = share * all;
        let weights = || self.weights().into_iter().filter(|(_, weight)| *weight > 0.0);
        let drawn = weights().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        // Rounding can leave a small remainder: the draw is then the last operation that has a weight.
        let (operation, _) =
            drawn.or_else(|| weights().next_back()).expect("checked: not all are 0");
        operation
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        self.check()?;
        let hosts = self.hosts.resolve(setting.topology.hosts(), 2)?;
        let sizes = Sizes::find(&self.sizes, setting.folder)?;
        Part::new(u64::from(sizes.at(1.0)), self.chunk)?;
        let rings = Rings::new(self.groups.divide(&hosts, self.ranks)?)?;
        let groups = (0..).take(rings.len());
        let jobs = groups.map(|group| Job {
            rng: setting.seed.child("group", group).rng(),
            began: SimTime::EPOCH,
            bits: 0.0,
            is_over: false,
        });
        let (config, jobs) = (self.clone(), jobs.collect());
        Ok(Box::new(CollectiveMix {
            config,
            sizes,
            rings,
            jobs,
            finished: Vec::new(),
            acknowledged: 0,
            broken: false,
        }))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let weights = self.mix.weights().map(|(_, weight)| weight);
        let fits = weights.iter().all(|weight| *weight >= 0.0 && weight.is_finite());
        if fits && weights.iter().sum::<f64>() > 0.0 {
            return Ok(());
        }
        let (key, got) = ("mix", format!("{weights:?}"));
        let expected = "weights of at least 0, not all of them 0";
        Err(WorkloadError::OutOfRange { key, got, expected })
    }
}

/// The workload: the groups' rings and jobs.
#[derive(Debug)]
struct CollectiveMix {
    config: Config,
    sizes: Sizes,
    rings: Rings,
    jobs: Vec<Job>,
    finished: Vec<Iteration>,
    /// Number of messages that have been acknowledged.
    acknowledged: u64,
    /// `true` if a channel closed: messages on it will never arrive.
    broken: bool,
}

/// The collectives of one group.
#[derive(Debug)]
struct Job {
    rng: Rng,
    /// The start of the current collective.
    began: SimTime,
    /// The bits each rank sends in the current collective.
    bits: f64,
    /// `true` if no other collective will begin.
    is_over: bool,
}

impl CollectiveMix {
    /// Begins a collective of random kind and size.
    fn begin(&mut self, group: usize, session: &mut Session<'_>) {
        let job = &mut self.jobs[group];
        let operation = self.config.mix.draw(&mut job.rng);
        let bytes = u64::from(self.sizes.draw(&mut job.rng));
        let part = Part::new(bytes, self.config.chunk).expect("the largest size fits");
        job.began = session.now();
        job.bits = bits(steps(operation, self.rings.ranks(group)), part);
        self.rings.begin(group, operation, part, session);
    }

    /// Schedules a group's next collective one pause after `from`, unless that is past the workload's duration.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a positive time of at most days"
    )]
    fn pause(&mut self, group: usize, from: SimTime, session: &mut Session<'_>) {
        let pause = self.config.pause.as_nanos() as f64 * 1e3;
        let pause = exponential(&mut self.jobs[group].rng, pause);
        let at = from + SimSpan::from_picos(pause as u64);
        let last = self.started_at() + SimSpan::from(self.config.duration);
        if at > last {
            self.jobs[group].is_over = true;
        } else {
            session.wake_at(self.rings.leader(group), at, group as u64);
        }
    }

    /// Returns the start of the workload.
    fn started_at(&self) -> SimTime {
        SimTime::EPOCH + SimSpan::from(self.config.start)
    }

    /// Records a group's completed collective and schedules the next one.
    fn finish(&mut self, group: usize, session: &mut Session<'_>) {
        let Job { began, bits, .. } = self.jobs[group];
        let duration = session.now().since(began);
        self.finished.push(Iteration {
            start_us: began.since(SimTime::EPOCH).as_micros_f64(),
            time_us: duration.as_micros_f64(),
            bus_gbps: bits / duration.as_secs_f64() / 1e9,
            shares: None,
        });
        self.pause(group, session.now(), session);
    }
}

/// Returns the bits each rank sends.
#[expect(clippy::cast_precision_loss, reason = "sizes of a report")]
fn bits(steps: u64, part: Part) -> f64 {
    (steps * part.bytes() * 8) as f64
}

impl Workload for CollectiveMix {
    fn start(&mut self, session: &mut Session<'_>) {
        self.rings.open(session);
        for group in 0..self.jobs.len() {
            self.pause(group, self.started_at(), session);
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { token } => {
                self.begin(usize::try_from(*token).expect("a group of ours"), session);
            }
            Notice::Delivered { request } => {
                if let Some(group) = self.rings.received(request.tag, session) {
                    self.finish(group, session);
                }
            }
            // A group that lost a channel will never complete its current collective.
            Notice::Closed { channel, .. } => {
                self.broken = true;
                if let Some(group) = self.rings.of_channel(*channel) {
                    self.jobs[group].is_over = true;
                }
            }
            Notice::Acknowledged { .. } => self.acknowledged += 1,
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        let is_over = self.jobs.iter().all(|job| job.is_over);
        is_over && (self.broken || self.acknowledged == self.rings.sent())
    }

    fn iterations(&self) -> &[Iteration] {
        &self.finished
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn operations_are_drawn_as_often_as_they_weigh() {
        let mix = Mix { all_reduce: 3.0, all_gather: 0.0, reduce_scatter: 1.0 };
        let mut rng = Seed(1).rng();
        let drawn: Vec<Collective> = (0..10_000).map(|_| mix.draw(&mut rng)).collect();
        let count = |wanted| drawn.iter().filter(|&&operation| operation == wanted).count();
        assert!(count(Collective::AllReduce).abs_diff(7_500) < 150);
        assert_eq!(count(Collective::AllGather), 0);
    }

    #[test]
    fn an_operation_of_weight_zero_is_never_drawn() {
        // 0.9999999999999999 − 0.3 is rounded up to 0.7.
        let mix = Mix { all_reduce: 0.3, all_gather: 0.7, reduce_scatter: 0.0 };
        assert_eq!(mix.at(1.0 - f64::EPSILON / 2.0), Collective::AllGather);
    }

    #[test]
    fn each_group_does_one_collective_after_another_and_finishes_the_last() {
        let text = r#"
            topology = { kind = "leaf-spine", leaves = 2, spines = 4, hosts_per_leaf = 4 }
            [[workload]]
            kind = "collective-mix"
            ranks = 4
            sizes = "250KB"
            pause = "20us"
            duration = "1ms"
            mix = { all-reduce = 0, reduce-scatter = 0 }
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let report = crate::run(&scenario, Seed(1)).unwrap();
        let workload = &report.workloads[0];
        assert!(report.finished && workload.done);
        // All-gathers of 3 steps take 61 us, pauses 20 us, in two groups, for a millisecond.
        let count = workload.iterations.len();
        assert!((16..30).contains(&count), "{count}");
        assert_eq!(workload.flows.finished, count as u64 * 4 * 3);
        let in_time = |done: &Iteration| done.start_us <= 1000.0 && done.time_us > 61.0;
        assert!(workload.iterations.iter().all(in_time), "{:?}", workload.iterations);
    }

    #[test]
    fn a_mix_of_nothing_is_refused_with_its_line() {
        let text = "topology = { kind = \"leaf-spine\" }\n[[workload]]\nkind = \"collective-mix\"\n\
                    mix = { all-reduce = 0, all-gather = 0, reduce-scatter = 0 }\n";
        let error = Scenario::parse(text, Path::new("")).unwrap_err().to_string();
        assert!(error.starts_with("line 4: workload 1 (collective-mix): mix is "), "{error}");
    }
}
