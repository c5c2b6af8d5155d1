//! Tests of two TAP interfaces in their own namespaces, with a lossy network between them.
#![expect(clippy::disallowed_methods, reason = "real interfaces live in real time")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant as Real};

use common::namespace::{Namespace, run};
use common::network::{noise, with_network};
use common::wire::{Impairments, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_ports::{Port, TapConfig, TapPort};
use weft_testkit::lab_is_missing;
use weft_units::Instant;
use weft_vpc::{Staging, Turn};

/// Two tenants, each in a namespace, and their ports.
struct Pair {
    spaces: [Namespace; 2],
    ports: [TapPort; 2],
}

fn pair(prefix: &str) -> Pair {
    let spaces = ["a", "b"].map(|end| Namespace::new(&format!("{prefix}{end}")));
    let open = |at: usize| {
        let host = at + 1;
        TapPort::open(&TapConfig {
            namespace: Some(spaces[at].0.parse().unwrap()),
            mtu: Some(1_450),
            mac: Some([2, 0, 0, 0, 9, u8::try_from(host).unwrap()]),
            addresses: vec![
                (format!("10.77.0.{host}").parse().unwrap(), 24),
                (format!("fd77::{host}").parse().unwrap(), 64),
            ],
            ..TapConfig::named("eth0")
        })
        .unwrap()
    };
    Pair { ports: [open(0), open(1)], spaces }
}

/// Runs `tenants` while frames are carried.
fn run_tenants<T: Send>(
    pair: &mut Pair,
    impairments: Impairments,
    tenants: impl FnOnce(&[Namespace; 2]) -> T + Send,
) -> (T, [Wire; 2]) {
    let Pair { spaces, ports: [a, b] } = pair;
    with_network([a, b], impairments, || tenants(spaces))
}

/// Sends `data` over TCP from the first namespace to the second and returns the received bytes.
fn tcp_transfer(spaces: &[Namespace; 2], to: &str, data: &[u8]) -> Vec<u8> {
    let address = format!("{to}:5001");
    let listener = spaces[1].enter(|| TcpListener::bind(&address)).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut all = vec![];
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            all
        });
        let mut stream = spaces[0].enter(|| TcpStream::connect(&address)).unwrap();
        stream.write_all(data).unwrap();
        drop(stream);
        server.join().unwrap()
    })
}

#[test]
fn super_frames_of_tcp_cross_a_lossy_reordering_network_unharmed() {
    if lab_is_missing("TAP under loss", &[]) {
        return;
    }
    let mut pair = pair("wptcp");
    let impairments = Impairments { loss: 20, reordering: 40 };
    let data = noise(24 << 20);
    let (arrived, wires) = run_tenants(&mut pair, impairments, |spaces| {
        wait_for_ipv6(spaces);
        [tcp_transfer(spaces, "10.77.0.2", &data), tcp_transfer(spaces, "[fd77::2]", &data)]
    });
    assert!(arrived.iter().all(|arrived| *arrived == data), "the data changed on the way");
    // The kernel left segmentation to the port, and the other side receives the frames whole.
    assert!(wires[0].largest > 30_000, "largest frame {}", wires[0].largest);
    assert_eq!((wires[0].reports.len(), wires[1].reports.len()), (0, 0), "{:?}", wires[0].reports);
    let [a, b] = pair.ports.each_ref().map(Port::counters);
    assert_eq!((b.lost, b.bad_header, a.bad_frame), (0, 0, 0));
    // Losses were repaired below TCP, which saw none.
    let nstat = run("ip", &["netns", "exec", &pair.spaces[0].0, "cat", "/proc/net/snmp"]);
    let retransmitted = tcp_counter(&nstat, "RetransSegs");
    assert!(retransmitted < 50, "TCP retransmitted {retransmitted} segments");
}

