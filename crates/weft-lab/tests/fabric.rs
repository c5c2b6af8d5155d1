//! Labs on the real kernel. Without root or a required tool each test reports that it was skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "these tests watch a kernel in real time")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_lab::{Direction, Flow, Impairment, Lab, LabError, LabSpec, enter};
use weft_testkit::{lab_is_missing, skip_on_this_machine};
use weft_units::ByteCount;

const PORT: u16 = 4791;
const UDP: u8 = 17;

/// Builds a lab with a unique name; returns `None` after reporting the reason if labs are not possible here.
fn lab(change: impl FnOnce(&mut LabSpec)) -> Option<Lab> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if lab_is_missing(&test_name(), &[]) {
        return None;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut spec = LabSpec::named(format!("t{}-{number}", std::process::id()));
    change(&mut spec);
    Some(Lab::up(&spec).unwrap())
}

/// Returns the name of the test that runs on this thread.
fn test_name() -> String {
    thread::current().name().unwrap_or("a lab").to_owned()
}

/// Binds a socket and returns it. The call is repeated while the port is in use: a child that another test forked may
/// hold a port that was just closed until the child executes its program.
fn bind(lab: &Lab, host: &str, port: u16) -> UdpSocket {
    let deadline = Instant::now() + Duration::from_secs(10);
    let socket = loop {
        let bound = lab.enter(host, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).unwrap();
        match bound {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                weft_testkit::pause();
            }
            bound => break bound.unwrap(),
        }
    };
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

/// Returns `true` if a datagram from `h0` arrives at `h1` within two seconds, sent every 20 ms.
fn reaches(lab: &Lab, from_port: u16) -> bool {
    let (sender, receiver) = (bind(lab, "h0", from_port), bind(lab, "h1", PORT));
    let to = (lab.fabric().address(1), PORT);
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    (0..100).any(|_| {
        sender.send_to(b"are you there", to).unwrap();
        receiver.recv(&mut [0; 64]).is_ok()
    })
}

fn flow(source_port: u16) -> Flow {
    Flow { source: 0, destination: 1, protocol: UDP, source_port, destination_port: PORT }
}

/// Returns a source port with which packets from `h0` to `h1` cross `spine`.
fn port_over(lab: &Lab, spine: usize) -> u16 {
    lab.fabric().paths().ports_over(&flow(0), spine, 40_000).next().unwrap()
}

/// Returns the number of packets that each spine link of leaf 0 has sent upward.
fn sent_upward(lab: &Lab) -> Vec<u64> {
    let first = lab.fabric().link("l0-s0").unwrap();
    let counters = lab.counters().unwrap();
    counters[first..first + lab.fabric().spines()].iter().map(|link| link.forward.packets).collect()
}

#[test]
fn a_lab_comes_up_carries_packets_and_is_removed_completely() {
    let Some(lab) = lab(|_| {}) else { return };
    let name = lab.name().to_owned();
    assert!(reaches(&lab, 40_000));
    let mut sleeper = lab.spawn("h0", Command::new("sleep").arg("600")).unwrap();
    let namespaces: Vec<String> =
        lab.fabric().nodes.iter().map(|node| node.namespace.clone()).collect();

    drop(lab);

    assert!(!sleeper.wait().unwrap().success(), "the process in the lab was not killed");
    assert!(!Lab::list().contains(&name));
    for namespace in namespaces {
        assert!(
            matches!(enter(&namespace, || ()), Err(LabError::Io { .. })),
            "{namespace} is left"
        );
    }
}

#[test]
fn each_host_leaf_and_spine_is_a_namespace_of_its_own() {
    let Some(lab) = lab(|spec| (spec.leaves, spec.spines) = (3, 4)) else { return };
    let namespaces: BTreeSet<_> = lab.fabric().nodes.iter().map(|node| &node.namespace).collect();
    assert_eq!(namespaces.len(), 3 + 3 + 4);
    for namespace in namespaces {
        enter(namespace, || ()).unwrap();
    }
}

#[test]
fn the_kernel_routes_every_port_as_predicted() {
    let Some(mut lab) = lab(|spec| (spec.spines, spec.hosts_per_leaf) = (5, 2)) else { return };
    if matches!(lab.paths(), Err(LabError::Unpredictable)) {
        skip_on_this_machine(&test_name(), &LabError::Unpredictable.to_string());
        return;
    }
    let agree = |lab: &Lab| {
        let paths = lab.paths().unwrap();
        for source_port in (1..=u16::MAX).step_by(131) {
            let flow = Flow { source: 1, destination: 2, ..flow(source_port) };
            assert_eq!(
                paths.spine_of(&flow),
                routed(lab, &flow),
                "source port {source_port}, links {:?}",
                lab.links()
            );
        }
    };
    agree(&lab);
    lab.set_down("l0-s3").unwrap();
    agree(&lab);
    lab.set_down("l1-s0").unwrap();
    lab.converge().unwrap();
    agree(&lab);
    lab.set_up("l0-s3").unwrap();
    lab.set_up("l1-s0").unwrap();
    agree(&lab);
    assert!(lab.links().iter().all(|link| !link.down && !link.withdrawn));
}

