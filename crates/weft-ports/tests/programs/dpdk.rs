//! A program on DPDK's virtio-user: `dpdk-testpmd`, which sends every packet back to its source.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_ports::{Port, VhostConfig, VhostPort};

use crate::common::guest::Socket;
use crate::common::namespace::Namespace;
use crate::common::network::{noise, with_network};
use crate::common::wire::Impairments;
use crate::tap;

/// A running testpmd, which is killed when this is dropped.
struct Testpmd(Child);

impl Testpmd {
    /// Starts testpmd, which swaps source and destination of each packet and sends it back.
    fn echo(program: &std::path::Path, socket: &Socket, options: &str) -> Self {
        let prefix = format!("wp{}-{}", std::process::id(), options.len());
        let device =
            format!("net_virtio_user0,path={},mac=02:00:00:00:77:02,{options}", socket.0.display());
        let child = Command::new(program)
            .args(["--no-huge", "-m", "128", "--no-pci", "--lcores", "(0-1)@0", "--no-telemetry"])
            .args(["--file-prefix", &prefix, "--vdev", &device])
            .args(["--", "-i", "--forward-mode=5tswap", "--auto-start", "--total-num-mbufs=2048"])
            // The program ends when its standard input does.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends datagrams of many lengths, each until it returns, and compares them.
fn echo_all(space: &Namespace, net: &str, count: usize) {
    let client = space.enter(|| UdpSocket::bind(format!("{net}.1:0"))).unwrap();
    client.connect(format!("{net}.2:7")).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut buffer = [0; 2_000];
    for number in 0..count {
        let mut datagram = noise(8 + 37 * number % 1_400);
        datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
        // Packets are lost only before the program is up.
        client.send(&datagram).unwrap();
        loop {
            match client.recv(&mut buffer) {
                Ok(len) if buffer[..8] == datagram[..8] => {
                    assert!(buffer[..len] == datagram, "datagram {number} has changed");
                    break;
                }
                Ok(_) => {}
                Err(_) => {
                    assert!(Instant::now() < deadline, "datagram {number} did not return");
                    client.send(&datagram).unwrap();
                }
            }
        }
    }
}

#[test]
fn dpdk_receives_and_sends_every_packet_whole_over_a_lossy_network() {
    exchange("10.77.3", "queues=1");
}

#[test]
fn dpdk_with_packed_rings_receives_and_sends_every_packet_whole() {
    exchange("10.77.7", "queues=1,packed_vq=1");
}

/// Exchanges datagrams in the subnet `net` with a program whose device has these options.
fn exchange(net: &str, options: &str) {
    const TEST: &str = "DPDK's virtio-user";
    let Some(testpmd) = weft_testkit::installed("dpdk-testpmd") else {
        return weft_testkit::skip(TEST, "no dpdk-testpmd (apt-get install dpdk-dev)");
    };
    if weft_testkit::lab_is_missing(TEST, &[]) {
        return;
    }
    let space = Namespace::new(&format!("wpdpdk{}", options.len()));
    let mut tap = tap(&space, &format!("{net}.1"));
    space.ip(&["neigh", "add", &format!("{net}.2"), "lladdr", "02:00:00:00:77:02", "dev", "eth0"]);
    let socket = Socket::new(&format!("dpdk-{}", options.len()));
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let impairments = Impairments { loss: 30, reordering: 16 };
    let ((), wires) = with_network([&mut tap, &mut port], impairments, || {
        let _testpmd = Testpmd::echo(&testpmd, &socket, options);
        echo_all(&space, net, 2_000);
    });
    let reports: Vec<_> = wires.iter().flat_map(|wire| &wire.reports).collect();
    assert!(reports.iter().all(|report| report.contains("is gone")), "{reports:?}");
    let counters = port.counters();
    assert!(counters.sent_frames >= 2_000 && counters.received_frames >= 2_000);
    // The program needs complete checksums, which the kernel left to the port.
    assert!(counters.segmented >= 2_000, "{counters:?}");
    assert_eq!((counters.bad_chain, counters.bad_header, counters.bad_frame), (0, 0, 0));
}
