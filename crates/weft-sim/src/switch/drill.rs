//! DRILL: for each packet the shorter queue of two random links and the one remembered
//! (Ghorbani et al. 2017).
//!
//! DRILL(d, m) compares `d` random links and the `m` that were best the last time, takes the shortest queue and
//! remembers the `m` shortest. A port's queue is the bytes behind the packet on the wire if ports hold queues
//! (`port.kind = "priority"`), and otherwise all unsent bytes, including the rest of that packet. In its paper a
//! switch has several forwarding engines with a memory each; here it has one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::{Rng, Seed};

use super::{Decision, Forward, ForwardingConfig, ParameterError, ecmp};

/// DRILL's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Number of random links compared for each packet: `d`.
    pub samples: u8,
    /// Number of links remembered: `m`.
    pub memory: u8,
    /// The key of the memory.
    pub remember: Remember,
}

/// The key by which a switch remembers its best links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Remember {
    /// One memory for all packets: the paper's switch.
    #[default]
    Switch,
    /// One memory for each destination: ConWeave's simulator.
    Destination,
}

impl Default for Config {
    fn default() -> Self {
        Self { samples: 2, memory: 1, remember: Remember::Switch }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        super::at_least_one("samples", self.samples.into())
    }
}

/// The memory of all switches.
#[derive(Debug)]
pub struct Forwarding {
    config: Config,
    /// The remembered links by switch, or by switch and destination; best first.
    remembered: Vec<Vec<LinkId>>,
    /// Number of memories in `remembered` for each switch.
    slots: usize,
    /// The links being compared, with their queued bytes.
    contenders: Vec<(u64, LinkId)>,
    /// The candidates; the first ones are in random order.
    shuffled: Vec<LinkId>,
    control: ecmp::Forwarding,
    rng: Rng,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        let slots = match config.drill.remember {
            Remember::Switch => 1,
            Remember::Destination => topology.hosts() as usize,
        };
        Self {
            config: config.drill.clone(),
            remembered: vec![Vec::new(); slots * topology.switch_ids().count()],
            slots,
            contenders: Vec::new(),
            shuffled: Vec::new(),
            control: ecmp::Forwarding::new(config, topology, seed),
            rng: seed.child("samples", 0).rng(),
        }
    }

    /// Returns the index of the memory for a packet.
    fn slot(&self, decision: &Decision<'_>) -> usize {
        let destination = decision.hop.destination().0 as usize;
        decision.switch * self.slots + if self.slots > 1 { destination } else { 0 }
    }

    /// Collects the links to compare, with their queues: the remembered ones, then random ones.
    fn compare(&mut self, decision: &Decision<'_>) {
        let candidates = decision.candidates;
        self.contenders.clear();
        let remembered = self.remembered[self.slot(decision)].iter().copied();
        let usable = remembered.filter(|link| candidates.contains(link));
        self.contenders.extend(usable.map(|link| (decision.waiting(link), link)));
        self.shuffled.clear();
        self.shuffled.extend_from_slice(candidates);
        for drawn in 0..candidates.len().min(self.config.samples.into()) {
            self.shuffled.swap(drawn, drawn + self.rng.index(candidates.len() - drawn));
            let link = self.shuffled[drawn];
            if !self.contenders.iter().any(|&(_, other)| other == link) {
                self.contenders.push((decision.waiting(link), link));
            }
        }
    }
}

impl Forward for Forwarding {
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        if decision.is_control() {
            return self.control.choose(decision);
        }
        self.compare(decision);
        // Among equal queues, remembered links come first.
        self.contenders.sort_by_key(|&(queued, _)| queued);
        let best = self.contenders.iter().map(|&(_, link)| link);
        let slot = self.slot(decision);
        let remembered = &mut self.remembered[slot];
        remembered.clear();
        remembered.extend(best.take(self.config.memory.into()));
        self.contenders[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::bench::{Bench, micros};
    use super::Remember;

    /// With as many samples as links the choice is not random.
    #[test]
    fn the_shortest_of_all_samples_is_taken_and_wins_the_next_tie() {
        let mut bench = Bench::configured(Kind::Drill, |config| config.drill.samples = 8);
        let links = bench.candidates(0, 16);
        for (&link, bytes) in
            links.iter().zip([4_000, 5_000, 6_000, 1_000, 2_000, 9_000, 3_000, 7_000])
        {
            bench.queue(link, bytes);
        }
        assert_eq!(bench.send(micros(0), 0, 16, 1), links[3]);
        bench.queue(links[3], 1_000);
        assert_eq!(bench.send(micros(0), 0, 16, 1), links[3], "as short as the fifth link's");
        bench.queue(links[3], 1_000);
        assert_eq!(bench.send(micros(0), 0, 16, 1), links[4]);
    }

    /// A port that sends its last packet, or is paused by its neighbour, has an empty queue all the same.
    #[test]
    fn neither_the_packet_on_the_wire_nor_a_pause_is_a_queue() {
        let mut bench = Bench::configured(Kind::Drill, |config| config.drill.samples = 8);
        let links = bench.candidates(0, 16);
        let others = links.iter().filter(|&&link| link != links[5]);
        others.for_each(|&link| bench.hold(link, &[1_048]));
        // Five microseconds at 100 Gb/s: a pause, and the rest of the packet on the wire.
        bench.queue(links[5], 62_500);
        assert_eq!(bench.send(micros(0), 0, 16, 1), links[5]);
    }

    /// Among equal queues the remembered one wins; with a memory for each destination, for the first destination only.
    #[test]
    fn destinations_can_have_memories_of_their_own() {
        let kept = |remember| {
            let mut bench = Bench::configured(Kind::Drill, |config| {
                (config.drill.samples, config.drill.remember) = (8, remember);
            });
            let links = bench.candidates(0, 16);
            links[1..].iter().for_each(|&link| bench.queue(link, 10_000));
            assert_eq!(bench.send(micros(0), 0, 16, 1), links[0]);
            bench.queue(links[0], 10_000);
            (17..32).filter(|&to| bench.send(micros(0), 0, to, 1) == links[0]).count()
        };
        assert_eq!(kept(Remember::Switch), 15, "all queues are alike, so what is remembered wins");
        assert!(kept(Remember::Destination) < 8);
    }

    /// Two of eight links are compared: one packet in four finds the only empty one, which is remembered from then on.
    #[test]
    fn the_memory_keeps_the_link_that_the_samples_found() {
        for (memory, want) in [(0, 200..300), (1, 980..1001)] {
            let mut bench = Bench::configured(Kind::Drill, |config| config.drill.memory = memory);
            let links = bench.candidates(0, 16);
            links[1..].iter().for_each(|&link| bench.queue(link, 10_000));
            let found = (0..1000).filter(|&port| bench.send(micros(0), 0, 16, port) == links[0]);
            let found = found.count();
            assert!(want.contains(&found), "memory {memory}: {found} of 1000");
        }
    }
}
