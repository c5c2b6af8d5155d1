//! The interface between the simulated network and its controller: reports, samples and actions.

use alloc::collections::BTreeSet;
use alloc::vec;

use weft_units::{Duration, Instant, Rng};

use super::numbers::whole;
use super::run::{PACKET, Simulation};
use crate::controller::{Action, Controller};
use crate::fabric::{End, RouterId};
use crate::flow::Flow;
use crate::suspects::Sample;
use crate::telemetry::PortReport;

/// The sampling rate, one packet in this many (SONiC's usual rate).
const SAMPLING_RATE: u32 = 40_000;
/// Flows of jobs with iterations that are not at alarmed routers: one in this many is sampled.
const WATCHED: usize = 16;
/// The interval in which such a flow is sampled.
const STEP: Duration = Duration::from_millis(250);

impl Simulation {
    /// Reports the counters of all ports to the controller.
    pub(super) fn report(&mut self) {
        let at = self.now();
        let Some(controller) = &mut self.controller else { return };
        let fabric = &self.switches.fabric;
        for link in fabric.link_ids() {
            if let End::Router(_) = fabric.from(link) {
                let (bytes, marks) =
                    (whole(self.bytes[link.index()]), whole(self.marks[link.index()]));
                controller.handle_report(PortReport { link, at, bytes, marks });
            }
        }
    }

    /// Samples packets at alarmed routers, at routers with moves, and at the leaves of senders through alarmed ports.
    pub(super) fn sample(&mut self) {
        let at = Instant::from_nanos(self.now().as_nanos() - 1);
        let seconds = self.window_length().as_secs_f64();
        let Some(controller) = &mut self.controller else { return };
        let fabric = &self.switches.fabric;
        let alarmed = controller.alarms().keys().filter_map(|&link| match fabric.from(link) {
            End::Router(router) => Some(router),
            _ => None,
        });
        let moved = controller.moves().filter_map(|it| fabric.find(&it.router));
        let mut routers: BTreeSet<RouterId> = alarmed.chain(moved).collect();
        if routers.is_empty() && self.training.is_none() {
            return;
        }
        // Packets are also sampled at the leaves of hosts that send through an alarmed port.
        for number in 0..self.flows.len() {
            let links = self.routed.of(number);
            if let (Some(&[first, ..]), true) =
                (links.get(..1), links.iter().any(|link| controller.alarms().contains_key(link)))
                && let End::Router(leaf) = fabric.to(first)
            {
                routers.insert(leaf);
            }
        }
        let mut is_sampled = vec![false; fabric.router_ids().count()];
        routers.iter().for_each(|router| is_sampled[router.index()] = true);
        for (number, flow) in self.flows.iter().enumerate() {
            // What the flow sent in the window: in total, and in steps where jobs pause.
            let job = self.jobs.running[flow.job as usize].id;
            let sent = self.training.as_ref().map_or(&[][..], |it| it.sent(job));
            let total = match &self.training {
                None => self.rates[number] * seconds,
                Some(_) => sent.iter().map(|it| it.pace * it.seconds).sum(),
            };
            for (hop, pair) in self.routed.of(number).windows(2).enumerate() {
                let End::Router(router) = fabric.from(pair[1]) else { continue };
                // Flows of jobs with iterations are sampled at the leaves of their senders, one in a few.
                let is_first = hop == 0 && self.training.is_some();
                let is_watched = is_first && number.is_multiple_of(WATCHED);
                if !is_sampled[router.index()] && !is_watched {
                    continue;
                }
                let mut count = |at, bits: f64| {
                    let mean = bits / 8.0 / PACKET / f64::from(SAMPLING_RATE);
                    let packets = poisson(mean, &mut self.rng);
                    if packets > 0 {
                        controller.handle_sample(Sample {
                            at,
                            link: pair[1],
                            input: Some(pair[0]),
                            flow: Flow::V4(flow.tuple),
                            bytes: packets.saturating_mul(4096),
                            packets,
                            rate: SAMPLING_RATE,
                        });
                    }
                };
                if is_first {
                    let steps = sent.iter().flat_map(|it| it.steps(STEP));
                    steps.for_each(|(at, bits)| count(at, bits));
                } else {
                    count(at, total);
                }
            }
        }
    }

    /// Lets the controller act on the previous window. Returns the number of moves that it decided.
    pub(super) fn steer(&mut self) -> u64 {
        let mut now = self.now() + Duration::from_secs(2);
        let plans = self.plans();
        let Some(controller) = &mut self.controller else { return 0 };
        let before = controller.stats().moves;
        controller.handle_timeout(now);
        let mut is_changed = false;
        while let Some(action) = controller.poll_action() {
            if self.kills.chance(self.setup.killed_percent.into(), 100) {
                // The pending actions are lost with the controller.
                self.events.extend(core::iter::from_fn(|| controller.poll_event()));
                let (config, state) = (self.setup.controller.clone(), controller.state());
                let (config, fabric) = (config.unwrap_or_default(), self.switches.fabric.clone());
                let jobs = controller.jobs().clone();
                *controller = Controller::restore(config, fabric, state, jobs)
                    .expect("a controller takes up its own state");
                controller.set_lease(Some(1), now);
                continue;
            }
            now += Duration::from_millis(1);
            let refuses = self.refusals.chance(self.setup.refused_percent.into(), 100);
            match &action {
                Action::Read { router } => {
                    let number = self
                        .switches
                        .fabric
                        .find(router)
                        .expect("the controller reads its own routers");
                    let tables = self.switches.fabric.router(number).clone();
                    controller.handle_tables(tables, now).expect("the switches accepted them");
                }
                Action::Apply { id, .. } if refuses => {
                    controller.handle_answer(*id, Err("table full"), now);
                }
                Action::Apply { id, .. } | Action::Withdraw { id, .. } => {
                    let answer = self.switches.apply(&action);
                    is_changed |= answer.is_ok();
                    controller.handle_answer(*id, answer, now);
                }
            }
        }
        self.events.extend(core::iter::from_fn(|| controller.poll_event()));
        let moves = controller.stats().moves - before;
        if self.plans() != plans && self.training.is_some() {
            self.take_ports();
            is_changed = true;
        }
        if is_changed {
            self.recompute_rates();
        }
        moves
    }
}

/// Returns a random count with this mean and a standard deviation of its square root.
fn poisson(mean: f64, rng: &mut Rng) -> u32 {
    // Twelve uniform draws less six are nearly normal; small means are rounded at random.
    let normal = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    let drawn = if mean > 16.0 { mean + libm::sqrt(mean) * normal } else { mean };
    u32::try_from(whole(drawn + rng.unit())).unwrap_or(u32::MAX)
}
