//! All-to-alls: in each group of hosts, every host sends to every other, all at once. Each sender starts with a
//! different receiver, as collective libraries do, so that no receiver is the first of all senders.
//!
//! A group can run several all-to-alls over the same connections: its next one begins when the last flow of the
//! previous one has been acknowledged, independently of other groups.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{ByteCount, Duration};

use super::{
    Grouping, HostSet, Iteration, Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one,
    message_size, one_to_64,
};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::world::Session;

/// The settings of the `all-to-all` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The hosts that take part.
    pub hosts: HostSet,
    /// Number of rails the hosts are dealt to in turn. A host sends only to hosts of its own rail, as where libraries
    /// first exchange data inside a server.
    pub rails: u32,
    /// Ranks of each group of a rail; zero puts all of them in one group.
    pub ranks: u32,
    /// The hosts of a rail that form a group.
    pub groups: Grouping,
    /// Bytes from each host to each other of its group.
    pub size: ByteCount,
    /// Connections from each host to each other, 1 to 64; the bytes are divided among them.
    pub queue_pairs: u32,
    /// Number of all-to-alls of each group. A group that has completed this number continues until all groups have.
    pub iterations: u32,
    /// The start of the first all-to-all, from the start of the run.
    pub start: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            rails: 1,
            ranks: 0,
            groups: Grouping::Strided,
            size: ByteCount(64_000),
            queue_pairs: 1,
            iterations: 1,
            start: Duration::ZERO,
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = self.hosts.resolve(setting.topology.hosts(), self.rails.saturating_mul(2))?;
        let length = self.length()?;
        let mut groups = vec![];
        for rail in 0..self.rails {
            let rail = hosts.iter().copied().skip(rail as usize).step_by(self.rails as usize);
            groups.extend(self.groups.divide(&rail.collect::<Vec<_>>(), self.ranks)?);
        }
        let groups = groups.iter().map(|hosts| Group::new(hosts, self.queue_pairs)).collect();
        Ok(Box::new(AllToAll {
            config: self.clone(),
            length,
            groups,
            unfinished: BTreeMap::new(),
            finished: Vec::new(),
        }))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        at_least_one("rails", self.rails)?;
        at_least_one("iterations", self.iterations)?;
        one_to_64("queue_pairs", self.queue_pairs).map(|_| ())
    }
}

impl Config {
    /// Returns the bytes of a flow.
    fn length(&self) -> Result<u32, WorkloadError> {
        message_size("size", ByteCount(self.size.0.div_ceil(self.queue_pairs.into())))
    }
}

/// Hosts that send to each other, and their progress.
#[derive(Debug)]
struct Group {
    ranks: u32,
    /// The source and destination of each flow.
    pairs: Vec<(NodeId, NodeId)>,
    /// The channel of each flow, by the flow's index. Empty until the first all-to-all.
    channels: Vec<ChannelId>,
    /// Number of flows of this all-to-all that have not ended.
    outstanding: usize,
    began: SimTime,
    /// The latest end of a flow: hosts are simulated one after another, so the last one processed may not be the
    /// latest.
    latest: SimTime,
    finished: u32,
    /// `true` if a channel closed early: the group starts no further all-to-all.
    is_broken: bool,
}

