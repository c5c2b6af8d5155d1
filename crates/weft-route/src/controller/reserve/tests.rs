//! Tests of reservations on two leaves and two or three spines, with links of 100 Gb/s.

use alloc::string::ToString;
use alloc::vec;

use weft_plan::ports::Entropy;
use weft_units::{BitRate, Seed};

use super::*;
use crate::alarm::Level;
use crate::controller::tests::Harness;
use crate::controller::{ControllerConfig, Pair, PortSearch};
use crate::installed::{Installed, PortState};
use crate::telemetry::PortReport;
use crate::{Fabric, ReservationRules, RouterId};

const TWO_BY_TWO: &str = include_str!("../../../tests/golden/installed/two-by-two.toml");
const TWO_BY_THREE: &str = include_str!("../../../tests/golden/installed/two-by-three.toml");
const WINDOW: u64 = 10;
/// The length of a burst in steps of half a second.
const LENGTH: u64 = 8;
/// The rate of a link, and the marks in half a second of a job that exceeds it.
const RATE: BitRate = BitRate::gbps(100).unwrap();
const MARKS: u64 = 200;

/// Jobs of one flow each from a host of leaf 0 to one of leaf 1.
struct World {
    controller: Controller,
    /// By name, the step of the iteration in which the job's burst begins; none for a job that always sends.
    begins: BTreeMap<String, Option<u64>>,
    bytes: Vec<u64>,
    marks: Vec<u64>,
    /// `true` if samples name the link on which packets were received.
    has_input: bool,
    /// The length of an iteration in steps of half a second.
    period: u64,
    step: u64,
}

impl World {
    fn new(horizon: Duration) -> Self {
        Self::on(TWO_BY_TWO, horizon)
    }

    fn on(installed: &str, horizon: Duration) -> Self {
        let fabric = Fabric::new(toml::from_str::<Installed>(installed).unwrap()).unwrap();
        let reservations = ReservationRules { horizon, ..ReservationRules::default() };
        let config = ControllerConfig { reservations, ..ControllerConfig::default() };
        let [bytes, marks] = [(); 2].map(|()| vec![0; fabric.links()]);
        let mut controller = Controller::new(config, fabric);
        controller.set_lease(Some(1), Instant::EPOCH);
        Self {
            controller,
            begins: BTreeMap::new(),
            bytes,
            marks,
            has_input: true,
            period: 20,
            step: 0,
        }
    }

    /// Returns a world in which `a` and `c` use s0 and `b` uses s1; the bursts of `a` and `b` begin at different times.
    fn with_three(horizon: Duration, c_begins: u64) -> Self {
        let mut world = Self::new(horizon);
        for (name, spine, begins) in [("a", "s0", 0), ("b", "s1", 10), ("c", "s0", c_begins)] {
            world.announce(name, 60, Some(spine), Some(begins));
        }
        world
    }

    fn now(&self) -> Instant {
        Instant::EPOCH + Duration::from_millis(500) * self.step + Duration::from_secs(2)
    }

    fn uplink(&self, port: &str) -> LinkId {
        self.controller.fabric().link_of_port(RouterId(0), port).unwrap()
    }

    /// Announces a job, with a port that leads over a spine if one is named. Returns the port of the leaf that it takes.
    fn announce(
        &mut self,
        name: &str,
        gigabits: u64,
        spine: Option<&str>,
        begins: Option<u64>,
    ) -> String {
        let port = spine.map(|spine| {
            let takes = |port: &u16| {
                let flow: Flow = format!("10.1.0.2:{port}>10.2.0.2:4791/udp").parse().unwrap();
                self.controller.fabric().path(&flow).links()[1] == self.uplink(spine)
            };
            // Each job has flows of its own.
            let first = 49_152 + 64 * u16::try_from(self.begins.len()).unwrap();
            (first..).find(takes).unwrap()
        });
        let (src, dst) = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        let pair = Pair { src, dst, first: None, rate: BitRate::gbps(gigabits).unwrap(), port };
        let search = PortSearch { entropy: Entropy::default(), tries: 64 };
        self.controller.announce(name, &[pair], search, Seed(1), self.now()).unwrap();
        self.begins.insert(name.to_owned(), begins);
        self.takes(name)
    }

    /// Returns the uplink that a job takes.
    fn takes(&self, name: &str) -> String {
        let flow = self.controller.jobs()[name].flows[0].flow;
        let link = self.controller.fabric().path(&flow).links()[1];
        self.controller.fabric().port_of(link).unwrap().1.name.clone()
    }

    /// The cable from a spine to leaf 1 fails: leaf 0 still sends to that spine.
    fn fail(&mut self, spine: &str) {
        let fabric = self.controller.fabric();
        let mut router = fabric.router(fabric.find(spine).unwrap()).clone();
        router.ports[1].state = PortState::NoCarrier;
        let now = self.now();
        self.controller.handle_tables(router, now).unwrap();
        self.controller.handle_timeout(now);
    }

