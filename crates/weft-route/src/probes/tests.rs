//! Tests of the localization on a leaf-spine fabric, with reports made from the losses and delays of links.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::fmt::Write as _;

use super::*;
use crate::installed::Installed;

/// The port at which hosts answer.
const PORT: u16 = 4794;
/// The interval of reports.
const INTERVAL: Duration = Duration::from_millis(200);
/// Probes of a path in an interval: one every 10 ms.
const SENT: u32 = 20;
/// The round-trip time without load.
const ROUND_TRIP_NS: u64 = 20_000;

/// Returns a fabric of leaves with hosts `10.LEAF.HOST.2`, from leaf 1 on.
pub(crate) fn leaf_spine(leaves: usize, spines: usize, hosts: usize) -> Fabric {
    let mut text = String::new();
    for leaf in 0..leaves {
        writeln!(text, "[[router]]\nname = 'leaf-{leaf}'").unwrap();
        writeln!(text, "hash.linux = {{ policy = 3, fields = 0x37, seed = {} }}", 1000 + leaf)
            .unwrap();
        writeln!(text, "port = [").unwrap();
        for host in 0..hosts {
            let to = format!("to.host = '10.{}.{host}.2'", leaf + 1);
            writeln!(
                text,
                "{{ name = 'h{host}', ifindex = {}, speed = '100Gbps', {to} }},",
                2 + host
            )
            .unwrap();
        }
        for spine in 0..spines {
            let to = format!("to.peer = {{ router = 'spine-{spine}', port = 'l{leaf}' }}");
            writeln!(
                text,
                "{{ name = 's{spine}', ifindex = {}, speed = '100Gbps', {to} }},",
                2 + hosts + spine
            )
            .unwrap();
        }
        let members =
            (0..spines).map(|spine| format!("{{ port = 's{spine}', via = '10.100.{spine}.2' }}"));
        let members = members.collect::<Vec<_>>().join(", ");
        writeln!(
            text,
            "]\ngroup = [{{ name = 'up', kind = 'hash-threshold', members = [{members}] }},"
        )
        .unwrap();
        for host in 0..hosts {
            writeln!(
                text,
                "{{ name = 'h{host}', kind = 'single', members = [{{ port = 'h{host}' }}] }},"
            )
            .unwrap();
        }
        writeln!(text, "]\nroute = [{{ to = '0.0.0.0/0', via.group = 'up' }},").unwrap();
        for host in 0..hosts {
            writeln!(text, "{{ to = '10.{}.{host}.2/32', via.group = 'h{host}' }},", leaf + 1)
                .unwrap();
        }
        writeln!(text, "]").unwrap();
    }
    for spine in 0..spines {
        let hash = format!("{{ policy = 3, fields = 0x37, seed = {} }}", 2000 + spine);
        writeln!(text, "[[router]]\nname = 'spine-{spine}'\nhash.linux = {hash}").unwrap();
        let each = |line: &dyn Fn(usize) -> String| (0..leaves).map(line).collect::<String>();
        let ports = each(&|leaf| {
            format!("{{ name = 'l{leaf}', ifindex = {}, speed = '100Gbps' }},", 2 + leaf)
        });
        let groups = each(&|leaf| {
            format!("{{ name = 'l{leaf}', kind = 'single', members = [{{ port = 'l{leaf}' }}] }},")
        });
        let routes =
            each(&|leaf| format!("{{ to = '10.{}.0.0/16', via.group = 'l{leaf}' }},", leaf + 1));
        writeln!(text, "port = [{ports}]\ngroup = [{groups}]\nroute = [{routes}]").unwrap();
    }
    Fabric::new(toml::from_str::<Installed>(&text).unwrap()).unwrap()
}

/// A fabric whose hosts probe each other over eight ports each.
pub(crate) struct Prober {
    pub(crate) fabric: Fabric,
    hosts: Vec<IpAddr>,
    /// By link, the share of packets that are lost, in thousandths.
    pub(crate) lossy: BTreeMap<LinkId, u32>,
    /// By link, the time for which packets wait.
    pub(crate) slow: BTreeMap<LinkId, Duration>,
    /// Hosts that report everything as lost.
    pub(crate) liars: BTreeSet<IpAddr>,
    /// Number of probes of a path in an interval.
    pub(crate) sent: u32,
}

impl Prober {
    pub(crate) fn new(fabric: Fabric) -> Self {
        let hosts = fabric.link_ids().filter_map(|link| match fabric.from(link) {
            End::Host(host) => fabric.addresses(host).iter().next(),
            _ => None,
        });
        let hosts = hosts.collect();
        let (lossy, slow, liars) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { fabric, hosts, lossy, slow, liars, sent: SENT }
    }

