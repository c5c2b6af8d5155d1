//! Successors of a controller decide as it would have decided: random fabrics' weather, with a change of the controller at
//! any step.

use alloc::string::ToString;

use weft_plan::ports::Entropy;
use weft_units::{BitRate, Duration, Instant, Rng, Seed};

use super::*;
use crate::controller::{Action, ControllerConfig, PortSearch};
use crate::fabric::{End, Fabric, LinkId};
use crate::flow::Flow;
use crate::installed::PortState;
use crate::probes::tests::leaf_spine;
use crate::simulate::Switches;
use crate::suspects::Sample;
use crate::telemetry::PortReport;
use crate::{Pair, RouterId};

const WINDOW: u64 = 10;
/// Number of windows of a run.
const WINDOWS: u64 = 24;

/// The fabric's behaviour in a run: the same for every controller of it.
#[derive(Clone)]
struct World {
    switches: Switches,
    /// By link, its bytes and marks so far.
    counters: Vec<(u64, u64)>,
    rng: Rng,
    seed: u64,
    window: u64,
    flows: Vec<(Flow, u64)>,
    /// Orders that routers have got and not yet answered.
    ordered: Vec<Action>,
}

/// A way in which a controller continues the work of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Successor {
    /// It is started from the state and the jobs that the other has saved.
    Restarted,
    /// It stood by on another host, with the same reports, and takes over the records.
    StoodBy,
}

fn config() -> ControllerConfig {
    let hold = Duration::from_secs(15);
    ControllerConfig { hold, bar: Duration::from_secs(60), ..ControllerConfig::default() }
}

impl World {
    fn new(seed: u64) -> Self {
        let fabric = leaf_spine(3, 4, 2);
        let counters = alloc::vec![(0, 0); fabric.links()];
        let (switches, rng) = (Switches::new(fabric), Seed(seed).child("weather", 0).rng());
        Self { switches, counters, rng, seed, window: 0, flows: Vec::new(), ordered: Vec::new() }
    }

    fn fabric(&self) -> &Fabric {
        &self.switches.fabric
    }

    fn at(&self, seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(WINDOW * (self.window + 1) + seconds)
    }

    fn address(&mut self) -> [u8; 4] {
        let (leaf, host) = (self.rng.below(3), self.rng.below(2));
        [10, u8::try_from(leaf).unwrap() + 1, u8::try_from(host).unwrap(), 2]
    }

    /// Changes flows and cables, and sends for a window. The controllers get its reports, and its changed tables.
    fn blow(&mut self, controllers: &mut [&mut Controller]) {
        self.window += 1;
        if self.flows.len() > 24 || self.rng.chance(1, 6) {
            let half = self.flows.len() / 2;
            self.flows.drain(..half);
        }
        for _ in 0..self.rng.below(6) {
            let (from, to) = (self.address(), self.address());
            let port = 49_152 + u16::try_from(self.rng.below(16_384)).unwrap();
            let flow = Flow::new((from, port).into(), (to, 4791).into(), 17).unwrap();
            let rate = 5_000_000_000 * (1 + self.rng.below(6));
            if from[1] != to[1] && self.flows.iter().all(|(other, _)| *other != flow) {
                self.flows.push((flow, rate));
            }
        }
        if self.rng.chance(1, 5) {
            self.toggle(controllers);
        }
        self.send(controllers);
    }

    fn toggle(&mut self, controllers: &mut [&mut Controller]) {
        let router = RouterId(3 + u32::try_from(self.rng.below(4)).unwrap());
        let mut router = self.fabric().router(router).clone();
        let port = self.rng.index(router.ports.len());
        let state = &mut router.ports[port].state;
        *state = if *state == PortState::Up { PortState::NoCarrier } else { PortState::Up };
        self.switches.fabric.replace(router.clone()).unwrap();
        for controller in controllers {
            controller.handle_tables(router.clone(), self.at(0)).unwrap();
        }
    }

