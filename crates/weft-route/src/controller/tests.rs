//! Tests of the controller on one fabric with counters and samples made by hand.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::installed::{Installed, PortState};
use crate::simulate::{Switches, remove};
use crate::suspects::Sample;
use crate::{Flow, RouterId};

const TWO_BY_TWO: &str = include_str!("../../tests/golden/installed/two-by-two.toml");
const WINDOW: u64 = 10;

/// A controller with its switches, and counters that grow from window to window.
pub(super) struct Harness {
    pub(super) controller: Controller,
    switches: Switches,
    counters: Vec<(u64, u64)>,
    window: u64,
    /// The rate of the job, in percent of 30 Gb/s per flow.
    pace: u64,
    /// Two flows that the leaf's hash sends to s0.
    flows: [Flow; 2],
    events: Vec<Event>,
}

impl Harness {
    pub(super) fn new() -> Self {
        let fabric = Fabric::new(toml::from_str::<Installed>(TWO_BY_TWO).unwrap()).unwrap();
        let s0 = fabric.link_of_port(RouterId(0), "s0").unwrap();
        let flow = |port: u16| -> Flow { format!("10.1.0.2:{port}>10.2.0.2").parse().unwrap() };
        let mut by_s0 = (49_152..).map(flow).filter(|it| fabric.path(it).links()[1] == s0);
        let flows = [by_s0.next().unwrap(), by_s0.next().unwrap()];
        let mut controller = Controller::new(ControllerConfig::default(), fabric.clone());
        controller.set_lease(Some(1), Instant::EPOCH);
        let counters = alloc::vec![(0, 0); fabric.links()];
        let switches = Switches::new(fabric);
        let mut harness = Self {
            controller,
            switches,
            counters,
            window: 0,
            pace: 100,
            flows,
            events: Vec::new(),
        };
        harness.report();
        harness
    }

    fn link(&self, router: &str, port: &str) -> LinkId {
        let fabric = &self.switches.fabric;
        fabric.link_of_port(fabric.find(router).unwrap(), port).unwrap()
    }

    fn end(&self) -> Instant {
        Instant::EPOCH + Duration::from_secs(WINDOW * (self.window + 1))
    }

    fn now(&self) -> Instant {
        self.end() + Duration::from_secs(2)
    }

    fn report(&mut self) {
        for link in self.switches.fabric.link_ids() {
            if self.switches.fabric.port_of(link).is_some() {
                let (bytes, marks) = self.counters[link.index()];
                self.controller.handle_report(PortReport { link, at: self.end(), bytes, marks });
            }
        }
    }

    /// Runs a window. The two flows send 30 Gb/s each at full pace, other flows send as much to s0, and `marks` packets
    /// are marked on the leaf's s0 and s1 while a flow uses the port.
    fn window(&mut self, marks: [u64; 2]) {
        self.window += 1;
        let sent = 375_000_000 * self.pace;
        let fabric = self.switches.fabric.clone();
        for flow in self.flows {
            let path = fabric.path(&flow);
            for pair in path.links().windows(2) {
                let at = Instant::from_nanos(self.end().as_nanos() - 1);
                let (link, input) = (pair[1], Some(pair[0]));
                self.counters[link.index()].0 += sent;
                let (bytes, packets, rate) = (937_500, 229, 40_000);
                self.controller.handle_sample(Sample {
                    at,
                    link,
                    input,
                    flow,
                    bytes,
                    packets,
                    rate,
                });
            }
        }
        let others = self.link("leaf-0", "s0");
        self.counters[others.index()].0 += sent;
        for (port, marks) in ["s0", "s1"].into_iter().zip(marks) {
            let link = self.link("leaf-0", port);
            self.counters[link.index()].1 += marks;
        }
        self.report();
        let now = self.now();
        self.controller.handle_timeout(now);
    }

    /// Carries out the controller's actions and returns the changes among them.
    fn work(&mut self) -> Vec<Action> {
        let mut changes = Vec::new();
        let now = self.now();
        while let Some(action) = self.controller.poll_action() {
            match &action {
                Action::Read { router } => {
                    let number = self.switches.fabric.find(router).unwrap();
                    let tables = self.switches.fabric.router(number).clone();
                    self.controller.handle_tables(tables, now).unwrap();
                }
                Action::Apply { id, .. } | Action::Withdraw { id, .. } => {
                    let answer = self.switches.apply(&action);
                    self.controller.handle_answer(*id, answer, now);
                    changes.push(action);
                }
            }
        }
        self.events.extend(core::iter::from_fn(|| self.controller.poll_event()));
        changes
    }