/// Returns the spine to which the kernel of the source's leaf routes the flow.
fn routed(lab: &Lab, flow: &Flow) -> Option<usize> {
    let fabric = lab.fabric();
    let leaf = format!("l{}", fabric.leaf_of(flow.source));
    let query = format!(
        "-o route get {} from {} iif h{} ipproto udp sport {} dport {}",
        fabric.address(flow.destination),
        fabric.address(flow.source),
        flow.source,
        flow.source_port,
        flow.destination_port
    );
    let output =
        lab.enter(&leaf, || Command::new("ip").args(query.split(' ')).output()).unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let device = text.split(" dev s").nth(1)?;
    device.split_ascii_whitespace().next()?.parse().ok()
}

#[test]
fn packets_of_a_connected_socket_cross_the_predicted_spine() {
    let Some(lab) = lab(|_| {}) else { return };
    let Ok(paths) = lab.paths() else {
        skip_on_this_machine(&test_name(), &LabError::Unpredictable.to_string());
        return;
    };
    assert!(reaches(&lab, 39_000), "address resolution is done before counting");
    let _receiver = bind(&lab, "h1", PORT);
    let mut expected = vec![0; lab.fabric().spines()];
    let before = sent_upward(&lab);
    for source_port in 40_000..40_064 {
        let sender = bind(&lab, "h0", source_port);
        sender.connect((lab.fabric().address(1), PORT)).unwrap();
        (0..100).for_each(|_| assert!(sender.send(b"counted").is_ok()));
        expected[paths.spine_of(&flow(source_port)).unwrap()] += 100;
    }
    let after = sent_upward(&lab);
    for (spine, expected) in expected.iter().enumerate() {
        // Address resolution may add a packet or two.
        let sent = after[spine] - before[spine];
        assert!((*expected..expected + 8).contains(&sent), "spine {spine}: {sent} not {expected}");
    }
}

#[test]
fn one_per_cent_of_loss_is_one_packet_in_a_hundred_even_from_large_segments() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let port = port_over(&lab, 2);
    assert!(reaches(&lab, port));
    let lossy = Impairment { loss: "1%".parse().unwrap(), ..Impairment::default() };
    lab.impair("l0-s2", Direction::From("l0".into()), &lossy).unwrap();

    // 500 writes of 40 datagrams each leave the host as single large segments (UDP GSO).
    let (sender, receiver) = (bind(&lab, "h0", port), bind(&lab, "h1", PORT));
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
    sender.connect((lab.fabric().address(1), PORT)).unwrap();
    let counting = thread::spawn(move || {
        let mut received = 0u32;
        while receiver.recv(&mut [0; 2048]).is_ok() {
            received += 1;
        }
        received
    });
    for _ in 0..500 {
        assert_eq!(sender.send(&[7; 40_000]).unwrap(), 40_000);
        thread::sleep(Duration::from_micros(200));
    }
    drop(sender);
    let received = counting.join().unwrap();

    let link = lab.fabric().link("l0-s2").unwrap();
    let counters = lab.counters().unwrap()[link];
    // 20,000 draws at 1 % have a standard deviation of 14; the range is five of them on either side.
    assert!((130..=270).contains(&counters.forward.dropped), "{counters:?}");
    assert_eq!(counters.backward.dropped, 0);
    let lost = 20_000 - u64::from(received);
    assert!(lost >= counters.forward.dropped, "{lost} lost, {counters:?}");
    // The receive buffer of a slow machine may overflow; losing whole segments would cost 40 each.
    let singles = sent_upward(&lab)[2];
    assert!(singles >= 20_000, "{singles} packets on the wire: segments were not cut");

    lab.impair("l0-s2", Direction::Both, &Impairment::default()).unwrap();
    assert!(reaches(&lab, port));
    assert_eq!(lab.counters().unwrap()[link].forward.dropped, counters.forward.dropped);
}

#[test]
fn a_black_hole_drops_silently_and_can_be_repaired() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let (dead, alive) = (port_over(&lab, 1), port_over(&lab, 0));
    lab.set_black_hole("l0-s1", true).unwrap();
    let sender = bind(&lab, "h0", dead);
    let receiver = bind(&lab, "h1", PORT);
    for _ in 0..50 {
        sender.send_to(b"lost", (lab.fabric().address(1), PORT)).unwrap();
    }
    let error = receiver.recv(&mut [0; 64]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    drop((sender, receiver));
    assert!(reaches(&lab, alive), "another spine is not affected");
    lab.set_black_hole("l0-s1", false).unwrap();
    assert!(reaches(&lab, dead));
}

#[test]
fn flows_of_a_link_that_is_down_use_others_and_return() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let port = port_over(&lab, 3);
    assert!(reaches(&lab, port));
    lab.set_down("l0-s3").unwrap();
    assert!(reaches(&lab, port), "the leaf lost its carrier and must hash over the others");
    lab.set_up("l0-s3").unwrap();
    assert!(reaches(&lab, port));
    let before = sent_upward(&lab)[3];
    assert!(reaches(&lab, port));
    assert!(sent_upward(&lab)[3] > before, "the flow is back on its spine");
}