    /// Returns what is reserved on an uplink, in Gb/s.
    fn reserved(&self, port: &str) -> u64 {
        self.controller.reserved(self.uplink(port)) / 1_000_000_000
    }

    fn run(&mut self, windows: u64) {
        for _ in 0..windows * WINDOW * 2 {
            for (name, begins) in &self.begins {
                let Some(job) = self.controller.jobs().get(name) else { continue };
                let since = |begins| (self.step + self.period - begins) % self.period;
                let pauses = begins.is_some_and(|begins| since(begins) >= LENGTH);
                if !pauses {
                    let it = job.flows[0];
                    let links = self.controller.fabric().path(&it.flow).links().to_vec();
                    let bytes = it.rate.as_bps() / 16;
                    links.iter().for_each(|link| self.bytes[link.index()] += bytes);
                    if it.rate > RATE {
                        self.marks[links[1].index()] += MARKS;
                    }
                    let at = Instant::EPOCH + Duration::from_millis(500) * self.step;
                    let (packets, rate) = (10, 40_000);
                    let bytes = u32::try_from(bytes / 40_000).unwrap();
                    let flow = it.flow;
                    // Its leaf samples a packet, and the spine samples it again.
                    for hop in [1, 2] {
                        let link = links[hop];
                        let input = self.has_input.then_some(links[hop - 1]);
                        let sample = Sample { at, link, input, flow, bytes, packets, rate };
                        self.controller.handle_sample(sample);
                    }
                }
            }
            self.step += 1;
            if self.step.is_multiple_of(WINDOW * 2) {
                self.end_window();
            }
        }
    }

