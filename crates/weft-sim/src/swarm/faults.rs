//! The mix of faults of a case. Each kind is left out of half of the cases: a mix of all faults hides the effect of a
//! single one.

use std::ops::Range;

use weft_topo::Topology;
use weft_units::{Duration, Rng};

use super::draw::{pick, up_to};
use crate::fault::{
    Attack, Corruption, Duplication, FaultConfig, Flap, Kind as FaultKind, LinkDown, LinkSelector,
    Loss, Reordering, Restart, SwitchDown,
};

/// The draws of a mix of faults.
pub(super) struct Faults<'a> {
    rng: Rng,
    topology: &'a Topology,
    /// The time in which faults may begin, microseconds.
    storm: Range<u64>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(rng: Rng, topology: &'a Topology, storm: Range<u64>) -> Self {
        Self { rng, topology, storm }
    }

    /// Returns the mix of faults, without attacks.
    pub(super) fn draw(mut self) -> Vec<FaultConfig> {
        let mut faults = Vec::new();
        // Attacks are only for hosts that encrypt.
        for &kind in FaultKind::ALL.iter().filter(|&&kind| kind != FaultKind::Attack) {
            // Restarts limit what may be required of everything else: fewer cases have them.
            let odds = if kind == FaultKind::Restart { 5 } else { 2 };
            if self.rng.chance(1, odds) {
                let times = up_to(&mut self.rng, 2);
                faults.extend((0..times).map(|_| self.fault(kind)));
            }
        }
        faults
    }

    /// Returns one to three attacks.
    pub(super) fn attacks(mut self) -> Vec<FaultConfig> {
        let times = up_to(&mut self.rng, 3);
        (0..times).map(|_| self.fault(FaultKind::Attack)).collect()
    }

    /// Returns a time within the storm.
    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.storm.start) + self.span()
    }

    /// Returns a duration shorter than the span of faults.
    fn span(&mut self) -> Duration {
        self.micros(self.storm.end - self.storm.start)
    }

    fn micros(&mut self, max: u64) -> Duration {
        Duration::from_micros(self.rng.below(max))
    }

    /// Returns a probability from one in three to one in three thousand, log-uniform.
    fn probability(&mut self) -> f64 {
        let tenths = self.rng.next_u32() % 30;
        (0..tenths).fold(0.3, |chance, _| chance * 0.794_328)
    }

    fn links(&mut self) -> LinkSelector {
        use LinkSelector::{All, FromTo, HostLinks, RandomUplink, Uplinks};
        let links: Vec<_> = self.topology.link_ids().collect();
        // Only one direction is impaired.
        let link = self.topology.link(pick(&mut self.rng, &links));
        let one_way = FromTo(link.from.0, link.to.0);
        pick(&mut self.rng, &[All, HostLinks, Uplinks, RandomUplink, RandomUplink, one_way])
    }

    fn fault(&mut self, kind: FaultKind) -> FaultConfig {
        let at = self.moment();
        let links = self.links();
        let probability = self.probability();
        let duration = self.rng.chance(1, 2).then(|| self.span());
        match kind {
            FaultKind::LinkDown => FaultConfig::LinkDown(LinkDown { links, at, duration }),
            FaultKind::Flap => FaultConfig::Flap(Flap {
                links: LinkSelector::RandomUplink,
                at,
                down: self.micros(500),
                up: self.micros(500),
                times: up_to(&mut self.rng, 20),
            }),
            FaultKind::SwitchDown => {
                let count = self.topology.switches();
                let switch = self.topology.hosts() + self.rng.next_u32() % count;
                FaultConfig::SwitchDown(SwitchDown { switch, at, duration })
            }
            FaultKind::Loss => {
                // The link drops every packet without being down.
                let probability = if self.rng.chance(1, 10) { 1.0 } else { probability };
                FaultConfig::Loss(Loss { links, probability, at, duration })
            }
            FaultKind::Duplication => {
                FaultConfig::Duplication(Duplication { links, probability, at, duration })
            }
            FaultKind::Reordering => {
                let by = self.micros(300);
                FaultConfig::Reordering(Reordering { links, probability, by, at, duration })
            }
            FaultKind::Corruption => {
                let checksum = self.rng.chance(7, 8);
                FaultConfig::Corruption(Corruption { links, probability, checksum, at, duration })
            }
            FaultKind::Restart => FaultConfig::Restart(Restart {
                host: self.rng.next_u32() % self.topology.hosts(),
                at,
            }),
            FaultKind::Attack => FaultConfig::Attack(Attack { links, probability, at, duration }),
        }
    }
}