/// Waits until IPv6 addresses are no longer tentative, that is, until duplicate detection ends (RFC 4862, 5.4).
fn wait_for_ipv6(spaces: &[Namespace; 2]) {
    let deadline = Real::now() + Duration::from_secs(20);
    for space in spaces {
        while space.ip(&["-6", "address", "show", "tentative"]).contains("inet6") {
            assert!(Real::now() < deadline, "addresses stay tentative");
            weft_testkit::pause();
        }
    }
}

fn tcp_counter(snmp: &str, name: &str) -> u64 {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split_whitespace().position(|one| one == name).unwrap();
    values.split_whitespace().nth(at).unwrap().parse().unwrap()
}

#[test]
fn datagrams_keep_their_order_and_their_bytes() {
    if lab_is_missing("datagrams over TAP", &[]) {
        return;
    }
    let mut pair = pair("wpudp");
    let impairments = Impairments { loss: 50, reordering: 30 };
    const COUNT: u32 = 2_000;
    let (received, _) = run_tenants(&mut pair, impairments, |spaces| {
        let server = spaces[1].enter(|| UdpSocket::bind("10.77.0.2:7")).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let client = spaces[0].enter(|| UdpSocket::bind("10.77.0.1:0")).unwrap();
        client.connect("10.77.0.2:7").unwrap();
        let mut buffer = [0; 2_000];
        let mut received = vec![];
        for number in 0..COUNT {
            let mut datagram = noise(4 + number as usize % 1_300);
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            client.send(&datagram).unwrap();
            // Sixteen in flight at a time fit in every queue of the kernel.
            if number >= 16 {
                let len = server.recv(&mut buffer).unwrap();
                assert_eq!(buffer[4..len], noise(len)[4..]);
                received.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
            }
        }
        received
    });
    assert!(received.iter().copied().eq(0..COUNT - 16), "{received:?}");
}

#[test]
fn a_super_frame_of_datagrams_crosses_as_one_and_arrives_as_many() {
    use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

    if lab_is_missing("datagrams that are cut by the device", &[]) {
        return;
    }
    let mut pair = pair("wpuso");
    let impairments = Impairments { loss: 50, reordering: 30 };
    let data = noise(10 * 1_200 + 300);
    let (received, wires) = run_tenants(&mut pair, impairments, |spaces| {
        let server = spaces[1].enter(|| UdpSocket::bind("10.77.0.2:7")).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let client = spaces[0].enter(|| UdpSocket::bind("10.77.0.1:0")).unwrap();
        // The first datagram resolves the address; the kernel sends the next ones as one frame.
        client.send_to(b"first", "10.77.0.2:7").unwrap();
        let mut buffer = [0; 2_000];
        assert_eq!(server.recv(&mut buffer).unwrap(), 5);
        setsockopt(&client, UdpGsoSegment, &1_200).unwrap();
        client.send_to(&data, "10.77.0.2:7").unwrap();
        (0..11)
            .map(|_| server.recv(&mut buffer).map(|len| buffer[..len].to_vec()).unwrap())
            .collect()
    });
    let received: Vec<Vec<u8>> = received;
    assert!(received.concat() == data && received[10].len() == 300);
    // Linux leaves this segmentation to devices since version 6.2.
    assert!(wires[0].largest > 12_000, "largest frame {}", wires[0].largest);
}

