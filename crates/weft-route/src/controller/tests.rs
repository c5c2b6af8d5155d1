//! One fabric, told by hand what its ports carry: what the controller does with it.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::installed::{Installed, PortState};
use crate::simulate::{Switches, remove};
use crate::suspects::Sample;
use crate::{Flow, RouterId};

const TWO_BY_TWO: &str = include_str!("../../tests/golden/installed/two-by-two.toml");
const WINDOW: u64 = 10;

/// A controller with its switches, and counters that go on from window to window.
struct Desk {
    controller: Controller,
    switches: Switches,
    counters: Vec<(u64, u64)>,
    window: u64,
    /// How fast the job goes, in percent of 30 Gb/s a flow.
    pace: u64,
    /// Two flows that the leaf's hash sends by s0.
    flows: [Flow; 2],
    events: Vec<Event>,
}

impl Desk {
    fn new() -> Self {
        let fabric = Fabric::new(toml::from_str::<Installed>(TWO_BY_TWO).unwrap()).unwrap();
        let s0 = fabric.link_of_port(RouterId(0), "s0").unwrap();
        let flow = |port: u16| -> Flow { format!("10.1.0.2:{port}>10.2.0.2").parse().unwrap() };
        let mut by_s0 = (49_152..).map(flow).filter(|it| fabric.path(it).links()[1] == s0);
        let flows = [by_s0.next().unwrap(), by_s0.next().unwrap()];
        let mut controller = Controller::new(ControllerConfig::default(), fabric.clone());
        controller.set_lease(Some(1), Instant::EPOCH);
        let counters = alloc::vec![(0, 0); fabric.links()];
        let switches = Switches::new(fabric);
        let mut desk = Self {
            controller,
            switches,
            counters,
            window: 0,
            pace: 100,
            flows,
            events: Vec::new(),
        };
        desk.report();
        desk
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

    /// A window in which the two flows send 30 Gb/s each at full pace, others as much by s0, and this many packets are marked on the
    /// leaf's s0 and s1 while a flow is there.
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

    /// Does what the controller wants; which changes that were.
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

    /// Three windows with marks, after which there is a move.
    fn until_moved(&mut self) -> Vec<Action> {
        for _ in 0..2 {
            self.window([1000, 0]);
            assert_eq!(self.work(), [], "a low alarm moves nothing");
        }
        self.window([1000, 0]);
        self.work()
    }

    fn says(&self, what: What) -> Vec<&str> {
        let said = self.events.iter().filter(|event| event.what == what);
        said.map(|event| event.text.as_str()).collect()
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
    let mut desk = Desk::new();
    let changes = desk.until_moved();
    let [Action::Apply { router, prefix, members, epoch: 1, .. }] = &changes[..] else {
        panic!("{changes:?} {:?}", desk.events);
    };
    // Both flows go to one host, so they move together, to what others leave free.
    assert_eq!((router.as_str(), prefix.to_string().as_str()), ("leaf-0", "10.2.0.2/32"));
    assert_eq!(members.iter().map(|it| it.port.as_str()).collect::<Vec<_>>(), ["s1"]);
    let words = desk.says(What::Move).concat();
    assert!(words.starts_with("leaf-0 s0 → spine-0 is 90.0 % full; 10.1.0.2:"), "{words}");
    assert!(words.ends_with("→ leaf-1, 60.0 % full"), "{words}");
    desk.window([0, 0]);
    desk.work();
    desk.window([0, 0]);
    desk.work();
    assert_eq!(desk.says(What::Kept).len(), 1, "{:?}", desk.events);
    assert_eq!(desk.says(What::Cleared), ["medium alarm over after 3 windows"]);
    assert_eq!(desk.controller.stats().cleared_after, [0, 1, 0, 0]);
}

#[test]
fn a_move_that_does_not_help_is_undone_and_not_repeated() {
    let mut desk = Desk::new();
    desk.until_moved();
    assert_eq!(desk.steered().len(), 1);
    // Marks rise where flows went: the move made it worse.
    desk.window([0, 5000]);
    assert_eq!(desk.work(), []);
    desk.window([0, 5000]);
    let changes = desk.work();
    assert!(matches!(&changes[..], [Action::Withdraw { .. }]), "{changes:?}");
    assert!(desk.steered().is_empty());
    assert_eq!(desk.says(What::Undo), ["5000 marks in 187500 MB, 1000 marks in 187500 MB before"]);
    assert_eq!(desk.says(What::Undone).len(), 1);
    for _ in 0..20 {
        desk.window([1000, 0]);
        assert_eq!(desk.work(), [], "the same move again");
    }
    let refusal = desk.says(What::NoMove).concat();
    assert!(refusal.contains("were tried lately"), "{refusal}");
}

/// What a job gains by a move it sends, so marks rise with it; only more of them a byte are a harm.
#[test]
fn a_move_that_lets_its_job_run_faster_is_judged_by_marks_a_byte() {
    for (marks, what) in [(1190, What::Kept), (1210, What::Undo)] {
        let mut desk = Desk::new();
        desk.until_moved();
        desk.pace = 120;
        desk.window([0, marks]);
        desk.work();
        desk.window([0, marks]);
        desk.work();
        let words = alloc::format!("{marks} marks in 225000 MB, 1000 marks in 187500 MB before");
        assert_eq!(desk.says(what), [words], "{:?}", desk.events);
    }
}

#[test]
fn without_the_lease_it_watches_and_with_a_new_one_it_finds_what_is_installed() {
    let mut desk = Desk::new();
    desk.controller.set_lease(None, desk.now());
    assert_eq!(desk.until_moved(), []);
    assert_eq!(desk.says(What::Alarm).len(), 2);
    desk.controller.set_lease(Some(2), desk.now());
    desk.window([1000, 0]);
    assert_eq!(desk.work().len(), 1);
    // Another controller, which knows nothing, finds the move; the gate refuses the first one's epoch.
    let mut other = Controller::new(ControllerConfig::default(), desk.switches.fabric.clone());
    other.set_lease(Some(3), desk.now());
    assert_eq!(other.moves().map(|it| it.stage.clone()).collect::<Vec<_>>(), [Stage::Kept]);
    let router = "leaf-0".to_string();
    let withdraw = |epoch| Action::Withdraw {
        id: 1,
        epoch,
        router: router.clone(),
        prefix: Prefix::host([10, 2, 0, 2]),
    };
    desk.switches.apply(&withdraw(3)).unwrap();
    let refusal = desk.switches.apply(&withdraw(2)).unwrap_err();
    assert_eq!(refusal, "epoch 2 is over; a controller of epoch 3 has the lease");
}

#[test]
fn what_others_remove_is_installed_again_three_times() {
    let mut desk = Desk::new();
    desk.until_moved();
    desk.window([0, 0]);
    desk.window([0, 0]);
    desk.work();
    for round in 0..5 {
        let number = desk.switches.fabric.find("leaf-0").unwrap();
        let mut router = desk.switches.fabric.router(number).clone();
        remove(&mut router, Prefix::host([10, 2, 0, 2]));
        desk.switches.fabric.replace(router.clone()).unwrap();
        desk.controller.handle_tables(router, desk.now()).unwrap();
        let changes = desk.work();
        assert_eq!(desk.steered().len(), usize::from(round < 3), "round {round}: {changes:?}");
        if desk.steered().is_empty() {
            break;
        }
    }
}

#[test]
fn a_failed_link_undoes_the_moves_that_lead_over_it() {
    let mut desk = Desk::new();
    desk.until_moved();
    desk.window([0, 0]);
    desk.window([0, 0]);
    desk.work();
    let (_, ports) = desk.steered().remove(0);
    let spine = alloc::format!("spine-{}", &ports[0][1..]);
    let number = desk.switches.fabric.find(&spine).unwrap();
    let mut router = desk.switches.fabric.router(number).clone();
    router.ports[1].state = PortState::Down;
    desk.switches.fabric.replace(router.clone()).unwrap();
    desk.controller.handle_tables(router, desk.now()).unwrap();
    let changes = desk.work();
    assert!(matches!(&changes[..], [Action::Withdraw { .. }]), "{changes:?} {:?}", desk.events);
    assert_eq!(desk.says(What::Link), ["the port is down"]);
}

#[test]
fn a_router_that_refuses_is_left_alone_and_one_that_is_silent_is_undone() {
    let mut desk = Desk::new();
    for _ in 0..3 {
        desk.window([1000, 0]);
    }
    let Some(Action::Apply { id, .. }) = desk.controller.poll_action() else { panic!("no move") };
    let now = desk.now();
    desk.controller.handle_answer(id, Err("table full".into()), now);
    desk.work();
    assert!(desk.says(What::Refused)[0].ends_with("table full"));
    assert!(desk.steered().is_empty() && desk.controller.moves().count() == 0);

    let mut desk = Desk::new();
    for _ in 0..3 {
        desk.window([1000, 0]);
    }
    let mut told = 0;
    for second in 0..60 {
        desk.controller.handle_timeout(desk.now() + Duration::from_secs(second));
        while let Some(action) = desk.controller.poll_action() {
            told += u32::from(!matches!(action, Action::Read { .. }));
        }
    }
    assert!((4..12).contains(&told), "{told}");
    assert!(matches!(desk.controller.moves().next().unwrap().stage, Stage::Undoing { .. }));
}

#[test]
fn telemetry_that_lies_raises_no_alarm_and_is_named() {
    let mut desk = Desk::new();
    let link = desk.link("leaf-0", "s0");
    for _ in 0..6 {
        // More marks than packets.
        desk.counters[link.index()].1 += u64::from(u32::MAX);
        desk.window([0, 0]);
        assert_eq!(desk.work(), []);
    }
    assert!(desk.controller.alarms().is_empty());
    assert!(desk.says(What::Doubt)[0].contains("marked packets"), "{:?}", desk.events);
    assert!(desk.controller.stats().doubts >= 6);
}

#[test]
fn a_state_survives_being_written_down_and_a_damaged_one_is_refused() {
    let mut desk = Desk::new();
    desk.until_moved();
    let text = serde_json::to_string(&desk.controller.state()).unwrap();
    // Another form is another version.
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/state/moved.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(golden).unwrap(), text, "rerun with BLESS=1 to accept");
    let state: State = serde_json::from_str(&text).unwrap();
    assert_eq!(state, desk.controller.state());
    let fabric = desk.switches.fabric.clone();
    let restored = Controller::restore(ControllerConfig::default(), fabric.clone(), state).unwrap();
    assert_eq!(restored.state(), desk.controller.state());
    let damaged = text.replacen("\"next_id\":2", "\"next_id\":1", 1);
    let state = serde_json::from_str(&damaged).unwrap();
    let error =
        Controller::restore(ControllerConfig::default(), fabric.clone(), state).unwrap_err();
    assert!(error.to_string().starts_with("the state is damaged"), "{error}");
    let other = text.replacen("\"version\":2", "\"version\":9", 1);
    let state = serde_json::from_str(&other).unwrap();
    let error = Controller::restore(ControllerConfig::default(), fabric, state).unwrap_err();
    assert_eq!(error, StateError::Version { got: 9 });
}

#[test]
fn an_announced_jobs_ports_share_no_link_where_that_is_possible() {
    let mut desk = Desk::new();
    let pair = Pair {
        src: [10, 1, 0, 2].into(),
        first: None,
        dst: [10, 2, 0, 2].into(),
        rate: weft_units::BitRate::gbps(50).unwrap(),
    };
    let entropy = weft_plan::ports::Entropy::default();
    let seed = weft_units::Seed(1);
    let now = desk.now();
    let ports = desk.controller.announce(&[pair, pair], (entropy, 64), seed, now).unwrap();
    let first = |port: u16| {
        let flow: Flow = format!("10.1.0.2:{port}>10.2.0.2").parse().unwrap();
        desk.switches.fabric.path(&flow).links()[1]
    };
    assert_ne!(first(ports[0]), first(ports[1]));
    let stranger = Pair { src: [0, 0, 0, 1].into(), ..pair };
    let error = desk.controller.announce(&[stranger], (entropy, 64), seed, now).unwrap_err();
    assert!(error.to_string().contains("0.0.0.1 is no host"), "{error}");
    let mixed = Pair { dst: [0u16; 8].into(), ..pair };
    let error = desk.controller.announce(&[mixed], (entropy, 64), seed, now).unwrap_err();
    assert!(error.to_string().contains("different families"), "{error}");
}