impl Group {
    fn new(hosts: &[NodeId], queue_pairs: u32) -> Self {
        let mut pairs = Vec::with_capacity(hosts.len() * (hosts.len() - 1) * queue_pairs as usize);
        for distance in 1..hosts.len() {
            for (index, &source) in hosts.iter().enumerate() {
                let destination = hosts[(index + distance) % hosts.len()];
                pairs.extend((0..queue_pairs).map(|_| (source, destination)));
            }
        }
        Self {
            ranks: u32::try_from(hosts.len()).expect("fewer than 2^20 hosts"),
            pairs,
            channels: Vec::new(),
            outstanding: 0,
            began: SimTime::EPOCH,
            latest: SimTime::EPOCH,
            finished: 0,
            is_broken: false,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes and times of a report")]
    fn iteration(&self, size: ByteCount) -> Iteration {
        let duration = self.latest.since(self.began);
        let bits = size.0 as f64 * 8.0 * f64::from(self.ranks - 1);
        Iteration {
            start_us: self.began.since(SimTime::EPOCH).as_micros_f64(),
            time_us: duration.as_micros_f64(),
            bus_gbps: bits / duration.as_secs_f64() / 1e9,
            shares: None,
        }
    }
}

/// The workload: all groups, and the flows in progress.
#[derive(Debug)]
struct AllToAll {
    config: Config,
    /// The bytes of a flow.
    length: u32,
    groups: Vec<Group>,
    /// Channels of flows that have not ended, each with its group.
    unfinished: BTreeMap<ChannelId, usize>,
    finished: Vec<Iteration>,
}

impl AllToAll {
    /// Sends every flow of a group, each as soon as its channel is open.
    fn begin(&mut self, number: usize, session: &mut Session<'_>) {
        let group = &mut self.groups[number];
        (group.began, group.outstanding) = (session.now(), group.pairs.len());
        for (flow, &(source, destination)) in group.pairs.iter().enumerate() {
            if group.channels.len() == flow {
                group.channels.push(session.open(source, destination));
            }
            let channel = group.channels[flow];
            self.unfinished.insert(channel, number);
            let (length, tag) = (self.length, (number as u64) << 32 | flow as u64);
            session.send(SendRequest { channel, from: Side::Opener, length, tag, recorded: true });
        }
    }

    /// Ends a flow, and starts the group's next all-to-all if it was the last flow.
    fn end(&mut self, channel: ChannelId, is_broken: bool, session: &mut Session<'_>) {
        let Some(number) = self.unfinished.remove(&channel) else { return };
        let group = &mut self.groups[number];
        group.is_broken |= is_broken;
        group.latest = group.latest.max(session.now());
        group.outstanding -= 1;
        if self.config.iterations == 1 && !is_broken {
            session.close(channel);
        }
        if group.outstanding > 0 {
            return;
        }
        group.finished += 1;
        if group.is_broken {
            return;
        }
        self.finished.push(group.iteration(self.config.size));
        if self.config.iterations > 1 {
            // At the latest end: other hosts of the group may be at an earlier time than this one.
            session.wake(group.latest, number as u64);
        }
    }
}

impl Workload for AllToAll {
    fn start(&mut self, session: &mut Session<'_>) {
        let start = SimTime::EPOCH + SimSpan::from(self.config.start);
        for number in 0..self.groups.len() {
            if start <= session.now() {
                self.begin(number, session);
            } else {
                session.wake(start, number as u64);
            }
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { token } => {
                self.begin(usize::try_from(*token).expect("a place of ours"), session);
            }
            Notice::Acknowledged { request } => self.end(request.channel, false, session),
            Notice::Closed { channel, .. } => self.end(*channel, true, session),
            Notice::Delivered { .. } => {}
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        let has_all = |group: &Group| {
            group.finished >= self.config.iterations || group.is_broken && group.outstanding == 0
        };
        self.groups.iter().all(has_all)
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

    /// Runs the workload on two leaves with eight hosts each and eight spines.
    fn run(workload: &str) -> Result<Report, String> {
        let text = format!(
            "topology = {{ kind = \"leaf-spine\", leaves = 2, spines = 8, hosts_per_leaf = 8 }}\n\
             measure = {{ flows = true, warm_up = \"1us\" }}\n\
             [[workload]]\nkind = \"all-to-all\"\n{workload}"
        );
        let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
        crate::run(&scenario, Seed(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn hosts_send_to_those_of_their_rail_and_group_only() {
        let report = run("rails = 2\nranks = 4\nsize = \"10KB\"\nqueue_pairs = 2").unwrap();
        assert!(report.finished);
        // Two rails, two groups per rail, 4 x 3 pairs, two flows per pair.
        assert_eq!(report.flows.len(), 2 * 2 * 4 * 3 * 2);
        for flow in &report.flows {
            // A group has every second of a rail's eight hosts, from both leaves.
            assert_eq!(flow.source % 4, flow.destination % 4, "{flow:?}");
            assert_eq!(flow.bytes, 5_000);
        }
    }

    #[test]
    fn groups_repeat_independently_until_all_have_completed() {
        let report = run("ranks = 4\nsize = \"100KB\"\niterations = 5").unwrap();
        assert!(report.finished);
        let of_group = |group: u64| {
            let flows = report.flows.iter().filter(move |flow| flow.tag >> 32 == group);
            flows.map(|flow| (flow.start_us, flow.acknowledged_us)).collect::<Vec<_>>()
        };
        for group in 0..4 {
            let mut flows = of_group(group);
            flows.sort_by(|one, other| one.0.total_cmp(&other.0));
            let rounds: Vec<_> = flows.chunks(12).collect();
            for round in rounds.windows(2).filter(|round| round[1].len() == 12) {
                let end = round[0].iter().map(|flow| flow.1).fold(0.0, f64::max);
                assert!(round[1].iter().all(|flow| flow.0 >= end - 1e-6), "{round:?}");
            }
        }
        let iterations = &report.workloads[0].iterations;
        assert!(iterations.len() >= 4 * 5, "{}", iterations.len());
        // At 100 Gb/s, 300 KB from a host plus headers take 24 us without collisions.
        let fastest = iterations.iter().map(|it| it.time_us).fold(f64::MAX, f64::min);
        assert!((24.4..60.0).contains(&fastest), "{fastest}");
        let bits = 3.0 * 100_000.0 * 8.0;
        let first = iterations[0];
        assert!((first.bus_gbps - bits / first.time_us / 1e3).abs() < 1e-9, "{first:?}");
        // The first all-to-all of each group begins during the warm-up and does not count.
        let counted = report.workloads[0].bus_gbps.count;
        assert_eq!(counted, iterations.len() - 4);
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (workload, want) in [
            ("rails = 0", "rails is 0, expected at least 1"),
            ("iterations = 0", "iterations is 0, expected at least 1"),
            ("queue_pairs = 65", "queue_pairs is 65, expected 1 to 64"),
            ("ranks = 5", "ranks is 5 with 16 hosts"),
            ("size = \"0B\"", "size is 0 bytes"),
        ] {
            let error = run(workload).unwrap_err();
            assert!(error.contains(want), "{workload}: {error}");
        }
    }
}