    fn send(&mut self, controllers: &mut [&mut Controller]) {
        let fabric = self.fabric().clone();
        let mut loads = alloc::vec![0; fabric.links()];
        for &(flow, rate) in &self.flows {
            let path = fabric.path(&flow);
            for pair in path.links().array_windows::<2>() {
                loads[pair[1].index()] += rate;
                let (link, input) = (pair[1], Some(pair[0]));
                let at = Instant::from_nanos(self.at(0).as_nanos() - 1);
                let bytes = u32::try_from(rate * WINDOW / 8 / 40_000).unwrap();
                let sample = Sample { at, link, input, flow, bytes, packets: 200, rate: 40_000 };
                controllers.iter_mut().for_each(|it| it.handle_sample(sample));
            }
        }
        for link in fabric.link_ids().filter(|&it| matches!(fabric.from(it), End::Router(_))) {
            let load: u64 = loads[link.index()].min(fabric.rate(link).as_bps());
            let at = self.at(0);
            let (bytes, marks) = &mut self.counters[link.index()];
            *bytes += load / 8 * WINDOW;
            if loads[link.index()] > 60_000_000_000 {
                *marks += 600 + loads[link.index()] / 100_000_000;
            }
            let report = PortReport { link, at, bytes: *bytes, marks: *marks };
            controllers.iter_mut().for_each(|it| it.handle_report(report));
        }
    }

    /// Announces or withdraws a job now and then.
    fn operate(&mut self, controller: &mut Controller) {
        let name = ["a", "b", "c"][self.rng.index(3)];
        let pairs: Vec<Pair> = (0..=self.rng.below(6))
            .map(|_| {
                let (src, dst) = (self.address(), self.address());
                let rate = BitRate::gbps(1 + self.rng.below(20)).unwrap();
                Pair { src: src.into(), first: None, dst: dst.into(), rate, port: None }
            })
            .filter(|pair| pair.src != pair.dst)
            .collect();
        let search = PortSearch { entropy: Entropy::default(), tries: 8 };
        // Some have no way over the cables that are left.
        match self.rng.below(8) {
            0 => drop(controller.withdraw(name, self.at(1))),
            1 | 2 => drop(controller.announce(name, &pairs, search, Seed(self.seed), self.at(1))),
            _ => {}
        }
    }

    /// Evaluates the window, and gives the controller's orders to routers, which answer at once or in the next window.
    fn work(&mut self, controller: &mut Controller) {
        controller.handle_timeout(self.at(2));
        let mut late = Vec::new();
        loop {
            let mut orders = core::mem::take(&mut self.ordered);
            orders.extend(core::iter::from_fn(|| controller.poll_action()));
            orders.retain(|it| !late.contains(it));
            orders.sort_unstable_by_key(Self::order);
            orders.dedup();
            if orders.is_empty() {
                break;
            }
            for order in orders {
                if self.is_late(&order) && !matches!(order, Action::Read { .. }) {
                    late.push(order);
                } else {
                    self.carry_out(&order, controller);
                }
            }
        }
        self.ordered = late;
        core::iter::from_fn(|| controller.poll_event()).for_each(drop);
    }

    /// The order in which a router gets orders does not depend on that in which a controller gives them.
    fn order(action: &Action) -> (u64, String) {
        match action {
            Action::Apply { id, .. } | Action::Withdraw { id, .. } => (*id, String::new()),
            Action::Read { router } => (u64::MAX, router.clone()),
        }
    }

    /// The answer to an order depends on the order and on the window, and not on how often it is given.
    fn draw(&self, order: &Action, what: &str) -> Rng {
        Seed(self.seed).child(what, Self::order(order).0 ^ self.window << 32).rng()
    }

    fn is_late(&self, order: &Action) -> bool {
        self.draw(order, "late").chance(1, 3)
    }

    fn carry_out(&mut self, order: &Action, controller: &mut Controller) {
        let now = self.at(3);
        match order {
            Action::Read { router } => {
                let number = self.fabric().find(router).unwrap();
                let tables = self.fabric().router(number).clone();
                controller.handle_tables(tables, now).unwrap();
            }
            Action::Apply { id, .. } | Action::Withdraw { id, .. } => {
                if self.draw(order, "refused").chance(1, 5) {
                    controller.handle_answer(*id, Err("it refuses"), now);
                } else {
                    let answer = self.switches.apply(order);
                    controller.handle_answer(*id, answer, now);
                }
            }
        }
    }
}

/// The records of a store: the same text as a store keeps.
#[derive(Default)]
struct Store(BTreeMap<String, String>);

impl Store {
    fn keep(&mut self, changes: &[(RecordKey, Option<Record>)]) {
        for (key, record) in changes {
            match record {
                Some(it) => self.0.insert(key.to_string(), serde_json::to_string(it).unwrap()),
                None => self.0.remove(&key.to_string()),
            };
        }
    }