    fn end_window(&mut self) {
        let at = Instant::EPOCH + Duration::from_millis(500) * self.step;
        for link in self.controller.fabric().link_ids() {
            if self.controller.fabric().port_of(link).is_some() {
                let (bytes, marks) = (self.bytes[link.index()], self.marks[link.index()]);
                self.controller.handle_report(PortReport { link, at, bytes, marks });
            }
        }
        self.controller.handle_timeout(self.now());
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn jobs_whose_bursts_alternate_share_a_link() {
    let mut world = World::with_three(MINUTE, 10);
    world.run(12);
    assert_eq!(world.takes("a"), world.takes("c"));
    assert_eq!([world.reserved("s0"), world.reserved("s1")], [60, 60]);
    assert_eq!(world.controller.jobs()["c"].version, 1, "no port was changed");
    let bursts = world.controller.jobs()["a"].bursts.unwrap();
    assert_eq!((bursts.period, bursts.length), (Duration::from_secs(10), Duration::from_secs(4)));
}

#[test]
fn jobs_whose_bursts_coincide_are_separated() {
    let mut world = World::with_three(MINUTE, 0);
    assert_eq!(world.takes("a"), world.takes("c"));
    world.run(12);
    assert_ne!(world.takes("a"), world.takes("c"));
    assert_eq!([world.reserved("s0"), world.reserved("s1")], [60, 60]);
    let events: Vec<String> =
        core::iter::from_fn(|| world.controller.poll_event()).map(|it| it.text).collect();
    let words = "1 flows coincide with other bursts on full links; 1 get other ports";
    assert!(events.iter().any(|text| text.contains(words)), "{events:?}");
    assert!(events.iter().any(|it| it.starts_with("a sends for 4s of every 10s")), "{events:?}");
    // Without reservations they stay.
    let mut world = World::with_three(Duration::ZERO, 0);
    world.run(12);
    assert_eq!(world.takes("a"), world.takes("c"));
    assert_eq!(world.reserved("s0"), 0);
}

#[test]
fn bursts_are_found_by_samples_that_name_one_port() {
    let mut world = World::with_three(MINUTE, 0);
    world.has_input = false;
    world.run(12);
    assert_ne!(world.takes("a"), world.takes("c"));
    assert_eq!([world.reserved("s0"), world.reserved("s1")], [60, 60]);
}

#[test]
fn a_new_job_is_planned_on_bursts_that_coincide_and_not_on_their_sum() {
    for (horizon, port) in [(MINUTE, "s0"), (Duration::ZERO, "s1")] {
        let mut world = World::new(horizon);
        world.announce("a", 60, Some("s0"), Some(0));
        world.announce("b", 80, Some("s1"), None);
        world.announce("c", 60, Some("s0"), Some(10));
        world.run(12);
        // On s0 two bursts of 60 Gb/s alternate, on s1 80 Gb/s are sent all the time.
        assert_eq!(world.announce("d", 40, None, None), port, "{horizon}");
    }
}

#[test]
fn flows_of_a_failed_cable_go_where_bursts_alternate() {
    let mut world = World::on(TWO_BY_THREE, MINUTE);
    // When a cable fails, the announced rates alone would put `a` beside `c` and `d` beside `b`, whose bursts coincide.
    for (name, gigabits, spine, begins) in
        [("a", 60, "s0", 0), ("b", 80, "s1", 10), ("c", 60, "s2", 0), ("d", 60, "s0", 10)]
    {
        world.announce(name, gigabits, Some(spine), Some(begins));
    }
    world.run(12);
    assert_eq!(["a", "b", "c", "d"].map(|it| world.takes(it)), ["s0", "s1", "s2", "s0"]);
    world.fail("spine-0");
    assert_eq!(["a", "b", "c", "d"].map(|it| world.takes(it)), ["s1", "s1", "s2", "s2"]);
    world.run(6);
    assert_eq!(["s0", "s1", "s2"].map(|it| world.reserved(it)), [0, 80, 60]);
    assert_eq!(world.controller.jobs()["a"].version, 2, "it stays where it was put");
}

#[test]
fn a_reservation_ends_with_its_job_and_with_its_period() {
    let mut world = World::with_three(MINUTE, 10);
    world.run(12);
    world.controller.withdraw("b", world.now()).unwrap();
    assert_eq!([world.reserved("s0"), world.reserved("s1")], [60, 0]);
    world.controller.withdraw("c", world.now()).unwrap();
    world.begins.insert("a".to_string(), None);
    world.run(6);
    assert_eq!((world.controller.jobs()["a"].bursts, world.reserved("s0")), (None, 0));
    let events: Vec<String> =
        core::iter::from_fn(|| world.controller.poll_event()).map(|it| it.text).collect();
    assert!(
        events.contains(&"a is not periodic any more; its reservations end".into()),
        "{events:?}"
    );
}

#[test]
fn a_link_is_expected_to_carry_bursts_and_not_their_mean() {
    let mut world = World::new(MINUTE);
    world.announce("a", 60, Some("s0"), Some(0));
    world.run(12);
    let (link, now) = (world.uplink("s0"), world.now());
    let measured = world.controller.telemetry().window(link, 11).unwrap().rate();
    // 60 Gb/s for four of ten seconds.
    assert_eq!(measured / 1_000_000_000, 24);
    let coming = world.controller.coming(None, now);
    assert_eq!(coming.expected(link, measured) / 1_000_000_000, 60);
    // Traffic that nobody announced comes on top.
    assert_eq!(coming.expected(link, measured + 9_000_000_000) / 1_000_000_000, 69);
    // Flows that are sent in the pauses find the link empty.
    let bursts = world.controller.jobs()["a"].bursts.unwrap();
    let pauses = Bursts { start: bursts.start + Duration::from_secs(5), ..bursts };
    let in_pauses = coming.during(Some(pauses));
    assert_eq!(in_pauses.peak(link), 0);
    // Other traffic may be sent in the same two fifths of the time.
    assert_eq!(in_pauses.expected(link, measured + 2_000_000_000) / 100_000_000, 50);
    assert_eq!(coming.during(Some(bursts)).peak(link) / 1_000_000_000, 60);
}

#[test]
fn a_job_that_pauses_for_whole_windows_raises_a_medium_alarm() {
    let mut world = World::new(MINUTE);
    // Bursts of 4 s in every second window of 10 s, each with 1,600 marks.
    world.period = 40;
    world.announce("a", 110, Some("s0"), Some(2));
    // Not yet periodic.
    world.run(5);
    let levels = |world: &World| -> Vec<Level> {
        world.controller.alarms().values().map(|it| it.level).collect()
    };
    assert_eq!(levels(&world), [Level::Low]);
    world.run(1);
    assert_eq!(levels(&world), [], "a window without marks ends the alarm");
    world.run(13);
    assert_eq!(levels(&world), [Level::Medium]);
    let bursts = world.controller.jobs()["a"].bursts.unwrap();
    assert_eq!(bursts.period, Duration::from_secs(20));
    world.run(1);
    assert_eq!(levels(&world), [Level::Medium], "the job has only paused");
    world.controller.withdraw("a", world.now()).unwrap();
    world.run(1);
    assert_eq!(levels(&world), []);
}

#[test]
fn a_move_is_not_verified_in_a_window_in_which_its_job_pauses() {
    let mut harness = Harness::new();
    harness.until_moved();
    let controller = &mut harness.controller;
    let it = controller.moves().next().unwrap().clone();
    assert!(!controller.is_pause(&it, 3), "its flows are of no job");
    let rate = BitRate::gbps(30).unwrap();
    let mut flows: Vec<_> =
        it.flows.iter().map(|&(flow, _)| super::super::JobFlow { flow, cable: 0, rate }).collect();
    flows.sort_unstable_by_key(|it| it.flow);
    // A burst in every second window of ten seconds.
    let bursts = Bursts {
        period: Duration::from_secs(20),
        length: Duration::from_secs(8),
        start: Instant::EPOCH + Duration::from_secs(1),
        jitter: Duration::ZERO,
    };
    controller.jobs.insert("job".into(), Job { flows, bursts: Some(bursts), ..Job::empty() });
    controller.record_largest();
    controller.reserve_links(Instant::EPOCH);
    assert_eq!(
        [2, 3, 4, 5].map(|index| controller.is_pause(&it, index)),
        [false, true, false, true]
    );
}
