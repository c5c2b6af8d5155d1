//! The interface between the simulated network and its controller: reports, samples and actions.

use alloc::collections::BTreeSet;
use alloc::vec;

use weft_units::{Duration, Instant, Rng};

use super::jobs::whole;
use super::run::{PACKET, Simulation};
use crate::controller::{Action, Controller};
use crate::fabric::{End, RouterId};
use crate::flow::Flow;
use crate::suspects::Sample;
use crate::telemetry::PortReport;

/// The sampling rate, one packet in this many (SONiC's usual rate).
const SAMPLING_RATE: u32 = 40_000;

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
        if routers.is_empty() {
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
            for pair in self.routed.of(number).windows(2) {
                let End::Router(router) = fabric.from(pair[1]) else { continue };
                if !is_sampled[router.index()] {
                    continue;
                }
                let mean = self.rates[number] * seconds / 8.0 / PACKET / f64::from(SAMPLING_RATE);
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
            }
        }
    }

    /// Lets the controller act on the previous window. Returns the number of moves that it decided.
    pub(super) fn steer(&mut self) -> u64 {
        let mut now = self.now() + Duration::from_secs(2);
        let Some(controller) = &mut self.controller else { return 0 };
        let before = controller.stats().moves;
        controller.handle_timeout(now);
        let mut is_changed = false;
        while let Some(action) = controller.poll_action() {
            if self.kills.chance(self.setup.killed_percent.into(), 100) {
                // The pending actions are lost with the controller.
                self.events.extend(core::iter::from_fn(|| controller.poll_event()));
                let (config, state) = (self.setup.controller.clone(), controller.state());
                let fabric = self.switches.fabric.clone();
                *controller = Controller::restore(config.unwrap_or_default(), fabric, state)
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