    pub(crate) fn link(&self, router: &str, port: &str) -> LinkId {
        self.fabric.link_of_port(self.fabric.find(router).unwrap(), port).unwrap()
    }

    /// Returns every host's report of an interval.
    pub(crate) fn reports(&self) -> Vec<ProbeReport> {
        let of = |&source: &IpAddr| {
            let others = self.hosts.iter().filter(|&&to| to != source);
            let pairs = others.flat_map(|&to| (50_000..50_008).map(move |port| (to, port)));
            let paths = pairs.map(|(to, port)| self.path(source, to, port)).collect();
            ProbeReport { source, port: PORT, paths }
        };
        self.hosts.iter().map(of).collect()
    }

    fn path(&self, source: IpAddr, destination: IpAddr, source_port: u16) -> ProbedPath {
        let ends = ((source, source_port).into(), (destination, PORT).into());
        let [out, back] = [(ends.0, ends.1), (ends.1, ends.0)]
            .map(|(from, to)| self.fabric.path(&Flow::new(from, to, 17).unwrap()));
        assert!(out.arrives() && back.arrives());
        let links = || out.links().iter().chain(back.links());
        let arriving = links().fold(self.sent, |left, link| {
            left - (left * self.lossy.get(link).copied().unwrap_or(0) + 500) / 1000
        });
        let lost = if self.liars.contains(&source) { self.sent } else { self.sent - arriving };
        let waits = links().filter_map(|link| self.slow.get(link)).map(|it| it.as_nanos());
        let ns = ROUND_TRIP_NS + waits.sum::<u64>();
        let round_trip = RoundTrip { min_ns: ns, median_ns: ns, p99_ns: ns };
        let round_trip = (lost < self.sent).then_some(round_trip);
        ProbedPath { destination, source_port, sent: self.sent, lost, round_trip }
    }
}

/// Probes with a clock.
struct World {
    prober: Prober,
    probes: Probes,
    now: Instant,
}

impl World {
    /// Three leaves of two hosts, four spines.
    fn new() -> Self {
        Self::of(leaf_spine(3, 4, 2))
    }

    /// Probes without faults run for two seconds.
    fn of(fabric: Fabric) -> Self {
        let probes = Probes::new(ProbeRules::default());
        let mut world = Self { prober: Prober::new(fabric), probes, now: Instant::EPOCH };
        assert_eq!(world.run(10), Vec::new());
        world
    }

    /// Runs for some intervals, and returns the changes of alarms.
    fn run(&mut self, intervals: u32) -> Vec<ProbeChange> {
        let mut changes = Vec::new();
        for _ in 0..intervals {
            self.now += INTERVAL;
            for report in self.prober.reports() {
                self.probes.record(&report, &self.prober.fabric, self.now).unwrap();
            }
            changes.extend(self.probes.evaluate(&self.prober.fabric, self.now));
        }
        changes
    }

    /// Returns the links with alarms, as their names and faults.
    fn alarms(&self) -> Vec<(String, LinkFault)> {
        let name = |link| self.prober.fabric.name(link).to_string();
        self.probes.alarms().map(|(link, alarm)| (name(link), alarm.fault)).collect()
    }
}

#[test]
fn one_lossy_link_is_found_within_a_second_and_no_other() {
    let mut world = World::new();
    let lossy = world.prober.link("leaf-0", "s1");
    world.prober.lossy.insert(lossy, 200);
    let mut intervals = 0;
    while world.alarms().is_empty() {
        world.run(1);
        intervals += 1;
        assert!(intervals <= 5, "no alarm after {}", INTERVAL * intervals);
    }
    assert_eq!(world.alarms(), [("leaf-0 s1 → spine-1".into(), LinkFault::Loss)]);
    world.run(10);
    let alarms: Vec<_> = world.probes.alarms().collect();
    let [(link, alarm)] = alarms[..] else { panic!("{alarms:?}") };
    assert_eq!(link, lossy);
    assert_eq!((alarm.lost_per_mille, alarm.suffering), (200, alarm.paths));
    // Its two hosts probe over it, and the answers to the four others cross it.
    assert_eq!((alarm.votes, alarm.sources, alarm.avoided), (6, 6, Some(alarm.since)));
    assert!(alarm.others.is_empty());
}

