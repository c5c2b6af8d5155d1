//! A test of hosts that send any bytes to the ports of processes with the device.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use weft_units::{Rng, Seed};

use crate::pair::{OneHost, Stage, run};
use crate::two_namespaces::two_hosts;

/// The ports at which processes receive: the first of the 256 shares.
const PORTS: std::ops::Range<u16> = 0x5000..0x5008;

/// Returns a packet of each kind, from the annotated hexadecimal of weft-wire's tests.
fn packets() -> Vec<Vec<u8>> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weft-wire/tests/golden");
    let names =
        ["request", "offer", "data", "data_message", "data_rdma", "ack", "ack_full", "close"];
    let read = |name| std::fs::read_to_string(golden.join(format!("{name}.hex"))).unwrap();
    let bytes = |text: String| {
        let digits: String = text.lines().flat_map(|line| line.split('#').next()).collect();
        let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits
            .as_chunks()
            .0
            .iter()
            .map(|[high, low]| u8::try_from(high * 16 + low).unwrap())
            .collect()
    };
    names.into_iter().map(read).map(bytes).collect()
}

/// Changes a packet: other IDs, numbers, keys, lengths; more bytes, or fewer.
fn forge(packet: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut forged = packet.to_vec();
    for _ in 0..rng.below(8) {
        let at = rng.index(forged.len());
        forged[at] = rng.next_u64().to_le_bytes()[0];
    }
    match rng.below(4) {
        0 => forged.truncate(rng.index(forged.len()) + 1),
        1 => forged.extend((0..rng.below(1400)).map(|byte| byte.to_le_bytes()[0])),
        _ => {}
    }
    forged
}

/// Ends the attack, even if a program failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs two programs while `socket` sends forged packets to every process with the device at `target`.
fn attack(stage: &(impl Stage + Sync), socket: &UdpSocket, target: IpAddr, words: &str) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let enemy = scope.spawn(|| {
            let (packets, mut rng) = (packets(), Seed(4).rng());
            let mut sent = 0u64;
            while !over.load(Ordering::Relaxed) {
                let forged = forge(&packets[rng.index(packets.len())], &mut rng);
                for port in PORTS {
                    // The port may be closed.
                    sent += u64::from(socket.send_to(&forged, (target, port)).is_ok());
                }
                // A flood would only take the processor away from the programs under test.
                thread::yield_now();
            }
            sent
        });
        let ends = Over(&over);
        let printed = run(stage, words);
        drop(ends);
        let sent = enemy.join().unwrap();
        assert!(printed.client.contains("usec/iter"), "{printed:?}");
        for output in [&printed.client, &printed.server] {
            assert!(!output.contains("invalid data") && !output.contains("AF_XDP"), "{printed:?}");
        }
        assert!(sent > 1000, "{sent} packets are no attack");
    });
}

#[test]
fn strangers_change_nothing_between_two_programs() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = [127, 0, 0, 1].into();
    attack(&OneHost, &socket, target, "ibv_rc_pingpong -g 0 -c -s 100000 -n 300");
}

#[test]
fn strangers_change_nothing_between_two_programs_by_af_xdp() {
    let Some(hosts) = two_hosts("strangers and AF_XDP") else { return };
    let socket = hosts.0.enter("h1", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let target = hosts.0.fabric().address(0).into();
    let words = "env WEFT_WIRE=af-xdp ibv_rc_pingpong -g 0 -c -s 100000 -n 100";
    attack(&hosts, &socket, target, words);
}