    /// Runs three windows with marks, after which there is a move, and returns its changes.
    pub(super) fn until_moved(&mut self) -> Vec<Action> {
        for _ in 0..2 {
            self.window([1000, 0]);
            assert_eq!(self.work(), [], "a low alarm moves nothing");
        }
        self.window([1000, 0]);
        self.work()
    }

    fn texts(&self, kind: EventKind) -> Vec<&str> {
        let events = self.events.iter().filter(|event| event.kind == kind);
        events.map(|event| event.text.as_str()).collect()
    }

    fn steered(&self) -> Vec<(String, Vec<String>)> {
        let routers = &self.switches.fabric.installed().routers;
        let steered = routers.iter().flat_map(|it| it.routes.iter().map(move |route| (it, route)));
        let steered = steered.filter(|(_, route)| route.steered);
        let ports = |(router, route): (&crate::installed::Router, _)| {
            let members = moved::members(router, route).unwrap();
            (router.name.clone(), members.iter().map(|it| it.port.clone()).collect())
        };
        steered.map(ports).collect()
    }
}

#[test]
fn three_windows_of_marks_move_the_flows_and_their_fall_keeps_them_moved() {
    let mut harness = Harness::new();
    let changes = harness.until_moved();
    let [Action::Apply { router, prefix, members, epoch: 1, .. }] = &changes[..] else {
        panic!("{changes:?} {:?}", harness.events);
    };
    // Both flows go to one host, so they move together, to the port with free bandwidth.
    assert_eq!((router.as_str(), prefix.to_string().as_str()), ("leaf-0", "10.2.0.2/32"));
    assert_eq!(members.iter().map(|it| it.port.as_str()).collect::<Vec<_>>(), ["s1"]);
    let words = harness.texts(EventKind::Move).concat();
    assert!(words.starts_with("leaf-0 s0 → spine-0 is 90.0 % full; 10.1.0.2:"), "{words}");
    assert!(words.ends_with("→ leaf-1, 60.0 % full"), "{words}");
    harness.window([0, 0]);
    harness.work();
    harness.window([0, 0]);
    harness.work();
    assert_eq!(harness.texts(EventKind::Kept).len(), 1, "{:?}", harness.events);
    assert_eq!(harness.texts(EventKind::Cleared), ["medium alarm over after 3 windows"]);
    assert_eq!(harness.controller.stats().cleared_after, [0, 1, 0, 0]);
}

#[test]
fn a_move_that_does_not_help_is_undone_and_not_repeated() {
    let mut harness = Harness::new();
    harness.until_moved();
    assert_eq!(harness.steered().len(), 1);
    // Marks rise at the port that the flows went to: the move made it worse.
    harness.window([0, 5000]);
    assert_eq!(harness.work(), []);
    harness.window([0, 5000]);
    let changes = harness.work();
    assert!(matches!(&changes[..], [Action::Withdraw { .. }]), "{changes:?}");
    assert!(harness.steered().is_empty());
    assert_eq!(
        harness.texts(EventKind::Undo),
        ["5000 marks in 187500 MB, 1000 marks in 187500 MB before"]
    );
    assert_eq!(harness.texts(EventKind::Undone).len(), 1);
    for _ in 0..20 {
        harness.window([1000, 0]);
        assert_eq!(harness.work(), [], "the same move again");
    }
    let refusal = harness.texts(EventKind::NoMove).concat();
    assert!(refusal.contains("were tried recently"), "{refusal}");
}

/// A job that gains by a move sends more, so its marks rise too; only more marks per byte are harmful.
#[test]
fn a_move_that_lets_its_job_run_faster_is_verified_by_marks_per_byte() {
    for (marks, kind) in [(1190, EventKind::Kept), (1210, EventKind::Undo)] {
        let mut harness = Harness::new();
        harness.until_moved();
        harness.pace = 120;
        harness.window([0, marks]);
        harness.work();
        harness.window([0, marks]);
        harness.work();
        let words = alloc::format!("{marks} marks in 225000 MB, 1000 marks in 187500 MB before");
        assert_eq!(harness.texts(kind), [words], "{:?}", harness.events);
    }
}

