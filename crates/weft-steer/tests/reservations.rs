//! Three periodic jobs on two uplinks, with real packets: two whose bursts coincide begin on one uplink, the controller
//! finds their periods and separates them, and one of them then shares an uplink with the job whose bursts alternate with
//! its own (Astral, section 4: resources are reserved within an iteration for the next). Without root or a required tool
//! the test reports that it was skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "this test watches a kernel in real time")]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{PORT, Stop, UDP, address, agents, is_missing, lab, millis, read};
use weft_lab::{Direction, Impairment, Lab};
use weft_plan::ports::Entropy;
use weft_route::{AlarmRules, ControllerConfig, Fabric, Flow, LinkId, ReservationRules};
use weft_steer::agent::Agent;
use weft_steer::{Announcement, Daemon, Handle, PortsRequest, SteerConfig};
use weft_trial::routers_of;
use weft_units::Seed;

/// The rate of an uplink, which carries one job's bursts and not two at once.
const LINK: &str = "40Mbps";
/// The rate of a job during its bursts, in bits per second.
const FLOW: u64 = 24_000_000;
/// The payload of a datagram in bytes.
const PAYLOAD: usize = 1400;
/// The length of an iteration, and of the burst in it.
const PERIOD: Duration = Duration::from_secs(3);
const LENGTH: Duration = Duration::from_secs(1);
/// A time before and after a burst in which no job sends.
const MARGIN: Duration = Duration::from_millis(250);
/// The ports of leaf 0 to the spines.
const UPLINKS: [&str; 2] = ["s0", "s1"];

/// A job of one flow, from a host of leaf 0 to one of leaf 1.
struct Job {
    name: &'static str,
    hosts: (usize, usize),
    /// The time of the iteration at which its burst begins.
    begins: Duration,
    /// The uplink that it is announced on.
    uplink: &'static str,
}

/// The bursts of `a` and `c` coincide, those of `b` alternate with both.
const JOBS: [Job; 3] = [
    Job { name: "a", hosts: (0, 3), begins: Duration::ZERO, uplink: "s0" },
    Job { name: "b", hosts: (1, 4), begins: Duration::from_millis(1500), uplink: "s1" },
    Job { name: "c", hosts: (2, 5), begins: Duration::ZERO, uplink: "s0" },
];

/// Returns the configuration: bins and windows for iterations of 3 s instead of the paper's 10 to 30.
fn config(lab: &Lab) -> SteerConfig {
    let alarm = AlarmRules { window: millis(1000), ..AlarmRules::default() };
    let (bin, horizon) = (millis(100), millis(12_000));
    let reservations = ReservationRules { bin, horizon, ..ReservationRules::default() };
    let (grace, hold) = (millis(250), millis(5000));
    SteerConfig {
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        read_every: millis(1000),
        lab: Some(lab.name().to_owned()),
        controller: ControllerConfig {
            alarm,
            reservations,
            grace,
            hold,
            ..ControllerConfig::default()
        },
        ..SteerConfig::default()
    }
}

/// Announces a job with a port that sends it over its uplink.
fn announce(daemon: &mut Daemon, lab: &Lab, fabric: &Fabric, job: &Job) {
    let [from, to] = [job.hosts.0, job.hosts.1].map(|host| address(lab, host, false));
    let link = uplink(fabric, job.uplink);
    let flow = |port| Flow::new((from, port).into(), (to, PORT).into(), UDP).unwrap();
    let takes = |port: &u16| fabric.path(&flow(*port)).links().contains(&link);
    let port = (49_152..).find(takes).unwrap();
    let table = format!("source,destination,source_port\n{from},{to},{port}\n");
    let announcement = Announcement {
        job: job.name.into(),
        rows: weft_steer::read_job_table(table.as_bytes()).unwrap(),
        rate: weft_units::BitRate::bps(FLOW),
        entropy: Entropy { destination_port: PORT, ..Entropy::default() },
        seed: Seed(1),
        lease: None,
    };
    let handle = daemon.handle();
    let planned = thread::spawn(move || handle.announce(announcement).unwrap());
    until(daemon, "the job", |_| planned.is_finished());
    assert_eq!(planned.join().unwrap().kept, 1, "{} has the port of its table", job.name);
}

fn uplink(fabric: &Fabric, port: &str) -> LinkId {
    fabric.link_of_port(fabric.find("l0").unwrap(), port).unwrap()
}

/// Sends a job's bursts, each from the port that the controller has for it then, until the job or the daemon has ended.
fn iterate(lab: &Lab, handle: &Handle, job: &Job, began: Instant, stop: &AtomicBool) {
    let [source, to] = [job.hosts.0, job.hosts.1].map(|host| address(lab, host, false));
    let open = |port| {
        let bind = || UdpSocket::bind(SocketAddr::new(source, port)).unwrap();
        lab.enter(&format!("h{}", job.hosts.0), bind).unwrap()
    };
    let (mut plan, mut socket) = (0, None);
    for iteration in 0.. {
        let start = began + job.begins + PERIOD * iteration;
        while Instant::now() < start && !stop.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(2));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let request = PortsRequest { job: job.name.into(), source, plan };
        let Ok(present) = handle.ports(request) else { return };
        plan = present.plan;
        socket = present.ports.map(|ports| open(ports[0].port)).or(socket);
        burst(socket.as_ref().expect("the first plan is new"), to, start, stop);
    }
}

