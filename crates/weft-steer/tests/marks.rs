//! The controller's marks of a window beside the counter of the kernel's queue, the packets that arrived marked, and the
//! estimate from samples, for each queueing discipline that marks. They run in a guest whose kernel has them: `cargo test
//! -p weft-steer --test marks -- --nocapture`.
#![allow(clippy::disallowed_methods, reason = "this test watches a kernel in real time")]

mod common;
mod guest;

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use common::{PORT, lab, read};
use socket2::{Domain, Protocol, Socket, Type};
use weft_lab::Lab;
use weft_route::{AlarmRules, ControllerConfig, Fabric, LinkId, Telemetry};
use weft_steer::agent::{Agent, AgentPlan, Watched};
use weft_steer::{CollectedItem, Collector, Daemon, Inventory, MarksSource, SteerConfig};
use weft_trial::routers_of;

/// The name of the test in records of skipped ones.
const TEST: &str = "the marks of queueing disciplines";

/// The queueing disciplines behind a rate limit. They have room for all packets, so that none is dropped after it was
/// marked.
const QUEUES: [&str; 4] = [
    "red limit 8000000 min 15000 max 45000 avpkt 1400 burst 20 bandwidth 10mbit probability 0.1 ecn",
    "codel limit 10000 ecn",
    "fq_codel limit 10000 ecn",
    "pie limit 10000 ecn",
];
const RATE_LIMIT: &str = "tbf rate 10mbit burst 15000 limit 8000000";
/// A discipline with a rate limit of its own.
const CAKE: &str = "cake bandwidth 10mbit besteffort";

/// Number of packets sent, their payload in bytes, and the interval in which one is sent: 15 Mb/s.
const PACKETS: u32 = 2000;
const PAYLOAD: usize = 1400;
const PACING: Duration = Duration::from_micros(769);
/// The length of a window. All packets cross the queue in one or two, unless this machine has much else to do.
const WINDOW: weft_units::Duration = weft_units::Duration::from_secs(6);
/// The default sampling rate of `weft route agent`.
const SAMPLING: u32 = 256;
/// Number of ports of the two routers that are watched.
const PORTS: u64 = 4;

#[test]
fn the_marks_of_a_window_are_those_that_the_kernel_counted() {
    match guest::run("the_marks_of_every_discipline") {
        Ok(console) => {
            println!("{console}");
            assert!(console.contains("test result: ok. 1 passed"), "{console}");
        }
        Err(missing) => weft_testkit::skip(TEST, &missing),
    }
}

#[test]
#[ignore = "it runs in the guest that the test above boots"]
fn the_marks_of_every_discipline() {
    // All packets of a window wait in the receiver's socket.
    fs::write("/proc/sys/net/core/rmem_max", "67108864").unwrap();
    let lab = lab("m", |spec| spec.spines = 1);
    let mut network = Network::open(&lab);
    let mut agent = Agent::open(network.agents()).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ended = Stop(&stop);
        scope.spawn(|| agent.run(|| stop.load(Ordering::Relaxed)).unwrap());
        // The first window has no reports of its beginning.
        let incomplete = network.window();
        network.until("a whole window", |it| it.window() > incomplete);
        for queue in QUEUES {
            network.set_queue(&[RATE_LIMIT, queue]);
            network.compare(queue);
        }
        network.set_queue(&[CAKE]);
        network.compare(CAKE);
        drop(ended);
    });
    let view = network.daemon.view();
    let view = view.lock().unwrap();
    // Each replaced queue began to count at zero.
    assert!(view.collector.doubted > 0, "{:?}", view.collector);
    let source = |from: &str, to: &str| {
        view.links.iter().find(|it| it.from == from && it.to == to).unwrap().marks_from
    };
    assert_eq!(source("l0", "s0"), Some(MarksSource::Queue));
    assert_eq!(source("s0", "l1"), Some(MarksSource::Samples));
}

