//! A collision made on purpose in a lab whose routers run BGP is detected, explained and moved, with real packets
//! (Astral, figure 9 (a)). Without root, a required tool or FRR the test reports that it was skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "this test watches a kernel in real time")]

mod common;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    PORT, UDP, address, agents, is_missing, lab, millis, no_flow_labels, read, short_windows,
};
use socket2::{Domain, SockAddr, Socket, Type};
use weft_lab::{Direction, Impairment, Lab, Routing};
use weft_route::{ControllerConfig, Event, EventKind, Fabric, Flow, LinkId, Stage};
use weft_steer::agent::Agent;
use weft_steer::{Daemon, SteerConfig};
use weft_trial::routers_of;
use weft_units::ByteCount;

/// The rate of a link. Two flows of rate `FLOW` together exceed it; each alone is below three quarters of it.
const LINK: &str = "40Mbps";
/// The rate of a flow in bits per second.
const FLOW: u128 = 24_000_000;
/// The payload of a datagram in bytes.
const PAYLOAD: usize = 1400;

fn rules() -> ControllerConfig {
    ControllerConfig {
        alarm: short_windows(),
        grace: millis(250),
        hold: millis(5000),
        bar: millis(20_000),
        ..ControllerConfig::default()
    }
}

/// Returns the flow between two hosts whose source port sends it over this link.
fn flow_over(
    fabric: &Fabric,
    lab: &Lab,
    (from, to): (usize, usize),
    v6: bool,
    link: LinkId,
) -> Flow {
    let [from, to] = [from, to].map(|host| address(lab, host, v6));
    let flow = |src_port| Flow::new((from, src_port).into(), (to, PORT).into(), UDP).unwrap();
    (49_152..).map(flow).find(|it| fabric.path(it).links().contains(&link)).unwrap()
}

/// Sends at a steady rate, ECN-capable, until `stop` is set.
fn send(lab: &Lab, host: &str, flow: Flow, stop: &AtomicBool) {
    let open = || {
        let from = SocketAddr::new(flow.src(), flow.ports().0);
        let socket = Socket::new(Domain::for_address(from), Type::DGRAM, None)?;
        socket.bind(&SockAddr::from(from))?;
        // ECT(0), RFC 3168.
        if from.is_ipv4() {
            socket.set_tos_v4(2)?
        } else {
            socket.set_tclass_v6(2)?
        }
        std::io::Result::Ok(UdpSocket::from(socket))
    };
    let socket = lab.enter(host, open).unwrap().unwrap();
    let to = SocketAddr::new(flow.dst(), PORT);
    let (began, mut sent, payload) = (Instant::now(), 0_u128, [0; PAYLOAD]);
    while !stop.load(Ordering::Relaxed) {
        let due = began.elapsed().as_nanos() * FLOW / 8 / PAYLOAD as u128 / 1_000_000_000;
        while sent < due {
            // A full queue drops the packet; the next one may pass.
            let _ = socket.send_to(&payload, to);
            sent += 1;
        }
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Runs the daemon until a condition holds; returns the time since `began`.
fn turn_until(
    daemon: &mut Daemon,
    began: Instant,
    what: &str,
    condition: impl Fn(&Daemon) -> bool,
) -> Duration {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition(daemon) {
        if Instant::now() > deadline {
            let events: Vec<String> = daemon.events().iter().map(words).collect();
            panic!("{what} never came; {:?}\n{}", daemon.view(), events.join("\n"));
        }
        daemon.turn().unwrap();
    }
    began.elapsed()
}

fn words(event: &Event) -> String {
    let Event { kind, router, port, text, .. } = event;
    format!("{kind:?} {router} {port}: {text}")
}

fn has(daemon: &Daemon, kind: EventKind) -> bool {
    daemon.events().iter().any(|event| event.kind == kind)
}

#[test]
fn a_collision_is_seen_explained_moved_and_gone() {
    if is_missing("a collision that is moved apart", true) {
        return;
    }
    let mut lab = lab("z", |spec| {
        (spec.spines, spec.hosts_per_leaf, spec.routing) = (2, 2, Routing::Frr);
        spec.ipv6 = true;
    });
    no_flow_labels(&lab);
    let limited = Impairment {
        rate: LINK.parse().ok(),
        // A burst of a sender that was descheduled for a while is not congestion.
        mark_above: Some(ByteCount(60_000)),
        ..Impairment::default()
    };
    for link in ["l0-s0", "l0-s1", "l1-s0", "l1-s1"] {
        lab.impair(link, Direction::Both, &limited).unwrap();
    }
    let state = std::env::temp_dir().join(format!("weft-ws-{}.json", std::process::id()));
    let config = SteerConfig {
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        state: Some(state.clone()),
        read_every: millis(1000),
        lab: Some(lab.name().to_owned()),
        controller: rules(),
        ..SteerConfig::default()
    };
    let inventory = routers_of(&lab);
    let mut daemon = Daemon::open(config.clone(), weft_trial::inventory).unwrap();
    let mut agent = Agent::open(agents(&lab, &daemon)).unwrap();
    let fabric = read(&inventory);
    let leaf = fabric.find("l0").unwrap();
    let busy = fabric.link_of_port(leaf, "s0").unwrap();
    let flows = [
        ("h0", flow_over(&fabric, &lab, (0, 2), false, busy)),
        ("h1", flow_over(&fabric, &lab, (1, 3), true, busy)),
    ];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| agent.run(|| stop.load(Ordering::Relaxed)).unwrap());
        // If a check below fails, the other threads end.
        let ended = Stop(&stop);
        turn_until(&mut daemon, Instant::now(), "the lease", |it| it.view().lock().unwrap().steers);
        let began = Instant::now();
        for (host, flow) in flows {
            let (lab, stop) = (&lab, &stop);
            scope.spawn(move || send(lab, host, flow, stop));
        }
        let until = |daemon: &mut Daemon, what: &str, condition: &dyn Fn(&Daemon) -> bool| {
            let after = turn_until(daemon, began, what, condition);
            println!("{:6.2} s  {what}", after.as_secs_f64());
        };
        until(&mut daemon, "first alarm", &|it| has(it, EventKind::Alarm));
        until(&mut daemon, "explained, and a move decided", &|it| has(it, EventKind::Move));
        until(&mut daemon, "moved: the kernel has it", &|it| has(it, EventKind::Applied));
        until(&mut daemon, "no alarm any more", &|it| it.controller().alarms().is_empty());
        until(&mut daemon, "the move has helped, and is kept", &|it| has(it, EventKind::Kept));
        daemon.events().iter().for_each(|event| println!("          {}", words(event)));
        let kept = |daemon: &Daemon| daemon.controller().moves().next().cloned().unwrap();
        let it = kept(&daemon);
        println!("          {}", daemon.commands(it.id).unwrap().join("; "));
        // By the present tables the flows take different links.
        let fabric = read(&inventory);
        let up = flows.map(|(_, flow)| fabric.path(&flow).links()[1]);
        assert_ne!(up[0], up[1], "{}", it.reason);
        // A controller that takes over adopts the move and does not repeat it.
        daemon.close().unwrap();
        drop(daemon);
        let mut second = Daemon::open(config, weft_trial::inventory).unwrap();
        assert_eq!((kept(&second).id, kept(&second).stage), (it.id, Stage::Kept));
        turn_until(&mut second, Instant::now(), "the lease", |it| it.view().lock().unwrap().steers);
        drop(ended);
    });
    let _ = fs::remove_file(state);
}

/// Stops the other threads when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