#[test]
fn an_interface_that_is_down_keeps_completed_frames_and_a_deleted_one_is_reported() {
    if lab_is_missing("a TAP interface that goes down", &[]) {
        return;
    }
    let mut pair = pair("wpdown");
    let port = &mut pair.ports[1];
    let second = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
    pair.spaces[1].ip(&["link", "set", "eth0", "down"]);
    let frame =
        [[0; 12].as_slice(), &[0xff; 6], &[2, 0, 0, 0, 9, 1], &[0x88, 0xb5], &[1; 46]].concat();
    let len = u32::try_from(frame.len()).unwrap();
    let slot = port.claim(len, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    port.place(slot, 0, &frame).unwrap();
    port.complete(slot);
    port.flush().unwrap();
    assert!(!port.is_up());
    assert_eq!(
        (port.claim(len, Turn::OutOfOrder, Staging::InPlace, &[]), port.holdings().waiting),
        (None, 1)
    );
    pair.spaces[1].ip(&["link", "set", "eth0", "up"]);
    port.service(second(2)).unwrap();
    assert!(port.is_up());
    assert_eq!((port.holdings().waiting, port.counters().received_frames), (0, 1));

    pair.spaces[1].ip(&["link", "del", "eth0"]);
    let report = (0..100).find_map(|_| port.take(second(3)).err()).unwrap().to_string();
    assert!(report.contains("eth0") && report.contains("add it again"), "{report}");
    assert_eq!(port.take(second(4)).unwrap(), None);
    assert_eq!(port.claim(len, Turn::OutOfOrder, Staging::InPlace, &[]), None);
}

#[test]
fn a_port_stops_at_its_limits_and_continues_when_frames_are_released() {
    if lab_is_missing("limits of a TAP port", &[]) {
        return;
    }
    let space = Namespace::new("wplimit");
    let mut port = TapPort::open(&TapConfig {
        namespace: Some(space.0.parse().unwrap()),
        addresses: vec![("10.77.1.1".parse().unwrap(), 24)],
        limits: weft_ports::Limits { frames: 4, bytes: 1 << 20 },
        ..TapConfig::named("weft%d")
    })
    .unwrap();
    assert_eq!(port.name(), "weft0");
    let socket = space.enter(|| UdpSocket::bind("10.77.1.1:0")).unwrap();
    socket.set_broadcast(true).unwrap();
    for _ in 0..10 {
        socket.send_to(b"hello", "10.77.1.255:9").unwrap();
    }
    let now = Instant::EPOCH;
    let readable = |port: &TapPort| {
        let mut fds = [PollFd::from_borrowed_fd(port.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    let mut taken = vec![];
    while let Some(sent) = port.take(now).unwrap() {
        taken.push(sent);
    }
    assert_eq!(taken.len(), 4);
    assert!(!readable(&port), "a full port would keep its thread awake");
    port.release(taken[1].token);
    assert!(readable(&port));
    assert!(port.take(now).unwrap().is_some());
    assert_eq!(port.holdings().taken, 4);
}

#[test]
fn a_persistent_interface_waits_for_the_next_process_and_others_go() {
    if lab_is_missing("TAP interfaces that stay", &[]) {
        return;
    }
    let space = Namespace::new("wpstay");
    let path = format!("/run/netns/{}", space.0);
    let open = |persistent| {
        let namespace = Some(path.parse().unwrap());
        TapPort::open(&TapConfig { namespace, persistent, ..TapConfig::named("eth0") })
    };
    let mac = || space.ip(&["-o", "link", "show", "eth0"]);
    let port = open(true).unwrap();
    let before = mac();
    let message = open(true).unwrap_err().to_string();
    assert!(message.contains("create the TAP interface eth0"), "{message}");
    drop(port);
    let link = before.split("link/ether ").nth(1).unwrap();
    assert!(mac().contains(link), "{} is not {link}", mac());
    drop(open(false).unwrap());
    assert!(!space.ip(&["-o", "link"]).contains("eth0"));
}

#[test]
fn namespaces_and_interfaces_that_cannot_be_opened_are_named() {
    let missing = TapConfig {
        namespace: Some("wp-no-such-namespace".parse().unwrap()),
        ..TapConfig::named("eth0")
    };
    let message = TapPort::open(&missing).unwrap_err().to_string();
    assert!(message.contains("/run/netns/wp-no-such-namespace"), "{message}");
    let message = TapPort::open(&TapConfig::named("a name")).unwrap_err().to_string();
    assert!(message.contains("\"a name\""), "{message}");
}
