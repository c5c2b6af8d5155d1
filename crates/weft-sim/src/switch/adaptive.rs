//! Adaptive routing as switch chips do it: queues are graded, and each packet takes a random link of
//! the best grade.
//!
//! A chip compares a few bits of each port, not bytes: Broadcom's dynamic load balancing and NVIDIA's
//! adaptive routing quantise load. Ports that differ by less than a grade are alike, and chance
//! keeps the inputs of a switch from all taking the same one. `least-queued` is the limit of fine
//! grades without chance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::{ByteCount, Rng, Seed};

use super::{Decision, Forward, ForwardingConfig, ParameterError, ecmp};

/// The grades of queue length that ports are compared by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes of queue that one grade spans.
    pub grade: ByteCount,
    /// Number of grades; the last one has no upper limit.
    pub grades: u8,
}

impl Default for Config {
    /// Returns eight grades (three bits), the last one from 70 KB on: below the depth at which ECN begins to mark.
    fn default() -> Self {
        Self { grade: ByteCount(10_000), grades: 8 }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        super::at_least_one("grade", self.grade.0)?;
        super::at_least_one("grades", self.grades.into())
    }

    /// Returns the grade of a queue of this many bytes.
    fn of(&self, queued: u64) -> u64 {
        (queued / self.grade.0).min(u64::from(self.grades) - 1)
    }
}

/// Graded adaptive routing: the grades, and a random choice among equal ones.
#[derive(Debug)]
pub struct Forwarding {
    config: Config,
    control: ecmp::Forwarding,
    rng: Rng,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        Self {
            config: config.adaptive.clone(),
            control: ecmp::Forwarding::new(config, topology, seed),
            rng: seed.child("equal grades", 0).rng(),
        }
    }
}

impl Forward for Forwarding {
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        if decision.is_control() {
            return self.control.choose(decision);
        }
        let grade = |link| self.config.of(decision.queued(link));
        super::least(decision.candidates, grade, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::bench::{Bench, micros};

    #[test]
    fn links_of_the_best_grade_share_alike_and_no_other_is_used() {
        let mut bench = Bench::new(Kind::Adaptive);
        let links = bench.candidates(0, 16);
        for (&link, bytes) in
            links.iter().zip([19_999, 10_000, 20_000, 50_000, 80_000, 20_001, 15_000, 99_000])
        {
            bench.queue(link, bytes);
        }
        let mut used = [0; 8];
        for port in 0..3000 {
            used[bench.uplink(micros(0), 0, 16, port)] += 1;
        }
        let best = [used[0], used[1], used[6]];
        assert_eq!(best.iter().sum::<u32>(), 3000, "{used:?}");
        assert!(best.iter().all(|count| (900..1100).contains(count)), "{used:?}");
    }

    #[test]
    fn queues_of_the_last_grade_are_alike() {
        let mut bench = Bench::new(Kind::Adaptive);
        for (index, &link) in bench.candidates(0, 16).iter().enumerate() {
            bench.queue(link, 70_000 + 50_000 * i64::try_from(index).unwrap());
        }
        let mut used = [false; 8];
        (0..200).for_each(|port| used[bench.uplink(micros(0), 0, 16, port)] = true);
        assert_eq!(used, [true; 8]);
    }
}
