//! A link of a lab whose routers run BGP loses a fifth of its packets without going down: the controller's alarm by
//! probes, the job that leaves the link, and the same loss without probes, which neither BGP nor sFlow shows. Without
//! root, a required tool or FRR the test reports that it was skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "this test watches a kernel in real time")]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{PORT, Stop, address, agents, is_missing, lab, millis, read, short_windows};
use weft_lab::{Direction, Impairment, Lab, Routing};
use weft_plan::ports::Entropy;
use weft_route::{ControllerConfig, EventKind, LinkFault, LinkId, ProbeReport};
use weft_steer::agent::Agent;
use weft_steer::probe::{PROBE_PORT, ProbePlan, Prober};
use weft_steer::{Announcement, Daemon, Handle, PlannedJob, SteerConfig};
use weft_trial::routers_of;
use weft_units::Seed;

/// The job's name.
const JOB: &str = "grey";
/// The cable that loses packets from leaf 0 to spine 0.
const CABLE: &str = "l0-s0";
/// Number of sFlow's windows for which the loss lasts without probes: the first alarm of a collision needs two.
const WINDOWS: u64 = 10;

/// Returns the configuration: short windows, and the defaults for probes.
fn config(lab: &Lab) -> SteerConfig {
    let alarm = short_windows();
    SteerConfig {
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        read_every: millis(1000),
        lab: Some(lab.name().to_owned()),
        controller: ControllerConfig { alarm, grace: millis(250), ..ControllerConfig::default() },
        ..SteerConfig::default()
    }
}

/// Returns the prober of each host with its address: eight paths to each other host, a probe every 20 ms on each.
fn probers(lab: &Lab) -> Vec<(IpAddr, Prober)> {
    let hosts: Vec<IpAddr> = (0..lab.fabric().hosts()).map(|it| address(lab, it, false)).collect();
    let prober = |(number, &source): (usize, &IpAddr)| {
        let plan = ProbePlan {
            source,
            port: PROBE_PORT,
            destinations: hosts.iter().copied().filter(|&it| it != source).collect(),
            hosts: hosts.clone(),
            first_port: 61_000,
            ports: 8,
            interval: Duration::from_millis(20),
            rate: 2000,
            timeout: Duration::from_millis(100),
            report: Duration::from_millis(200),
        };
        (source, lab.enter(&format!("h{number}"), || Prober::open(plan)).unwrap().unwrap())
    };
    hosts.iter().enumerate().map(prober).collect()
}

/// Probes and reports until `stop` is set.
fn probe(source: IpAddr, mut prober: Prober, handle: &Handle, stop: &AtomicBool) {
    thread::scope(|scope| {
        let (reports, queue) = sync_channel(1);
        // The daemon may have ended when the last report is sent.
        scope.spawn(move || queue.iter().for_each(|it| drop(handle.probes(it, source))));
        let report = |it| drop(reports.try_send(it));
        prober.run(|| stop.load(Ordering::Relaxed), report).unwrap();
        drop(reports);
    });
}

/// The sockets of a job's flows, and their destinations.
type Flows = Vec<(UdpSocket, SocketAddr)>;

fn flows(lab: &Lab, job: &PlannedJob) -> Flows {
    let open = |port: u16| UdpSocket::bind(SocketAddr::new(address(lab, 0, false), port));
    let flows = job.queue_pairs.iter().map(|row| {
        let socket = lab.enter("h0", || open(row.source_port)).unwrap().unwrap();
        (socket, SocketAddr::from((row.destination, PORT)))
    });
    flows.collect()
}

