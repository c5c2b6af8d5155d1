//! Alarms by probes: what hosts report, what is shown, and what is acted on.
//!
//! A link that loses probes is avoided: flows of announced jobs that cross it are planned again at once, and new plans
//! go around it where there is a way. A link with delay is only shown: congestion is relieved by moves, which routers'
//! marks verify. No route is changed because of probes.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use weft_units::{Duration, Instant};

use super::{Controller, EventKind, Subject};
use crate::fabric::LinkId;
use crate::path::{Outcome, Path};
use crate::probes::{LinkFault, ProbeAlarm, ProbeChange, ProbeError, ProbeReport, Probes};

impl Controller {
    /// Processes a host's report of its probes.
    ///
    /// # Errors
    /// Returns the first fault of the report, of which nothing is counted then.
    pub fn handle_probes(&mut self, report: &ProbeReport, now: Instant) -> Result<(), ProbeError> {
        self.probes.record(report, &self.fabric, now)
    }

    /// Returns the probed paths and the alarms of links by probes.
    pub const fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Evaluates probed links if it is time.
    pub(super) fn evaluate_probes(&mut self, now: Instant) {
        for change in self.probes.evaluate(&self.fabric, now) {
            let (kind, link, text) = match change {
                ProbeChange::Raised(link, alarm) => (EventKind::Alarm, link, self.raised(&alarm)),
                ProbeChange::Cleared(link, alarm) => {
                    let lasted = now.since(Instant::from_nanos(alarm.since));
                    let text = format!("probes: {} over after {lasted}", alarm.fault.name());
                    (EventKind::Cleared, link, text)
                }
            };
            let (router, port) = self.port_name(link);
            self.emit(kind, Subject { router, port, id: None }, text, now);
        }
        let avoided = self.probes.alarms().filter(|(_, alarm)| alarm.avoided.is_some());
        let avoided: BTreeSet<LinkId> = avoided.map(|(link, _)| link).collect();
        // Flows stay where they are when a link may be used again.
        self.are_jobs_stale |= !avoided.is_subset(&self.avoided);
        self.avoided = avoided;
    }