/// Sends for the length of a burst at the rate of a job. What a late sender has missed is not sent.
fn burst(socket: &UdpSocket, to: IpAddr, start: Instant, stop: &AtomicBool) {
    const STEP: Duration = Duration::from_millis(5);
    let packets = u128::from(FLOW) * STEP.as_nanos() / 1_000_000_000 / 8 / PAYLOAD as u128;
    while start.elapsed() < LENGTH && !stop.load(Ordering::Relaxed) {
        for _ in 0..packets {
            // The destination has no socket for it, and a full queue drops it.
            let _ = socket.send_to(&[0; PAYLOAD], (to, PORT));
        }
        thread::park_timeout(STEP);
    }
}

/// Turns the daemon until a condition holds.
fn until(daemon: &mut Daemon, what: &str, condition: impl Fn(&Daemon) -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !condition(daemon) {
        if Instant::now() > give_up {
            let events: Vec<_> = daemon.events().iter().map(|it| &it.text).collect();
            panic!("{what} never came; {events:#?} {:#?}", daemon.view().lock().unwrap().jobs);
        }
        daemon.turn().unwrap();
    }
}

/// Returns the uplink that a job takes.
fn takes(daemon: &Daemon, job: &str) -> LinkId {
    daemon.controller().fabric().path(&daemon.controller().jobs()[job].flows[0].flow).links()[1]
}

/// Returns what the picture shows as reserved on the uplinks, in Mb/s.
fn reserved(daemon: &Daemon) -> [u64; 2] {
    let view = daemon.view();
    let view = view.lock().unwrap();
    UPLINKS.map(|port| {
        let link = view.links.iter().find(|it| it.from == "l0" && it.port == port).unwrap();
        link.reserved / 1_000_000
    })
}

/// Returns the bytes that the uplinks carry in the next burst of `a` and `c`.
fn next_burst(daemon: &mut Daemon, lab: &Lab, began: Instant) -> [u64; 2] {
    let carried = || {
        let counters = lab.counters().unwrap();
        UPLINKS
            .map(|port| counters[lab.fabric().link(&format!("l0-{port}")).unwrap()].forward.bytes)
    };
    let iterations = began.elapsed().as_nanos() / PERIOD.as_nanos() + 1;
    let start = began + PERIOD * u32::try_from(iterations).unwrap();
    until(daemon, "the pause before a burst", |_| Instant::now() > start - MARGIN);
    let before = carried();
    until(daemon, "the pause after it", |_| Instant::now() > start + LENGTH + MARGIN);
    let after = carried();
    [0, 1].map(|link| after[link] - before[link])
}

#[test]
fn bursts_that_coincide_are_separated_and_bursts_that_alternate_share() {
    if is_missing("reserved bursts", false) {
        return;
    }
    let mut lab = lab("r", |spec| (spec.spines, spec.hosts_per_leaf) = (2, 3));
    let limited = Impairment { rate: LINK.parse().ok(), ..Impairment::default() };
    for link in ["l0-s0", "l0-s1", "l1-s0", "l1-s1"] {
        lab.impair(link, Direction::Both, &limited).unwrap();
    }
    let mut daemon = Daemon::open(config(&lab), weft_trial::inventory).unwrap();
    let mut agent = Agent::open(agents(&lab, &daemon)).unwrap();
    let fabric = read(&routers_of(&lab));
    until(&mut daemon, "the lease", |it| it.view().lock().unwrap().steers);
    JOBS.iter().for_each(|job| announce(&mut daemon, &lab, &fabric, job));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // If a check below fails, the other threads end.
        let ended = Stop(&stop);
        scope.spawn(|| agent.run(|| stop.load(Ordering::Relaxed)).unwrap());
        let began = Instant::now() + MARGIN;
        for job in &JOBS {
            let (lab, handle, stop) = (&lab, daemon.handle(), &stop);
            scope.spawn(move || iterate(lab, &handle, job, began, stop));
        }
        let [full, empty] = next_burst(&mut daemon, &lab, began);
        println!("a burst of both: {full} and {empty} bytes on the uplinks");
        assert!(full > 10 * empty, "both jobs are on s0: {full}, {empty}");

        until(&mut daemon, "other ports", |it| takes(it, "a") != takes(it, "c"));
        println!("{:.1} s until they are separated", began.elapsed().as_secs_f64());
        until(&mut daemon, "the picture's bursts", |it| {
            let view = it.view();
            let view = view.lock().unwrap();
            let tenth = PERIOD / 10;
            let is_near = |period: u64| Duration::from_nanos(period).abs_diff(PERIOD) < tenth;
            view.jobs.iter().all(|job| job.bursts.is_some_and(|it| is_near(it.period_ns)))
        });
        // `b` and one of the others have reserved the same uplink, which carries the bursts of one at a time.
        until(&mut daemon, "the picture's reservations", |it| reserved(it) == [24, 24]);
        // On a busy machine bursts are late, and jobs may still move before one of them.
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let both = next_burst(&mut daemon, &lab, began);
            println!("a burst of both: {both:?} bytes on the uplinks");
            if both[0] * 2 > both[1] && both[1] * 2 > both[0] {
                break;
            }
            assert!(Instant::now() < give_up, "never one job on each: {both:?}");
        }

        let alone = if takes(&daemon, "a") == takes(&daemon, "b") { "c" } else { "a" };
        let handle = daemon.handle();
        let withdrawn = thread::spawn(move || handle.withdraw(alone.into()).unwrap());
        until(&mut daemon, "its end", |_| withdrawn.is_finished());
        let others = ["a", "b", "c"].into_iter().filter(|&job| job != alone);
        until(&mut daemon, "the freed reservation", |it| {
            let used = |link| others.clone().any(|job| takes(it, job) == link);
            reserved(it) == UPLINKS.map(|port| if used(uplink(&fabric, port)) { 24 } else { 0 })
        });
        // Senders that wait for an answer end with the daemon.
        drop(daemon);
        drop(ended);
    });
}