/// Sends packets of all flows, 200 a second each, until `stop` is set.
fn send(flows: &Flows, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for (socket, to) in flows {
            // The destination has no socket for it.
            let _ = socket.send_to(&[0; 1000], to);
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Turns the daemon until a condition holds; returns the time that this took.
fn until(daemon: &mut Daemon, what: &str, condition: impl Fn(&Daemon) -> bool) -> Duration {
    let began = Instant::now();
    while !condition(daemon) {
        let events: Vec<_> =
            daemon.events().iter().map(|it| (&it.router, &it.port, &it.text)).collect();
        assert!(began.elapsed() < Duration::from_secs(120), "{what} never came; {events:#?}");
        daemon.turn().unwrap();
    }
    began.elapsed()
}

fn count(daemon: &Daemon, kind: EventKind) -> usize {
    daemon.events().iter().filter(|event| event.kind == kind).count()
}

/// Returns the links of alarms by loss of probes.
fn suspected(daemon: &Daemon) -> Vec<LinkId> {
    let alarms = daemon.controller().probes().alarms();
    alarms.filter(|(_, it)| it.fault == LinkFault::Loss).map(|(link, _)| link).collect()
}

/// Announces a job of eight flows from host 0 to host 1.
fn announce(daemon: &mut Daemon) -> PlannedJob {
    let handle = daemon.handle();
    let table = "source,destination\n".to_owned() + &"10.1.0.2,10.2.0.2\n".repeat(8);
    let announcement = Announcement {
        job: JOB.into(),
        rows: weft_steer::read_job_table(table.as_bytes()).unwrap(),
        rate: "100Mbps".parse().ok(),
        entropy: Entropy::default(),
        seed: Seed(1),
        lease: None,
    };
    let planned = thread::spawn(move || handle.announce(announcement).unwrap());
    until(daemon, "the job", |it| it.controller().jobs().contains_key(JOB));
    planned.join().unwrap()
}

/// Returns the number of the present window of sFlow.
fn window(daemon: &Daemon) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    daemon.controller().telemetry().index(weft_units::Instant::from_nanos(now.try_into().unwrap()))
}

#[test]
fn a_link_that_loses_a_fifth_is_found_by_probes_and_the_job_leaves_it() {
    if is_missing("a grey failure that probes find", true) {
        return;
    }
    let mut lab = lab("g", |spec| {
        (spec.leaves, spec.spines, spec.hosts_per_leaf, spec.routing) = (3, 2, 1, Routing::Frr);
    });
    let mut daemon = Daemon::open(config(&lab), weft_trial::inventory).unwrap();
    until(&mut daemon, "the lease", |it| it.view().lock().unwrap().steers);
    let job = announce(&mut daemon);
    let inventory = routers_of(&lab);
    let fabric = read(&inventory);
    let link = fabric.link_of_port(fabric.find("l0").unwrap(), "s0").unwrap();
    let over = |daemon: &Daemon| {
        let flows = &daemon.controller().jobs()[JOB].flows;
        flows.iter().filter(|it| fabric.path(&it.flow).links().contains(&link)).count()
    };
    assert_eq!(over(&daemon), 4, "half of the job crosses the link");
    let one_way = Direction::From("l0".into());
    let lossy = Impairment { loss: "20%".parse().unwrap(), ..Impairment::default() };
    let (stop, mut agent, flows) =
        (AtomicBool::new(false), Agent::open(agents(&lab, &daemon)).unwrap(), flows(&lab, &job));
    let (probers, handle) = (probers(&lab), daemon.handle());
    thread::scope(|scope| {
        // If a check below fails, the other threads end.
        let ended = Stop(&stop);
        scope.spawn(|| agent.run(|| stop.load(Ordering::Relaxed)).unwrap());
        scope.spawn(|| send(&flows, &stop));

        // Without probes.
        lab.impair(CABLE, one_way.clone(), &lossy).unwrap();
        let last = window(&daemon) + WINDOWS;
        let after = until(&mut daemon, "the windows of sFlow", |it| {
            it.controller().telemetry().window(link, last + 1).is_some()
        });
        println!("{:6.2} s without probes: no alarm in {WINDOWS} windows", after.as_secs_f64());
        assert_eq!((count(&daemon, EventKind::Alarm), count(&daemon, EventKind::Link)), (0, 0));
        assert_eq!((over(&daemon), daemon.controller().jobs()[JOB].version), (4, 1));
        assert_eq!(read(&inventory).installed(), fabric.installed(), "BGP keeps the link");
        lab.impair(CABLE, one_way.clone(), &Impairment::default()).unwrap();

        // With probes.
        for (source, prober) in probers {
            let (handle, stop) = (&handle, &stop);
            scope.spawn(move || probe(source, prober, handle, stop));
        }
        // 48 paths, each with 250 probes.
        until(&mut daemon, "probes", |it| {
            it.controller().probes().probed() == (3, 48)
                && it.controller().probes().counters().sent > 48 * 250
        });
        assert_eq!(suspected(&daemon), [], "no link loses probes yet");
        lab.impair(CABLE, one_way.clone(), &lossy).unwrap();
        let alarm = until(&mut daemon, "the alarm", |it| !suspected(it).is_empty());
        let left = until(&mut daemon, "other ports", |it| over(it) == 0);
        println!("{:6.2} s with probes: alarm", alarm.as_secs_f64());
        println!("{:6.2} s the job's flows have other ports", (alarm + left).as_secs_f64());
        daemon
            .events()
            .iter()
            .for_each(|it| println!("  {:?} {} {}: {}", it.kind, it.router, it.port, it.text));
        assert_eq!(suspected(&daemon), [link]);
        assert_eq!(daemon.controller().jobs()[JOB].version, 2);

        // A host does not speak for another one.
        let forger = {
            let (handle, [source, forger]) =
                (handle.clone(), [0, 1].map(|it| address(&lab, it, false)));
            let report = ProbeReport { source, port: PROBE_PORT, paths: vec![] };
            thread::spawn(move || handle.probes(report, forger).unwrap_err().to_string())
        };
        until(&mut daemon, "the refusal", |_| forger.is_finished());
        assert!(forger.join().unwrap().contains("does not speak for 10.1.0.2"));

        lab.impair(CABLE, one_way, &Impairment::default()).unwrap();
        // Reports that wait for an answer end with the daemon.
        drop(daemon);
        drop(ended);
    });
}