/// A leaf with a queue towards a spine; a controller; and a second collector, to which the marks are another enterprise's
/// record.
struct Network<'a> {
    lab: &'a Lab,
    inventory: Inventory,
    fabric: Fabric,
    /// The link from the leaf to the spine.
    link: LinkId,
    daemon: Daemon,
    /// The socket to which the agent sends.
    relay: UdpSocket,
    collector: Collector,
    estimates: Telemetry,
    /// All UDP packets that arrive at the receiver, with their headers.
    arrived: Socket,
    /// The port of the packets, so that they are not refused.
    _receiver: UdpSocket,
}

impl<'a> Network<'a> {
    fn open(lab: &'a Lab) -> Self {
        let alarm = AlarmRules { window: WINDOW, ..AlarmRules::default() };
        let config = SteerConfig {
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            state: Some("/run/marks.json".into()),
            // Emulated processors take seconds to read tables.
            read_every: weft_units::Duration::from_secs(60),
            lab: Some(lab.name().to_owned()),
            controller: ControllerConfig { alarm, ..ControllerConfig::default() },
            ..SteerConfig::default()
        };
        let inventory = routers_of(lab);
        let fabric = read(&inventory);
        let relay = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        relay.set_nonblocking(true).unwrap();
        let receive = || {
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
            raw.set_recv_buffer_size(1 << 25).unwrap();
            raw.set_nonblocking(true).unwrap();
            (raw, UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap())
        };
        let (arrived, receiver) = lab.enter("h1", receive).unwrap();
        Self {
            lab,
            link: fabric.link_of_port(fabric.find("l0").unwrap(), "s0").unwrap(),
            daemon: Daemon::open(config, weft_trial::inventory).unwrap(),
            relay,
            collector: Collector::new(&inventory),
            estimates: Telemetry::new(WINDOW, 6),
            arrived,
            _receiver: receiver,
            inventory,
            fabric,
        }
    }

    fn agents(&self) -> AgentPlan {
        let watched = ["l0", "s0"].map(|name| Watched {
            address: self.inventory.router(name).unwrap().agent,
            namespace: Some(self.lab.fabric().node(name).unwrap().namespace.clone()),
        });
        AgentPlan {
            routers: watched.to_vec(),
            collectors: vec![self.relay.local_addr().unwrap()],
            source: None,
            rate: SAMPLING,
            flush: Duration::from_millis(20),
            counters: Duration::from_millis(800),
        }
    }

    /// Gives the leaf's port to the spine these disciplines, each within the one before.
    fn set_queue(&self, disciplines: &[&str]) {
        // The first time there is none to remove.
        let _ = self.tc("del", "root");
        for (place, discipline) in
            ["root handle 1:", "parent 1:1 handle 10:"].iter().zip(disciplines)
        {
            assert_eq!(self.tc("add", &format!("{place} {discipline}")), "", "{discipline}");
        }
    }

