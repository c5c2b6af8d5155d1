//! Rounds of flows between chosen pairs, with a barrier after each: the traffic of Hopper's testbed (section 4.2),
//! where each client sends to its server and a round begins when all flows of the previous one have finished.
//!
//! Every flow has a connection of its own, which begins on a path of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{ByteCount, Duration};

use super::{
    Iteration, Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one, checked_pair,
    message_size,
};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::world::Session;

/// The settings of the `rounds` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The source and destination of each pair.
    pub pairs: Vec<[u32; 2]>,
    /// Number of rounds.
    pub rounds: u32,
    /// Bytes of each pair's flows in each round; all start at once.
    pub sizes: Vec<ByteCount>,
    /// The time that all hosts compute before each round.
    pub compute: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pairs: vec![[0, 1]],
            rounds: 4,
            sizes: vec![ByteCount(2_000_000)],
            compute: Duration::from_micros(100),
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = setting.topology.hosts();
        let pairs = self.pairs.iter().map(|&pair| checked_pair(pair, hosts));
        let pairs = pairs.collect::<Result<_, WorkloadError>>()?;
        let sizes = self.sizes.iter().map(|&size| message_size("sizes", size));
        let sizes = sizes.collect::<Result<_, WorkloadError>>()?;
        Ok(Box::new(Rounds { config: self.clone(), pairs, sizes, ..Rounds::default() }))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        at_least_one("rounds", self.rounds)?;
        for (key, empty) in [("pairs", self.pairs.is_empty()), ("sizes", self.sizes.is_empty())] {
            if empty {
                let (got, expected) = ("empty".into(), "at least one");
                return Err(WorkloadError::OutOfRange { key, got, expected });
            }
        }
        Ok(())
    }
}

/// The workload: the pairs, and the round in progress.
#[derive(Debug, Default)]
struct Rounds {
    config: Config,
    pairs: Vec<(NodeId, NodeId)>,
    sizes: Vec<u32>,
    began: SimTime,
    /// The latest end of a flow: hosts are simulated one after another, so the last one processed may not be the
    /// latest.
    latest: SimTime,
    /// The channels of this round's unfinished flows.
    in_flight: Vec<ChannelId>,
    finished: Vec<Iteration>,
    /// `true` if a channel closed before its flow was complete: this round will never finish.
    broken: bool,
}

impl Rounds {
    /// Begins a round: sends every flow on a new channel.
    fn begin(&mut self, session: &mut Session<'_>) {
        self.began = session.now();
        for &(source, destination) in &self.pairs {
            for &length in &self.sizes {
                let channel = session.open(source, destination);
                let tag = self.finished.len() as u64;
                session.send(SendRequest {
                    channel,
                    from: Side::Opener,
                    length,
                    tag,
                    recorded: true,
                });
                self.in_flight.push(channel);
            }
        }
    }

    /// Ends a flow and closes its channel; ends the round if it was the last flow.
    fn on_acknowledged(&mut self, channel: ChannelId, session: &mut Session<'_>) {
        self.latest = self.latest.max(session.now());
        self.in_flight.retain(|&other| other != channel);
        session.close(channel);
        if self.in_flight.is_empty() {
            self.finish(session);
        }
    }

    /// Ends a round at the barrier.
    #[expect(clippy::cast_precision_loss, reason = "sizes of a report")]
    fn finish(&mut self, session: &mut Session<'_>) {
        let duration = self.latest.since(self.began);
        let bits = 8 * self.sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
        self.finished.push(Iteration {
            start_us: self.began.since(SimTime::EPOCH).as_micros_f64(),
            time_us: duration.as_micros_f64(),
            bus_gbps: bits as f64 / duration.as_secs_f64() / 1e9,
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

impl Workload for Rounds {
    fn start(&mut self, session: &mut Session<'_>) {
        session.wake(SimTime::EPOCH + SimSpan::from(self.config.compute), 0);
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => self.begin(session),
            Notice::Acknowledged { request } => self.on_acknowledged(request.channel, session),
            Notice::Closed { channel, .. } => self.broken |= self.in_flight.contains(channel),
            Notice::Delivered { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        self.broken || self.has_all_rounds()
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

    fn run(rounds: &str) -> Result<Report, String> {
        let text = format!(
            "topology = {{ kind = \"leaf-spine\", leaves = 2, spines = 4, hosts_per_leaf = 2 }}\n\
             measure = {{ flows = true }}\n\
             [[workload]]\nkind = \"rounds\"\n{rounds}"
        );
        let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
        crate::run(&scenario, Seed(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn no_flow_begins_before_all_of_the_previous_round_have_ended() {
        let report = run("rounds = 3\ncompute = \"50us\"\npairs = [[0, 2], [1, 3]]\n\
                          sizes = [\"1MB\", \"10KB\"]")
        .unwrap();
        let rounds = &report.workloads[0].iterations;
        assert!(report.finished && rounds.len() == 3, "{rounds:?}");
        assert_eq!(report.flows.len(), 3 * 2 * 2);
        for round in 1..3 {
            let ends = report.flows.iter().filter(|flow| flow.tag < round);
            let last = ends.map(|flow| flow.acknowledged_us).fold(0.0, f64::max);
            let starts = report.flows.iter().filter(|flow| flow.tag == round);
            assert!(starts.map(|flow| flow.start_us).all(|start| start >= last + 50.0 - 1e-6));
        }
        // 1.01 MB from each at 100 Gb/s, 98 % of it payload, and a round trip.
        assert!((82.0..120.0).contains(&rounds[1].time_us), "{rounds:?}");
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (rounds, want) in [
            ("rounds = 0", "line 5: workload 1 (rounds): rounds is 0, expected at least 1"),
            ("sizes = []", "line 5: workload 1 (rounds): sizes is empty, expected at least one"),
            ("pairs = [[0, 9]]", "workload 1 (rounds): host 9 does not exist; hosts are 0..4"),
            ("pairs = [[1, 1]]", "workload 1 (rounds): host 1 is named twice"),
            ("sizes = [\"0B\"]", "workload 1 (rounds): sizes is 0 bytes"),
        ] {
            let error = run(rounds).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