#[test]
fn the_only_link_of_a_host_can_go_down_and_up() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.flap("h0-l0", Duration::from_millis(10), Duration::from_millis(10), 3).unwrap();
    assert!(reaches(&lab, 40_000));
}

#[test]
fn a_rate_limit_limits() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let limited = Impairment { rate: "80Mbps".parse().ok(), ..Impairment::default() };
    lab.impair("h0-l0", Direction::From("h0".into()), &limited).unwrap();
    let (sender, receiver) = (bind(&lab, "h0", 40_000), bind(&lab, "h1", PORT));
    let to = (lab.fabric().address(1), PORT);
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // A full queue refuses the packet, which is the effect of the limit.
                let _ = sender.send_to(&[0; 1400], to);
            }
        });
        let mut buffer = [0; 2048];
        receiver.recv(&mut buffer).unwrap();
        let start = Instant::now();
        let mut bits = 0.0;
        while start.elapsed() < Duration::from_secs(1) {
            bits += 8.0 * (receiver.recv(&mut buffer).unwrap() + 42) as f64;
        }
        done.store(true, Ordering::Relaxed);
        let mbps = bits / start.elapsed().as_secs_f64() / 1e6;
        assert!((60.0..100.0).contains(&mbps), "{mbps:.1} Mb/s through a limit of 80");
    });
}

#[test]
fn a_queue_takes_effect_only_with_a_rate() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let queue = Impairment { queue: Some(ByteCount(30_000)), ..Impairment::default() };
    let limited = Impairment { rate: "80Mbps".parse().ok(), ..queue };
    for (impairment, is_limited) in
        [(queue, false), (limited, true), (queue, false), (Impairment::default(), false)]
    {
        lab.impair("h0-l0", Direction::From("h0".into()), &impairment).unwrap();
        let tc = || Command::new("tc").args(["qdisc", "show"]).output().unwrap();
        let shown = String::from_utf8(lab.enter("h0", tc).unwrap().stdout).unwrap();
        assert_eq!(shown.contains("tbf"), is_limited, "{impairment:?}: {shown}");
    }
}

#[test]
fn marks_reach_the_receiver_and_are_counted() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let port = port_over(&lab, 0);
    let marking = Impairment { mark: "100%".parse().unwrap(), ..Impairment::default() };
    lab.impair("l0-s0", Direction::Both, &marking).unwrap();
    let sender = bind(&lab, "h0", port);
    let ect0 = 2;
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::Ipv4Tos, &ect0).unwrap();
    (0..10).for_each(|_| {
        sender.send_to(b"marked", (lab.fabric().address(1), PORT)).unwrap();
    });
    let link = lab.fabric().link("l0-s0").unwrap();
    let marked = || lab.counters().unwrap()[link].forward.marked;
    let deadline = Instant::now() + Duration::from_secs(2);
    while marked() < 10 {
        assert!(Instant::now() < deadline, "{} of 10 packets marked", marked());
    }
}

#[test]
fn a_later_command_finds_the_lab_with_its_impairments() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let lossy = Impairment { loss: "0.5%".parse().unwrap(), ..Impairment::default() };
    lab.impair("l1-s2", Direction::From("s2".into()), &lossy).unwrap();
    let found = Lab::open(lab.name()).unwrap();
    let link = found.fabric().link("l1-s2").unwrap();
    assert_eq!(found.links()[link].backward, lossy);
    assert_eq!(found.links()[link].forward, Impairment::default());
    drop(found);
    assert!(reaches(&lab, 40_000), "dropping an opened lab leaves it up");
}

#[test]
fn the_remains_of_a_crashed_process_are_removed_by_the_next_lab() {
    let Some(crashed) = lab(|_| {}) else { return };
    let name = crashed.name().to_owned();
    // A crashed process has run no destructor and has ended.
    std::mem::forget(crashed);
    let path = format!("/run/weft-lab/{name}.json");
    let mut child = Command::new("true").stdout(Stdio::null()).spawn().unwrap();
    let ended = child.id();
    child.wait().unwrap();
    let own = format!("\"owner\": {}", std::process::id());
    let state = std::fs::read_to_string(&path).unwrap();
    assert!(state.contains(&own));
    std::fs::write(&path, state.replace(&own, &format!("\"owner\": {ended}"))).unwrap();

    let next = lab(|_| {}).unwrap();
    assert!(!Lab::list().contains(&name));
    assert!(Lab::list().contains(&next.name().to_owned()));
}

#[test]
fn a_second_lab_of_the_same_name_is_refused() {
    let Some(first) = lab(|_| {}) else { return };
    let error = Lab::up(first.spec()).unwrap_err();
    assert!(error.to_string().contains("weft lab down"), "{error}");
    assert!(reaches(&first, 40_000), "the first lab is untouched");
}