    fn read(&self) -> Vec<(RecordKey, Record)> {
        let read = |(key, text): (&String, &String)| {
            (key.parse().unwrap(), serde_json::from_str(text).unwrap())
        };
        self.0.iter().map(read).collect()
    }
}

/// Starts a controller from what another has saved. Its tables are those that were read last.
fn restarted(before: &Controller) -> Controller {
    fn copy<T: Serialize + serde::de::DeserializeOwned>(it: &T) -> T {
        serde_json::from_str(&serde_json::to_string(it).unwrap()).unwrap()
    }
    let (state, jobs) = (copy(&before.state()), copy(before.jobs()));
    Controller::restore(config(), before.fabric().clone(), state, jobs).unwrap()
}

/// Has a controller steer, and then read the tables of all routers: until then it may have those from before the moves.
fn begin(controller: &mut Controller, world: &World, epoch: u64, now: Instant) {
    let routers = world.fabric().installed().routers.clone();
    controller.expect_tables(routers.iter().map(|router| router.name.clone()).collect());
    controller.set_lease(Some(epoch), now);
    for router in routers {
        controller.handle_tables(router, now).unwrap();
    }
}

/// Returns a controller's decisions and observations.
fn decided(controller: &Controller) -> (Overview, Vec<Move>, BTreeMap<String, Job>, Vec<LinkId>) {
    let moves = controller.moves().cloned().collect();
    let mut jobs = controller.jobs().clone();
    // The times of renewals begin anew.
    jobs.values_mut().for_each(|job| job.renewed = None);
    let alarms = controller.alarms().keys().copied().collect();
    (controller.overview(), moves, jobs, alarms)
}

/// Runs a controller to the end, and beside it one that is followed by another before the window `change`. Returns the counts
/// of the first.
fn run(seed: u64, successor: Successor, change: u64) -> Stats {
    let mut whole_world = World::new(seed);
    let fabric = whole_world.fabric().clone();
    let new = || Controller::new(config(), fabric.clone());
    let (mut whole, mut first, mut standby) = (new(), new(), new());
    whole.set_lease(Some(1), Instant::EPOCH);
    first.set_lease(Some(1), Instant::EPOCH);
    let mut world = whole_world.clone();
    let (mut store, mut known) = (Store::default(), Known::default());
    for window in 0..WINDOWS {
        // A controller that stands by reads tables too.
        for router in &world.fabric().installed().routers {
            standby.handle_tables(router.clone(), world.at(0)).unwrap();
        }
        whole_world.blow(&mut [&mut whole]);
        world.blow(&mut [&mut first, &mut standby]);
        if window == change {
            let now = world.at(0);
            match successor {
                Successor::Restarted => first = restarted(&first),
                Successor::StoodBy => {
                    let taken = standby.take_over(store.read());
                    assert_eq!(taken.unused, []);
                    known = taken.known;
                    first = standby.clone();
                }
            }
            begin(&mut first, &world, 2, now);
        }
        whole_world.operate(&mut whole);
        whole_world.work(&mut whole);
        world.operate(&mut first);
        world.work(&mut first);
        let changes = first.changed_records(&mut known);
        store.keep(&changes);
        standby.handle_timeout(world.at(2));
        for (key, record) in changes {
            standby.follow_record(&key, record).unwrap();
        }
        let (want, got) = (decided(&whole), decided(&first));
        assert_eq!(got, want, "seed {seed}, {successor:?} in window {change}, now {window}");
        let installed = |world: &World| world.fabric().installed().clone();
        assert_eq!(installed(&world), installed(&whole_world), "seed {seed}, {successor:?}");
    }
    *whole.stats()
}

#[test]
fn a_successor_at_any_step_decides_as_the_controller_would_have() {
    for successor in [Successor::Restarted, Successor::StoodBy] {
        let mut sum = Stats::default();
        for seed in 0..120 {
            let stats = run(seed, successor, seed % (WINDOWS - 4));
            sum.moves += stats.moves;
            sum.kept += stats.kept;
            sum.undone += stats.undone;
            sum.refused += stats.refused;
        }
        let Stats { moves, kept, undone, refused, .. } = sum;
        assert!(moves > 200 && kept > 50 && undone > 20 && refused > 20, "{sum:?}");
    }
}