#[test]
fn without_a_lease_it_only_observes_and_with_a_new_one_it_adopts_installed_routes() {
    let mut harness = Harness::new();
    harness.controller.set_lease(None, harness.now());
    assert_eq!(harness.until_moved(), []);
    assert_eq!(harness.texts(EventKind::Alarm).len(), 2);
    harness.controller.set_lease(Some(2), harness.now());
    harness.window([1000, 0]);
    assert_eq!(harness.work().len(), 1);
    // Another controller without state finds the move; the gate refuses the first controller's epoch.
    let mut other = Controller::new(ControllerConfig::default(), harness.switches.fabric.clone());
    other.set_lease(Some(3), harness.now());
    assert_eq!(other.moves().map(|it| it.stage.clone()).collect::<Vec<_>>(), [Stage::Kept]);
    let router = "leaf-0".to_string();
    let withdraw = |epoch| Action::Withdraw {
        id: 1,
        epoch,
        router: router.clone(),
        prefix: Prefix::host([10, 2, 0, 2]),
    };
    harness.switches.apply(&withdraw(3)).unwrap();
    let refusal = harness.switches.apply(&withdraw(2)).unwrap_err();
    assert_eq!(refusal.to_string(), "epoch 2 is over; a controller with epoch 3 holds the lease");
}

#[test]
fn a_route_that_others_remove_is_installed_again_three_times() {
    let mut harness = Harness::new();
    harness.until_moved();
    harness.window([0, 0]);
    harness.window([0, 0]);
    harness.work();
    for round in 0..5 {
        let number = harness.switches.fabric.find("leaf-0").unwrap();
        let mut router = harness.switches.fabric.router(number).clone();
        remove(&mut router, Prefix::host([10, 2, 0, 2]));
        harness.switches.fabric.replace(router.clone()).unwrap();
        harness.controller.handle_tables(router, harness.now()).unwrap();
        let changes = harness.work();
        assert_eq!(harness.steered().len(), usize::from(round < 3), "round {round}: {changes:?}");
        if harness.steered().is_empty() {
            break;
        }
    }
}

#[test]
fn a_failed_link_undoes_the_moves_that_lead_over_it() {
    let mut harness = Harness::new();
    harness.until_moved();
    harness.window([0, 0]);
    harness.window([0, 0]);
    harness.work();
    let (_, ports) = harness.steered().remove(0);
    let spine = alloc::format!("spine-{}", &ports[0][1..]);
    let number = harness.switches.fabric.find(&spine).unwrap();
    let mut router = harness.switches.fabric.router(number).clone();
    router.ports[1].state = PortState::Down;
    harness.switches.fabric.replace(router.clone()).unwrap();
    harness.controller.handle_tables(router, harness.now()).unwrap();
    let changes = harness.work();
    assert!(matches!(&changes[..], [Action::Withdraw { .. }]), "{changes:?} {:?}", harness.events);
    assert_eq!(harness.texts(EventKind::Link), ["the port is down"]);
}

#[test]
fn a_router_that_refuses_is_left_alone_and_one_that_is_silent_is_undone() {
    let mut harness = Harness::new();
    for _ in 0..3 {
        harness.window([1000, 0]);
    }
    let Some(Action::Apply { id, .. }) = harness.controller.poll_action() else {
        panic!("no move")
    };
    let now = harness.now();
    harness.controller.handle_answer(id, Err("table full"), now);
    harness.work();
    assert!(harness.texts(EventKind::Refused)[0].ends_with("table full"));
    assert!(harness.steered().is_empty() && harness.controller.moves().count() == 0);

    let mut harness = Harness::new();
    for _ in 0..3 {
        harness.window([1000, 0]);
    }
    let mut sent = 0;
    for second in 0..60 {
        harness.controller.handle_timeout(harness.now() + Duration::from_secs(second));
        while let Some(action) = harness.controller.poll_action() {
            sent += u32::from(!matches!(action, Action::Read { .. }));
        }
    }
    assert!((4..12).contains(&sent), "{sent}");
    assert!(matches!(harness.controller.moves().next().unwrap().stage, Stage::Undoing { .. }));
}