#[test]
fn several_lossy_links_are_found_together() {
    let mut world = World::new();
    for (router, port, loss) in
        [("leaf-0", "s1", 200), ("spine-3", "l2", 500), ("leaf-1", "h0", 300)]
    {
        world.prober.lossy.insert(world.prober.link(router, port), loss);
    }
    world.run(10);
    let names: BTreeSet<String> = world.alarms().into_iter().map(|(name, _)| name).collect();
    // A probe of a host and its answer cross both directions of the host's cable.
    let cable = ["leaf-1 h0 → host 10.2.0.2", "host 10.2.0.2 → leaf-1"];
    let want = [&cable[..], &["leaf-0 s1 → spine-1", "spine-3 l2 → leaf-2"]].concat();
    assert_eq!(names, want.into_iter().map(String::from).collect());
    let avoided = world.probes.alarms().filter(|(_, it)| it.avoided.is_some()).count();
    assert_eq!(avoided, 2, "no port avoids a host's cable");
}

#[test]
fn links_that_probes_do_not_distinguish_are_named_together() {
    // Between two leaves, every packet from leaf 0 to spine 1 goes on to leaf 1.
    let mut world = World::of(leaf_spine(2, 2, 2));
    world.prober.lossy.insert(world.prober.link("leaf-0", "s1"), 200);
    world.run(5);
    let names: Vec<String> = world.alarms().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["leaf-0 s1 → spine-1", "spine-1 l1 → leaf-1"]);
    assert!(world.probes.alarms().all(|(_, alarm)| alarm.others.len() == 1));
}

#[test]
fn a_queue_on_a_shared_link_shows_as_delay_and_is_not_avoided() {
    let mut world = World::new();
    let slow = world.prober.link("spine-2", "l1");
    world.prober.slow.insert(slow, Duration::from_micros(500));
    world.run(5);
    assert_eq!(world.alarms(), [("spine-2 l1 → leaf-1".into(), LinkFault::Delay)]);
    let (_, alarm) = world.probes.alarms().next().unwrap();
    assert_eq!((alarm.delay_ns, alarm.lost_per_mille, alarm.avoided), (500_000, 0, None));
    // A delay below the threshold, or one of all paths, is none.
    world.prober.slow.clear();
    world.run(40);
    assert_eq!(world.alarms(), []);
    world.prober.slow.insert(slow, Duration::from_micros(150));
    world.run(10);
    world.prober.slow =
        world.prober.fabric.link_ids().map(|link| (link, Duration::from_millis(1))).collect();
    world.run(10);
    assert_eq!(world.alarms(), []);
}

#[test]
fn too_few_probes_are_no_verdict() {
    let mut world = World::new();
    // A path has ten probes in the window of a second only with two in each interval.
    world.prober.sent = 1;
    world.run(5);
    world.prober.lossy.insert(world.prober.link("leaf-0", "s1"), 500);
    assert_eq!(world.run(20), []);
    world.prober.sent = 4;
    world.run(10);
    assert_eq!(world.alarms().len(), 1);
}

#[test]
fn a_host_that_reports_everything_as_lost_raises_no_alarm() {
    let mut world = World::new();
    world.prober.liars.insert([10, 1, 0, 2].into());
    assert_eq!(world.run(20), []);
    // Beside a lossy link it does not hide it either.
    world.prober.lossy.insert(world.prober.link("leaf-2", "s0"), 200);
    world.run(10);
    assert_eq!(world.alarms(), [("leaf-2 s0 → spine-0".into(), LinkFault::Loss)]);
}

#[test]
fn a_short_loss_raises_no_alarm_and_an_alarm_ends_after_three_seconds_without_loss() {
    let mut world = World::new();
    world.probes.rules.max_avoided = 0;
    let lossy = world.prober.link("leaf-0", "s1");
    world.prober.lossy.insert(lossy, 200);
    assert_eq!(world.run(1), [], "one evaluation raises none");
    world.probes.sources.clear();
    world.prober.lossy.clear();
    assert_eq!(world.run(10), []);
    world.prober.lossy.insert(lossy, 200);
    world.run(10);
    world.prober.lossy.clear();
    // The window is empty of losses after a second; evaluations are 400 ms apart here.
    let cleared = (1..60).find(|_| !world.run(1).is_empty()).unwrap();
    let after = INTERVAL * cleared;
    assert!((Duration::from_secs(4)..Duration::from_secs(7)).contains(&after), "{after}");
    assert_eq!(world.alarms(), []);
}