#[test]
fn records_that_contradict_themselves_are_refused() {
    let mut world = World::new(1);
    let mut controller = Controller::new(config(), world.fabric().clone());
    controller.set_lease(Some(1), Instant::EPOCH);
    let (mut store, mut known) = (Store::default(), Known::default());
    while controller.moves().count() == 0 || controller.jobs().is_empty() {
        world.blow(&mut [&mut controller]);
        world.operate(&mut controller);
        world.work(&mut controller);
        store.keep(&controller.changed_records(&mut known));
    }
    assert_eq!(controller.changed_records(&mut known), [], "nothing has changed since");
    let fresh = || Controller::new(config(), world.fabric().clone());
    assert_eq!(fresh().take_over(store.read()).unused, []);
    let overview = Record::Overview(Overview { version: RECORDS_VERSION + 1, ..Overview::first() });
    let error = fresh().follow_record(&RecordKey::Overview, Some(overview)).unwrap_err();
    assert_eq!(error, StateError::Records { got: RECORDS_VERSION + 1, read: RECORDS_VERSION });
    for (key, record) in store.read() {
        let other = match &key {
            RecordKey::Job(_) => RecordKey::Move("leaf-0".into(), Prefix::ALL),
            RecordKey::Move(..) => RecordKey::Move("leaf-0".into(), Prefix::ALL),
            RecordKey::Overview => RecordKey::Job("a".into()),
        };
        assert!(matches!(fresh().follow_record(&other, Some(record)), Err(StateError::Damaged(_))));
    }
    // What a store has not been given is a change, also where nothing was there.
    let mut known = fresh().take_over([]).known;
    let changes = fresh().changed_records(&mut known);
    assert!(matches!(&changes[..], [(RecordKey::Overview, Some(_))]), "{changes:?}");
}

#[test]
fn a_successor_uses_all_records_but_those_that_it_cannot_and_leaves_these_alone() {
    let mut world = World::new(1);
    let mut controller = Controller::new(config(), world.fabric().clone());
    controller.set_lease(Some(1), Instant::EPOCH);
    let (mut store, mut known) = (Store::default(), Known::default());
    while controller.moves().count() == 0 || controller.jobs().len() < 2 {
        world.blow(&mut [&mut controller]);
        world.operate(&mut controller);
        world.work(&mut controller);
        store.keep(&controller.changed_records(&mut known));
    }
    for damaged in store.read().into_iter().map(|(key, _)| key) {
        let other = Record::Overview(Overview { next_id: u64::MAX, ..Overview::first() });
        let records = store.read().into_iter().map(|(key, record)| {
            let record = if key == damaged { other.clone() } else { record };
            (key, record)
        });
        let mut successor = Controller::new(config(), world.fabric().clone());
        let TakenOver { mut known, unused } = successor.take_over(records);
        let unused: Vec<_> = unused.into_iter().map(|(key, _)| key).collect();
        assert_eq!(unused, std::slice::from_ref(&damaged));
        let want = |key: &RecordKey| *key != damaged;
        let jobs = controller.jobs().keys().filter(|name| want(&RecordKey::Job((*name).clone())));
        assert!(successor.jobs().keys().eq(jobs), "{damaged}");
        let moves = controller.moves();
        let moves = moves.filter(|it| want(&RecordKey::Move(it.router.clone(), it.prefix)));
        assert!(successor.moves().eq(moves), "{damaged}");
        // A number that a move has is given to no other.
        assert!(successor.moves().all(|it| it.id < successor.next_id), "{damaged}");
        let changed = successor.changed_records(&mut known);
        let changed: Vec<_> = changed.into_iter().map(|(key, _)| key).collect();
        assert!(changed.iter().all(|key| *key == RecordKey::Overview), "{damaged}: {changed:?}");
    }
}

#[test]
fn keys_are_read_as_they_are_written() {
    let host = Prefix::host([10, 1, 0, 2]);
    let keys = [
        RecordKey::Overview,
        RecordKey::Move("leaf-0".into(), host),
        RecordKey::Job("team/job:7@x".into()),
    ];
    for key in keys {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    for text in ["", "moves", "moves/leaf-0", "moves/leaf-0/here", "jobs/", "jobs/a b", "other/a"] {
        assert_eq!(text.parse::<RecordKey>(), Err(RecordKeyError(text.into())));
    }
}