#[test]
fn impossible_telemetry_raises_no_alarm_and_is_named() {
    let mut harness = Harness::new();
    let link = harness.link("leaf-0", "s0");
    for _ in 0..6 {
        // More marks than packets.
        harness.counters[link.index()].1 += u64::from(u32::MAX);
        harness.window([0, 0]);
        assert_eq!(harness.work(), []);
    }
    assert!(harness.controller.alarms().is_empty());
    assert!(harness.texts(EventKind::Doubt)[0].contains("marked packets"), "{:?}", harness.events);
    assert!(harness.controller.stats().doubts >= 6);
}

#[test]
fn a_state_survives_being_written_down_and_a_damaged_one_is_refused() {
    let mut harness = Harness::new();
    harness.until_moved();
    let text = serde_json::to_string(&harness.controller.state()).unwrap();
    // Another format needs another version.
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/state/moved.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(golden).unwrap(), text, "rerun with BLESS=1 to accept");
    let state: State = serde_json::from_str(&text).unwrap();
    assert_eq!(state, harness.controller.state());
    let fabric = harness.switches.fabric.clone();
    let restore = |state| {
        Controller::restore(ControllerConfig::default(), fabric.clone(), state, BTreeMap::new())
    };
    let restored = restore(state).unwrap();
    assert_eq!(restored.state(), harness.controller.state());
    let damaged = text.replacen("\"next_id\":2", "\"next_id\":1", 1);
    let state = serde_json::from_str(&damaged).unwrap();
    let error = restore(state).unwrap_err();
    assert!(error.to_string().starts_with("the state is damaged"), "{error}");
    let version = |version: u32| {
        let text = text.replacen("\"version\":3", &format!("\"version\":{version}"), 1);
        restore(serde_json::from_str(&text).unwrap())
    };
    assert_eq!(version(9).unwrap_err(), StateError::Version { got: 9 });
    assert!(version(2).is_ok(), "the version before is read");
}

/// A harness that announces flows from a host of leaf 0 to one of leaf 1.
struct Announcer {
    harness: Harness,
    pair: Pair,
}

impl Announcer {
    fn new(harness: Harness, gigabits: u64) -> Self {
        let rate = weft_units::BitRate::gbps(gigabits).unwrap();
        let (src, dst) = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        Self { harness, pair: Pair { src, first: None, dst, rate, port: None } }
    }

    fn announce(&mut self, name: &str, pairs: &[Pair]) -> Result<Announced, JobError> {
        let entropy = weft_plan::ports::Entropy::default();
        let (search, seed) = (PortSearch { entropy, tries: 64 }, weft_units::Seed(1));
        let now = self.harness.now();
        self.harness.controller.announce(name, pairs, search, seed, now)
    }

    /// Returns the uplink port by which a job of one flow is sent.
    fn spine(&mut self, name: &str) -> String {
        let announced = self.announce(name, &[self.pair]).unwrap();
        let link = self.uplink(announced.ports[0]);
        self.harness.switches.fabric.port_of(link).unwrap().1.name.clone()
    }

    fn flow(port: u16) -> Flow {
        format!("10.1.0.2:{port}>10.2.0.2").parse().unwrap()
    }

    fn uplink(&self, port: u16) -> LinkId {
        self.harness.switches.fabric.path(&Self::flow(port)).links()[1]
    }
}