#[test]
fn at_most_four_links_are_avoided_and_each_is_for_a_minute() {
    let mut world = World::of(leaf_spine(3, 8, 2));
    let links = [0, 1, 3, 4, 5]
        .map(|spine| world.prober.link(&format!("leaf-{}", spine % 3), &format!("s{spine}")));
    let avoided =
        |world: &World| world.probes.alarms().filter(|(_, it)| it.avoided.is_some()).count();
    world.prober.lossy = links.iter().map(|&link| (link, 300)).collect();
    world.run(10);
    assert_eq!((world.alarms().len(), avoided(&world)), (5, 4));
    let fifth = world.probes.alarms().find(|(_, it)| it.avoided.is_none()).unwrap().0;
    world.prober.lossy.retain(|&link, _| link == fifth);
    world.run(100);
    assert_eq!((world.alarms().len(), avoided(&world)), (5, 4), "held for a minute");
    world.run(250);
    assert_eq!((world.alarms().len(), avoided(&world)), (1, 1), "there is room for the fifth");
}

#[test]
fn an_alarm_without_probes_lasts_a_minute() {
    let mut world = World::new();
    world.prober.lossy.insert(world.prober.link("leaf-0", "s1"), 200);
    world.run(10);
    let fabric = world.prober.fabric.clone();
    let silent_for = |seconds| world.now + Duration::from_secs(seconds);
    let (before, after) = (silent_for(59), silent_for(61));
    assert_eq!(world.probes.evaluate(&fabric, before), []);
    assert!(matches!(world.probes.evaluate(&fabric, after)[..], [ProbeChange::Cleared(..)]));
    assert_eq!((world.probes.probed(), world.probes.next_evaluation()), ((0, 0), None));
}

#[test]
fn a_report_that_cannot_be_is_refused_as_a_whole() {
    let world = World::new();
    let fabric = &world.prober.fabric;
    let report = world.prober.reports().swap_remove(0);
    let mut probes = Probes::new(ProbeRules::default());
    type Change = fn(&mut ProbeReport);
    let faults: [(Change, &str); 9] = [
        (|it| it.paths.clear(), "0 paths"),
        (|it| it.paths = vec![it.paths[0].clone(); 1025], "1025 paths"),
        (|it| it.source = [10, 9, 9, 9].into(), "10.9.9.9 is no host"),
        (|it| it.paths[1].destination = it.source, "path 1: the destination 10.1.0.2"),
        (|it| it.paths[1].destination = [10, 9, 9, 9].into(), "path 1: the destination 10.9.9.9"),
        (|it| it.paths[2].lost = 21, "path 2: 21 of 20"),
        (|it| it.paths[2].sent = 0, "path 2: 0 of 0"),
        (|it| it.paths[3].round_trip = None, "path 3: round-trip times"),
        (|it| it.paths[3].round_trip.as_mut().unwrap().p99_ns = 1, "path 3: round-trip times"),
    ];
    for (number, (change, words)) in (1..).zip(faults) {
        let mut report = report.clone();
        change(&mut report);
        let error = probes.record(&report, fabric, Instant::EPOCH).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!((probes.probed(), probes.counters().refused), ((0, 0), number));
    }
    probes.record(&report, fabric, Instant::EPOCH).unwrap();
    assert_eq!(probes.counters().sent, 40 * 20);
}

/// The attacker: a host with the token that reports from ever new source ports.
#[test]
fn a_host_has_at_most_1024_paths() {
    let world = World::new();
    let mut report = world.prober.reports().swap_remove(0);
    report.paths.truncate(1);
    let mut probes = Probes::new(ProbeRules::default());
    let mut record = |port| {
        report.paths[0].source_port = port;
        probes.record(&report, &world.prober.fabric, Instant::EPOCH)
    };
    assert!((1..=1024).all(|port| record(port).is_ok()));
    assert_eq!(record(1025), Err(ProbeError::TooManyOfSource));
    assert_eq!(record(7), Ok(()), "known paths are still counted");
    assert_eq!(probes.probed(), (1, 1024));
}

#[test]
fn a_change_of_tables_discards_the_results_of_the_paths_that_it_changes() {
    let mut world = World::new();
    world.prober.lossy.insert(world.prober.link("leaf-0", "s1"), 200);
    world.run(1);
    // Without spine 1, the paths that crossed it take other links, of which the old losses say nothing.
    let leaves = ["leaf-0", "leaf-1", "leaf-2"];
    for leaf in leaves {
        let mut router = world.prober.fabric.installed().router(leaf).unwrap().clone();
        let place = router.ports.iter().position(|port| port.name == "s1").unwrap();
        router.ports[place].state = crate::installed::PortState::NoCarrier;
        world.prober.fabric.replace(router).unwrap();
    }
    world.probes.on_tables_changed();
    assert_eq!(world.run(20), []);
}