    /// Returns an alarm in words and numbers.
    fn raised(&self, alarm: &ProbeAlarm) -> String {
        let ProbeAlarm { suffering, paths, votes, sources, .. } = alarm;
        let mut text = match alarm.fault {
            LinkFault::Loss => format!("probes: {} per mille lost", alarm.lost_per_mille),
            LinkFault::Delay => format!("probes: {} delay", Duration::from_nanos(alarm.delay_ns)),
        };
        let mut add = |more: core::fmt::Arguments<'_>| {
            text.write_fmt(more).expect("writing to a string cannot fail");
        };
        add(format_args!(", {suffering} of {paths} paths and {votes} of {sources} hosts suffer"));
        for &other in &alarm.others {
            add(format_args!(", or at {}", self.fabric.name(other)));
        }
        if alarm.avoided.is_some() {
            add(format_args!("; flows of jobs avoid it"));
        }
        text
    }

    /// Returns `true` if a path crosses a link that loses probes and that another port could avoid.
    pub(super) fn is_avoided(&self, path: &Path) -> bool {
        !self.avoided.is_empty()
            && self.links_by_port(path).iter().any(|link| self.avoided.contains(link))
    }

    /// Returns the links of a path that depend on the flow's port: not the first, and not the last if the host has one
    /// cable. A path that does not arrive has none.
    pub(super) fn links_by_port<'a>(&self, path: &'a Path) -> &'a [LinkId] {
        let Outcome::Delivered(host) = path.outcome else { return &[] };
        let last = path.links().len() - usize::from(self.fabric.links_of_host(host).len() == 1);
        path.links().get(1..last).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use weft_plan::ports::Entropy;
    use weft_units::{BitRate, Seed};

    use super::*;
    use crate::probes::tests::{Prober, leaf_spine};
    use crate::{ControllerConfig, Flow, Pair, PortSearch};

    /// The interval of reports.
    const INTERVAL: Duration = Duration::from_millis(200);

    /// A controller with a job of sixteen flows from a host behind leaf 0 to one behind leaf 1, over four spines.
    struct World {
        controller: Controller,
        prober: Prober,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let prober = Prober::new(leaf_spine(3, 4, 2));
            let mut controller =
                Controller::new(ControllerConfig::default(), prober.fabric.clone());
            controller.set_lease(Some(1), Instant::EPOCH);
            let mut world = Self { controller, prober, now: Instant::EPOCH };
            world.announce(Seed(7));
            world.run(10);
            world
        }

        fn announce(&mut self, seed: Seed) {
            let (src, dst) = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
            let rate = BitRate::gbps(5).unwrap();
            let pair = Pair { src, first: None, dst, rate, port: None };
            let search = PortSearch { entropy: Entropy::default(), tries: 64 };
            self.controller.announce("job", &[pair; 16], search, seed, self.now).unwrap();
        }

        fn run(&mut self, intervals: u32) {
            for _ in 0..intervals {
                self.now += INTERVAL;
                for report in self.prober.reports() {
                    self.controller.handle_probes(&report, self.now).unwrap();
                }
                self.controller.handle_timeout(self.now);
            }
        }

        fn flows(&self) -> Vec<Flow> {
            self.controller.jobs()["job"].flows.iter().map(|it| it.flow).collect()
        }

        /// Returns the job's flows that cross a link.
        fn over(&self, link: LinkId) -> Vec<Flow> {
            let crosses = |flow: &Flow| self.prober.fabric.path(flow).links().contains(&link);
            self.flows().into_iter().filter(crosses).collect()
        }
    }

    #[test]
    fn flows_leave_a_link_that_loses_probes_and_the_others_keep_their_ports() {
        let mut world = World::new();
        let lossy = world.prober.link("leaf-0", "s2");
        let (planned, over) = (world.flows(), world.over(lossy));
        assert_eq!((planned.len(), over.len()), (16, 2));
        world.prober.lossy.insert(lossy, 200);
        world.run(5);
        let kept = world.flows().into_iter().filter(|flow| planned.contains(flow)).count();
        assert_eq!((kept, world.over(lossy).len()), (14, 0));
        assert_eq!(world.controller.jobs()["job"].version, 2);
        let events: Vec<_> = core::iter::from_fn(|| world.controller.poll_event()).collect();
        let has =
            |kind, text: &str| events.iter().any(|it| it.kind == kind && it.text.contains(text));
        let text = "6 of 6 hosts suffer; flows of jobs avoid it";
        assert!(has(EventKind::Alarm, text), "{events:?}");
        assert!(
            has(EventKind::Job, "2 flows have changed or lose packets; 2 get other"),
            "{events:?}"
        );
        // A job that is announced meanwhile avoids the link too.
        world.announce(Seed(2));
        assert!(world.over(lossy).is_empty());
        // The alarm lasts for as long as packets are lost, and its flows are planned once.
        let version = world.controller.jobs()["job"].version;
        world.run(500);
        assert_eq!(world.controller.jobs()["job"].version, version);
        world.prober.lossy.clear();
        world.run(40);
        assert_eq!(world.controller.probes().alarms().count(), 0);
        assert_eq!(world.controller.jobs()["job"].version, version, "flows do not move back");
    }

    #[test]
    fn a_delay_and_a_liar_change_no_port() {
        let mut world = World::new();
        let planned = world.flows();
        world.prober.slow.insert(world.prober.link("leaf-0", "s2"), Duration::from_millis(1));
        world.prober.liars.insert([10, 1, 1, 2].into());
        world.run(20);
        let faults = world.controller.probes().alarms().map(|(_, alarm)| alarm.fault);
        assert_eq!(faults.collect::<Vec<_>>(), [LinkFault::Delay]);
        assert_eq!(world.flows(), planned);
    }

    #[test]
    fn without_the_lease_an_alarm_is_shown_and_no_port_changes() {
        let mut world = World::new();
        let planned = world.flows();
        world.controller.set_lease(None, world.now);
        let lossy = world.prober.link("leaf-0", "s2");
        world.prober.lossy.insert(lossy, 200);
        world.run(10);
        assert_eq!(world.controller.probes().alarms().count(), 1);
        assert_eq!(world.flows(), planned);
        world.controller.set_lease(Some(2), world.now);
        world.run(1);
        assert!(world.over(lossy).is_empty());
    }
}
