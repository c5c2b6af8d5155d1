//! Packets that each take another source port, from one core to another over a veth pair: a bare blast by AF_XDP, Weft by
//! AF_XDP, a bare blast by `sendmmsg`, Weft by the kernel's sockets, and Weft in bursts that the kernel segments. Each
//! round measures all of them one after the other.
//!
//! `cargo bench -p weft-udp --bench wire -- [--rounds N] [--millis M] [--threaded]`, as root, prints the rates and the
//! medians of ratios within a round. `--threaded` has a kernel thread handle the packets of both interfaces, instead of
//! the core that sends them.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use weft_transport::{ConnectionId, Event, Message, Payload, Placement, TransportConfig, path};
use weft_udp::sockets::{SocketConfig, Sockets, Wire};
use weft_udp::wait::Waiter;
use weft_udp::{Agent, AgentConfig, Application, Clock, Endpoint, SealConfig, WaitMode};
use weft_units::{Duration, Instant};

/// Bytes of a datagram that fills 1500 bytes with the headers of IPv4 and UDP.
const DATAGRAM: u16 = 1472;
/// Bytes of it that are Weft's payload.
const PAYLOAD: u16 = 1440;
/// Source ports.
const PATHS: u16 = 128;
/// Bytes of a message, and number of messages in flight.
const MESSAGE: u32 = 256 << 10;
const OUTSTANDING: u64 = 16;
/// Packets of one port in a burst that the kernel segments.
const GSO_BURST: u16 = 44;

/// The measured ways, in the order of a round.
const WAYS: [(&str, Way); 5] = [
    ("bare AF_XDP", Way { wire: Wire::AfXdp, weft: false, burst: 1 }),
    ("Weft, AF_XDP", Way { wire: Wire::AfXdp, weft: true, burst: 1 }),
    ("bare sendmmsg", Way { wire: Wire::Kernel, weft: false, burst: 1 }),
    ("Weft, sendmmsg", Way { wire: Wire::Kernel, weft: true, burst: 1 }),
    ("Weft, GSO", Way { wire: Wire::Kernel, weft: true, burst: GSO_BURST }),
];

#[derive(Clone, Copy)]
struct Way {
    wire: Wire,
    /// `true` for agents, `false` for sockets alone.
    weft: bool,
    /// Packets in turn on one port.
    burst: u16,
}

/// The namespaces of both ends, joined by a veth pair. Dropping it removes them.
struct Place {
    names: [String; 2],
    threaded: bool,
}

impl Place {
    fn build(threaded: bool) -> Self {
        let names = ["a", "b"].map(|end| format!("weftwire{}{end}", std::process::id()));
        let [a, b] = &names;
        ip(&format!("netns add {a}"));
        ip(&format!("netns add {b}"));
        ip(&format!("link add w0 netns {a} type veth peer name w0 netns {b}"));
        for (name, host) in names.iter().zip(1..) {
            ip(&format!("-n {name} address add {}/24 dev w0", address(host).ip()));
            ip(&format!("-n {name} link set w0 up"));
        }
        Self { names, threaded }
    }

    /// Runs `open` in the namespace of an end.
    fn enter<T: Send>(&self, end: usize, open: impl FnOnce() -> T + Send) -> T {
        weft_lab::enter(&self.names[end], open).expect("a namespace of this bench")
    }

    /// Has threads handle the interfaces' packets, which is possible while they have a program.
    fn thread_interfaces(&self, wire: Wire) {
        for name in self.names.iter().filter(|_| self.threaded && wire == Wire::AfXdp) {
            let write = "echo 1 > /sys/class/net/w0/threaded";
            ip_words(&["netns", "exec", name, "sh", "-c", write]);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| ip(&format!("netns delete {name}")));
    }
}

fn ip(line: &str) {
    ip_words(&line.split(' ').collect::<Vec<_>>());
}

fn ip_words(words: &[&str]) {
    let status = Command::new("ip").args(words).status().expect("ip, of iproute2");
    assert!(status.success(), "ip {words:?}: {status}; it takes root");
}

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 83, 1, host), 0).into()
}

/// Both sides of a stream of messages without contents.
#[derive(Default)]
struct Stream {
    connection: Option<ConnectionId>,
    submitted: u64,
    acked: u64,
    /// Bytes of payload that arrived.
    bytes: u64,
}

impl Application for Stream {
    fn read(&mut self, _: ConnectionId, _: Payload, _: &mut [u8]) {}

    fn place(&mut self, _: Instant, _: &Placement, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }

    fn on_event(&mut self, _: &mut Endpoint, _: Instant, event: Event) {
        match event {
            Event::Connected { connection } => self.connection = Some(connection),
            Event::Acked { .. } => self.acked += 1,
            _ => {}
        }
    }

    fn on_turn(&mut self, endpoint: &mut Endpoint, now: Instant) {
        let Some(connection) = self.connection else { return };
        while self.submitted < self.acked + OUTSTANDING {
            let message = Message { token: self.submitted, opcode: 0, tag: 0, length: MESSAGE };
            endpoint.submit(now, connection, message).expect("a window of messages");
            self.submitted += 1;
        }
    }
}

/// Returns the rate of packets that arrive, millions a second.
#[expect(clippy::disallowed_methods, reason = "the bench counts packets over a span of real time")]
fn measure(place: &Place, way: Way, span: Duration) -> f64 {
    let received = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let run: &(dyn Fn() + Sync) = &|| {
        if way.weft {
            weft(place, way, &received, &stop)
        } else {
            bare(place, way, &received, &stop)
        }
    };
    thread::scope(|scope| {
        scope.spawn(run);
        // A quarter of the span passes before counting: connections are set up, and windows open.
        let clock = Clock;
        let sleep =
            |span: Duration| thread::sleep(std::time::Duration::from_nanos(span.as_nanos()));
        let begun = clock.now();
        while received.load(Ordering::Relaxed) == 0 {
            assert!(clock.now().since(begun) < Duration::from_secs(10), "nothing arrives");
            sleep(Duration::from_millis(1));
        }
        sleep(span / 4);
        let (start, before) = (clock.now(), received.load(Ordering::Relaxed));
        sleep(span);
        let packets = received.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        packets as f64 / clock.now().since(start).as_secs_f64() / 1e6
    })
}