#[test]
fn an_announced_jobs_ports_share_no_link_where_that_is_possible() {
    let mut it = Announcer::new(Harness::new(), 50);
    let pair = it.pair;
    let announced = it.announce("a", &[pair, pair]).unwrap();
    assert_ne!(it.uplink(announced.ports[0]), it.uplink(announced.ports[1]));
    assert_eq!(announced.kept, 0);
    for (name, pair, words) in [
        ("a b", pair, "\"a b\" is no job's name"),
        ("", pair, "\"\" is no job's name"),
        ("a", Pair { src: [0, 0, 0, 1].into(), ..pair }, "0.0.0.1 is no host"),
        ("a", Pair { dst: [0u16; 8].into(), ..pair }, "different families"),
        ("a", Pair { dst: [9, 9, 9, 9].into(), ..pair }, "has no route for it"),
    ] {
        let error = it.announce(name, &[pair]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(it.announce("a", &[]), Err(JobError::Empty));
    // A refused announcement changes nothing.
    assert_eq!(it.harness.controller.jobs()["a"].flows.len(), 2);
}

#[test]
fn jobs_count_before_they_begin_and_until_they_are_withdrawn() {
    let mut it = Announcer::new(Harness::new(), 50);
    let first = it.spine("first");
    let second = it.spine("second");
    assert_ne!(first, second, "nothing is measured yet, and both count");
    // A job that is announced again is the same job, and its own flows do not count against it.
    assert_eq!(it.spine("first"), first);
    it.harness.controller.withdraw("second", it.harness.now()).unwrap();
    assert_eq!(it.spine("third"), second);
    let error = it.harness.controller.withdraw("second", it.harness.now()).unwrap_err();
    assert_eq!(error.to_string(), "no job \"second\"; there are first, third");
}

#[test]
fn a_planned_port_is_kept_unless_a_link_of_its_path_is_full() {
    let mut it = Announcer::new(Harness::new(), 10);
    let planned = it.harness.flows[0].ports().0;
    let pair = Pair { port: Some(planned), ..it.pair };
    let announced = it.announce("a", &[pair]).unwrap();
    assert_eq!((announced.ports, announced.kept), (vec![planned], 1));
    // Both flows of the harness and others fill its link to 90 %.
    it.harness.window([0, 0]);
    let announced = it.announce("a", &[pair]).unwrap();
    assert_eq!(announced.kept, 0);
    assert_ne!(it.uplink(announced.ports[0]), it.uplink(planned));
}

#[test]
fn a_job_that_was_seen_counts_as_measured_and_is_forgotten_when_it_is_not_seen_for_long() {
    let mut harness = Harness::new();
    harness.controller.config.forget = Duration::from_secs(10 * WINDOW);
    let mut it = Announcer::new(harness, 30);
    let pairs = it.harness.flows.map(|flow| Pair { port: Some(flow.ports().0), ..it.pair });
    assert_eq!(it.announce("runs", &pairs).unwrap().kept, 2);
    it.announce("waits", &[it.pair]).unwrap();
    assert!(!it.harness.controller.jobs()["runs"].begun);
    it.harness.window([0, 0]);
    let begun = |it: &Announcer, name: &str| it.harness.controller.jobs()[name].begun;
    assert!(begun(&it, "runs") && !begun(&it, "waits"));
    for _ in 0..11 {
        it.harness.window([0, 0]);
    }
    let names: Vec<&String> = it.harness.controller.jobs().keys().collect();
    assert_eq!(names, ["runs"]);
    let events: Vec<Event> = core::iter::from_fn(|| it.harness.controller.poll_event()).collect();
    let forgotten = "waits forgotten: nothing of it was sampled for 10 windows";
    assert!(events.iter().any(|event| event.text == forgotten), "{events:?}");
}

#[test]
fn jobs_survive_a_restart_and_damaged_ones_are_refused() {
    let mut it = Announcer::new(Harness::new(), 50);
    let first = it.spine("first");
    let written = serde_json::to_string(it.harness.controller.jobs()).unwrap();
    let mut restarted = Harness::new();
    restarted.controller.restore_jobs(serde_json::from_str(&written).unwrap()).unwrap();
    let mut restarted = Announcer::new(restarted, 50);
    assert_ne!(restarted.spine("second"), first);

    let mut jobs = it.harness.controller.jobs().clone();
    let two = [49_153, 49_152]
        .map(|port| JobFlow { flow: Announcer::flow(port), ..jobs["first"].flows[0] });
    jobs.get_mut("first").unwrap().flows = two.to_vec();
    let error = restarted.harness.controller.restore_jobs(jobs.clone()).unwrap_err();
    assert_eq!(error.to_string(), "the saved jobs are damaged: a job's flows are out of order");
    let job = jobs.remove("first").unwrap();
    jobs.insert("a\nb".into(), job);
    assert!(matches!(restarted.harness.controller.restore_jobs(jobs), Err(JobError::Name(_))));
    assert_eq!(restarted.harness.controller.jobs().len(), 2, "the jobs before stay");
}

/// Reports the state of a router's port to a leaf, as read from the router.
fn set_port(harness: &mut Harness, router: &str, state: PortState) {
    let number = harness.switches.fabric.find(router).unwrap();
    let mut router = harness.switches.fabric.router(number).clone();
    router.ports[1].state = state;
    harness.switches.fabric.replace(router.clone()).unwrap();
    let now = harness.now();
    harness.controller.handle_tables(router, now).unwrap();
    assert_eq!(
        harness.controller.poll_timeout(),
        Some(Instant::EPOCH),
        "the paths of jobs are due"
    );
    harness.controller.handle_timeout(now);
}

#[test]
fn a_flow_whose_path_dies_gets_another_port_and_the_others_keep_theirs() {
    let mut it = Announcer::new(Harness::new(), 40);
    let pair = it.pair;
    it.announce("job", &[pair; 4]).unwrap();
    let jobs = |it: &Announcer| it.harness.controller.jobs()["job"].clone();
    let planned = jobs(&it);
    let uplinks = |it: &Announcer, job: &Job| -> Vec<LinkId> {
        job.flows.iter().map(|flow| it.uplink(flow.flow.ports().0)).collect()
    };
    let s0 = it.harness.link("leaf-0", "s0");
    let over_s0 = uplinks(&it, &planned).iter().filter(|&&link| link == s0).count();
    assert_eq!((planned.version, over_s0), (1, 2), "two of four on each spine");
    // The second port of a spine leads to leaf 1.
    set_port(&mut it.harness, "spine-0", PortState::NoCarrier);
    let after = jobs(&it);
    assert_eq!(after.version, 2);
    for flow in &after.flows {
        assert!(it.harness.switches.fabric.path(&flow.flow).arrives(), "{}", flow.flow);
    }
    let kept = after.flows.iter().filter(|flow| planned.flows.contains(flow)).count();
    assert_eq!(kept, 2, "flows over the other spine keep their ports");
    let events: Vec<String> = core::iter::from_fn(|| it.harness.controller.poll_event())
        .filter(|event| event.kind == EventKind::Job)
        .map(|event| event.text)
        .collect();
    let text =
        "the paths of 2 flows have changed or lose packets; 2 get other ports, 0 have no way";
    assert!(events.iter().any(|event| event.contains(text)), "{events:?}");
    // The cable's return changes no path, and so no port.
    set_port(&mut it.harness, "spine-0", PortState::Up);
    assert_eq!(jobs(&it), after);
}

#[test]
fn a_flow_without_a_way_keeps_its_port_until_there_is_one() {
    let mut it = Announcer::new(Harness::new(), 40);
    let pair = it.pair;
    it.announce("job", &[pair; 2]).unwrap();
    set_port(&mut it.harness, "spine-0", PortState::Down);
    let by_s1 = it.harness.controller.jobs()["job"].clone();
    set_port(&mut it.harness, "spine-1", PortState::Down);
    assert_eq!(it.harness.controller.jobs()["job"].flows, by_s1.flows);
    set_port(&mut it.harness, "spine-0", PortState::Up);
    let by_s0 = it.harness.controller.jobs()["job"].clone();
    assert_eq!(by_s0.version, by_s1.version + 1);
    let arrives =
        |it: &Announcer, flow: &JobFlow| it.harness.switches.fabric.path(&flow.flow).arrives();
    assert!(by_s0.flows.iter().all(|flow| arrives(&it, flow)));
}

#[test]
fn a_leased_job_ends_when_nobody_renews_it() {
    let mut it = Announcer::new(Harness::new(), 20);
    let pair = it.pair;
    it.announce("kept", &[pair]).unwrap();
    it.announce("leased", &[pair]).unwrap();
    let (began, lease) = (it.harness.now(), Duration::from_secs(5));
    let controller = &mut it.harness.controller;
    controller.set_job_lease("leased", Some(lease), began).unwrap();
    controller.handle_timeout(began + lease);
    assert_eq!(controller.renew_job("leased", began + lease).unwrap().version, 1);
    controller.handle_timeout(began + lease + lease);
    assert!(controller.jobs().contains_key("leased"));
    controller.handle_timeout(began + lease + lease + Duration::from_nanos(1));
    let names: Vec<&String> = controller.jobs().keys().collect();
    assert_eq!(names, ["kept"]);
    let unknown = controller.renew_job("leased", began).unwrap_err().to_string();
    assert!(unknown.contains("no job \"leased\""), "{unknown}");
    // A controller that does not steer refuses renewals, so leases do not expire meanwhile.
    controller.set_job_lease("kept", Some(lease), began).unwrap();
    let later = began + Duration::from_secs(1000);
    controller.set_lease(None, began);
    controller.handle_timeout(later);
    controller.set_lease(Some(2), later);
    controller.handle_timeout(later);
    assert!(controller.jobs().contains_key("kept"));
}
