//! The pauses of ports (priority flow control).

use std::collections::BTreeMap;

use serde::Serialize;
use weft_topo::LinkId;

use super::queues::kind_of_port;
use crate::fabric::Fabric;
use crate::time::SimTime;

/// Pauses of all ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PfcReport {
    /// PAUSE frames that requested a pause, with refreshes.
    pub frames: u64,
    /// PAUSE frames that ended a pause early.
    pub resumes: u64,
    /// The time paused, summed over all ports, microseconds.
    pub paused_us: f64,
    /// Number of ports that were paused when the run ended; after a deadlock some stay paused.
    pub paused_at_end: usize,
    /// Pauses by tier and direction of the paused port: `host-up`, `leaf-up`, `spine-down`, …
    pub tiers: BTreeMap<String, TierPauses>,
    /// Every port that was ever paused.
    pub ports: Vec<PortPauses>,
}

/// Pauses of the ports of one tier and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierPauses {
    /// Number of ports that were ever paused.
    pub ports: usize,
    /// PAUSE frames that these ports received.
    pub frames: u64,
    /// The time paused, summed over these ports, microseconds.
    pub paused_us: f64,
    /// The time of the port that was paused longest, microseconds.
    pub max_paused_us: f64,
}

/// Pauses of one port.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PortPauses {
    /// The node that has the port.
    pub from: u32,
    /// The node that requested the pauses.
    pub to: u32,
    /// PAUSE frames that the port received.
    pub frames: u64,
    /// The time paused, microseconds.
    pub paused_us: f64,
}

impl PfcReport {
    /// Returns the pauses until now, or `None` without priority flow control.
    pub fn new(fabric: &Fabric, now: SimTime) -> Option<Self> {
        fabric.is_lossless().then(|| {
            let mut report = Self::default();
            fabric.topology.link_ids().for_each(|link| report.add(fabric, link, now));
            report
        })
    }

    fn add(&mut self, fabric: &Fabric, link: LinkId, now: SimTime) {
        let pause = fabric.pause(link);
        self.resumes += pause.resumes;
        if pause.frames == 0 {
            return;
        }
        let paused_us = pause.total(now).as_micros_f64();
        self.frames += pause.frames;
        self.paused_us += paused_us;
        self.paused_at_end += usize::from(pause.holds(now));
        let tier = self.tiers.entry(kind_of_port(&fabric.topology, link)).or_default();
        tier.ports += 1;
        tier.frames += pause.frames;
        tier.paused_us += paused_us;
        tier.max_paused_us = tier.max_paused_us.max(paused_us);
        let ends = fabric.topology.link(link);
        let (from, to) = (ends.from.0, ends.to.0);
        self.ports.push(PortPauses { from, to, frames: pause.frames, paused_us });
    }
}