/// Streams over one connection until `stop`; counts the packets whose payload arrived.
fn weft(place: &Place, way: Way, received: &AtomicU64, stop: &AtomicBool) {
    let ethernet = AgentConfig::ethernet(PATHS);
    // One after the other, so that no port has a second packet in a batch, which would be segmented.
    let policy = if way.burst == 1 { path::Kind::RoundRobin } else { ethernet.policy };
    let transport = TransportConfig { spray_unit: way.burst, policy, top_k: PATHS, ..ethernet };
    let open = |end: usize| {
        let local = address(if end == 0 { 1 } else { 2 });
        let mut config = AgentConfig::new(local, transport.clone()).accepting();
        config.encryption = SealConfig::off();
        config.sockets.wire = way.wire;
        config.wait = if end == 0 { WaitMode::Hybrid } else { WaitMode::Block };
        place.enter(end, || Agent::open(&config)).expect("sockets")
    };
    let [mut client, mut server] = [open(0), open(1)];
    assert_eq!(client.sockets().wire().0, way.wire, "{:?}", client.sockets().wire().1);
    place.thread_interfaces(way.wire);
    let (now, to) = (client.now(), server.local());
    client.endpoint().connect(now, to, 0).expect("room for one");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = Stream::default();
            while !stop.load(Ordering::Relaxed) {
                let until = server.now() + Duration::from_millis(10);
                let _ = server.step(&mut stream, until);
                received.store(stream.bytes / u64::from(PAYLOAD), Ordering::Relaxed);
            }
        });
        let mut stream = Stream::default();
        while !stop.load(Ordering::Relaxed) {
            let until = client.now() + Duration::from_millis(10);
            let _ = client.step(&mut stream, until);
        }
    });
}

/// Sends datagrams as fast as the kernel takes them until `stop`; counts those that arrive.
fn bare(place: &Place, way: Way, received: &AtomicU64, stop: &AtomicBool) {
    let open = |end: usize| {
        let local = address(if end == 0 { 1 } else { 2 });
        let config = SocketConfig { wire: way.wire, ..SocketConfig::new(local, PATHS) };
        place.enter(end, || Sockets::open(&config)).expect("sockets")
    };
    let [mut sender, mut receiver] = [open(0), open(1)];
    assert_eq!(sender.wire().0, way.wire, "{:?}", sender.wire().1);
    place.thread_interfaces(way.wire);
    let to = receiver.local();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut waiter = Waiter::new(WaitMode::Block, Clock);
            while !stop.load(Ordering::Relaxed) {
                let messages = receiver.inbox.receive().expect("a socket");
                let datagrams =
                    (0..messages).map(|it| receiver.inbox.message(it).datagrams().count());
                received.fetch_add(datagrams.sum::<usize>() as u64, Ordering::Relaxed);
                if messages == 0 {
                    let until = Clock.now() + Duration::from_millis(10);
                    waiter.wait(receiver.readable(), std::iter::empty(), until);
                }
            }
        });
        let mut waiter = Waiter::new(WaitMode::Block, Clock);
        while !stop.load(Ordering::Relaxed) {
            // The contents are not written, so that the baseline is the fastest possible.
            (0..PATHS).for_each(|path| sender.outbox.push(&to, path, DATAGRAM, |_| {}));
            sender.outbox.flush();
            while sender.outbox.waiting() > 0 && !stop.load(Ordering::Relaxed) {
                // As an agent waits for room in the kernel.
                let retry_at = sender.outbox.retry_at().unwrap_or(Instant::FAR_FUTURE);
                let until = retry_at.min(Clock.now() + Duration::from_millis(10));
                waiter.wait(sender.readable(), sender.outbox.blocked(), until);
                sender.outbox.flush();
            }
        }
    });
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let (mut rounds, mut millis, mut threaded) = (5_u64, 1_000_u64, false);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|it| it.parse().ok()).expect("a number");
        match word.as_str() {
            "--rounds" => rounds = number(),
            "--millis" => millis = number(),
            "--threaded" => threaded = true,
            _ => panic!("no option {word}"),
        }
    }
    let place = Place::build(threaded);
    let round = |number| {
        let rates = WAYS.map(|(_, way)| measure(&place, way, Duration::from_millis(millis)));
        let row: Vec<_> =
            WAYS.iter().zip(rates).map(|((name, _), it)| format!("{name} {it:.3}")).collect();
        println!("round {number}, Mpps: {}", row.join(", "));
        rates
    };
    let rates: Vec<[f64; 5]> = (1..=rounds).map(round).collect();
    for (index, (name, _)) in WAYS.iter().enumerate() {
        println!("{name}: {:.3} Mpps", median(rates.iter().map(|round| round[index]).collect()));
    }
    let ratio =
        |a: usize, b: usize| median(rates.iter().map(|round| round[a] / round[b]).collect());
    println!("Weft by AF_XDP is {:.2} of a bare AF_XDP blast (at least 0.8 wanted)", ratio(1, 0));
    println!(
        "and {:.2} of a bare sendmmsg blast (at least 2), {:.2} of Weft by sendmmsg, {:.2} of Weft by GSO",
        ratio(1, 2),
        ratio(1, 3),
        ratio(1, 4)
    );
}