    /// Returns what `tc qdisc VERB dev s0 …` prints at the leaf.
    fn tc(&self, verb: &str, words: &str) -> String {
        let mut command = Command::new("tc");
        command.args(["-s", "qdisc", verb, "dev", "s0"]).args(words.split_whitespace());
        let output = self.lab.enter("l0", || command.output()).unwrap().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Returns the number after the last of these words in the statistics of the leaf's queue.
    fn counter(&self, names: &[&str]) -> u64 {
        let text = self.tc("show", "");
        let words: Vec<&str> = text.split_whitespace().collect();
        let counter = words.windows(2).rfind(|pair| names.contains(&pair[0])).map(|pair| pair[1]);
        let counter = counter.unwrap_or_else(|| panic!("no {names:?} in {text}"));
        counter.trim_end_matches(|unit: char| !unit.is_ascii_digit()).parse().unwrap()
    }

    /// Sends packets through the queue, and compares the marks of the windows meanwhile with the kernel's.
    fn compare(&mut self, queue: &str) {
        // The second report of a new queue is accepted.
        self.await_reports(2);
        let first = self.window();
        self.await_reports(1);
        let to = SocketAddr::new(self.lab.fabric().address(1).into(), PORT);
        let socket = self.lab.enter("h0", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        thread::scope(|scope| {
            let sender = scope.spawn(move || send(&socket, to));
            self.until("all packets sent", |_| sender.is_finished());
        });
        self.until("an empty queue", |it| it.counter(&["backlog"]) == 0);
        self.await_reports(2);
        let last = self.window();
        self.until("the end of the window", |it| it.window() > last);

        let kernel = self.counter(&["marked", "ecn_mark", "marks"]);
        let arrived = self.arrived_marked();
        let marks =
            |telemetry: &Telemetry, window| Some(telemetry.window(self.link, window)?.marks);
        let telemetry = self.daemon.controller().telemetry();
        let controller: Option<u64> = (first..=last).map(|it| marks(telemetry, it)).sum();
        let controller =
            controller.unwrap_or_else(|| panic!("windows lack reports: {telemetry:?}"));
        // A window of which most reports had too many marks has none.
        let estimate: u64 = (first..=last).filter_map(|it| marks(&self.estimates, it)).sum();
        println!(
            "{:<8} windows {}, kernel {kernel}, controller {controller}, arrived marked {arrived}, estimate {estimate}",
            queue.split(' ').next().unwrap_or_default(),
            last - first + 1,
        );
        assert!(kernel > 0, "{queue} marks nothing");
        assert_eq!((controller, arrived), (kernel, kernel), "{queue}");
    }

    /// Returns the number of packets that arrived marked at the receiver since the last call.
    fn arrived_marked(&mut self) -> u64 {
        let (mut packet, mut marked) = ([0; 2048], 0);
        while self.arrived.read(&mut packet).is_ok() {
            // The lower two bits of IPv4's second byte (RFC 3168).
            marked += u64::from(packet[1] & 3 == 3);
        }
        marked
    }

    /// Returns the number of the present window.
    fn window(&self) -> u64 {
        self.estimates.index(now())
    }

    /// Returns the number of port counters that the controller has received.
    fn reports(&self) -> u64 {
        self.daemon.view().lock().unwrap().collector.reports
    }

    /// Waits for this number of reports of every port.
    fn await_reports(&mut self, count: u64) {
        let reports = self.reports() + (count + 1) * PORTS;
        self.until("reports", |it| it.reports() >= reports);
    }

    /// Runs the controller until a condition holds, which is checked several times a second.
    fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition(self) {
            assert!(Instant::now() < deadline, "{what} never came: {:?}", self.daemon.view());
            for _ in 0..5 {
                self.relay();
                self.daemon.turn().unwrap();
            }
        }
    }

    /// Passes datagrams of the agent on to the controller, and to the second collector.
    fn relay(&mut self) {
        let mut datagram = [0; 2048];
        let (mut received, controller) = (vec![], self.daemon.listening().unwrap());
        while let Ok(length) = self.relay.recv(&mut datagram) {
            let datagram = &mut datagram[..length];
            self.relay.send_to(datagram, controller).unwrap();
            let formats = datagram.chunks_exact_mut(4).filter(|it| **it == [0xff, 0xff, 0xf0, 1]);
            formats.for_each(|format| format[3] = 2);
            let source = Ipv4Addr::LOCALHOST.into();
            self.collector.ingest(datagram, source, now(), &self.fabric, &mut received);
        }
        for item in received {
            if let CollectedItem::Report(report) = item {
                // Samples of the last packets may come after the counters, and are then more marks than packets: the controller
                // does not count them either.
                let _ = self.estimates.record(report, self.fabric.rate(report.link));
            }
        }
    }
}

/// Sends the packets of a window, ECN-capable (ECT(0), RFC 3168).
fn send(socket: &UdpSocket, to: SocketAddr) {
    socket2::SockRef::from(socket).set_tos_v4(2).unwrap();
    let began = Instant::now();
    for number in 0..PACKETS {
        let due = PACING * number;
        while began.elapsed() < due {
            thread::park_timeout(due.saturating_sub(began.elapsed()));
        }
        socket.send_to(&[0; PAYLOAD], to).unwrap();
    }
}

fn now() -> weft_units::Instant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    weft_units::Instant::from_nanos(u64::try_from(now.as_nanos()).unwrap())
}

/// Stops the agent when it is dropped, also if a check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
