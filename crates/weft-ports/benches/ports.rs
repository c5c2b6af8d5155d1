//! Measures the cost of a frame at a port, in CPU time of the thread that drives it and in memory
//! while the frame is in flight. The guest's own work, and the kernel's behind a TAP interface
//! outside our system calls, do not count.
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant as Real};

use common::front_end::USUAL;
use common::guest::{Guest, Socket};
use common::namespace::Namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use weft_ports::{
    Custody, HEADER_LEN, MAX_FRAME, Port, TapConfig, TapPort, VhostConfig, VhostPort,
};
use weft_testkit::{figure_row, json};
use weft_units::Instant;
use weft_vpc::{Reading, Staging, Token, Turn};

/// Number of frames of one measurement.
const FRAMES: usize = 20_000;
/// Number of frames between two readings of the clock.
const BATCH: usize = 48;
/// Bytes read or placed at a time: the payload of a packet of the underlay.
const PACKET: usize = 1_400;
const LENGTHS: [usize; 3] = [76, 1_526, 65_000];

fn main() {
    if std::env::args().any(|word| word == "memory") {
        return sent_by_guest(1_526, true);
    }
    println!(
        "{:<34} {:>8} {:>12} {:>12} {:>14}",
        "port", "bytes", "ns a frame", "Mframes/s", "bytes held"
    );
    for len in LENGTHS {
        sent_by_guest(len, false);
        sent_by_guest(len, true);
        received_by_guest(len);
    }
    sent_by_dpdk();
    if weft_testkit::lab_is_missing("TAP", &[]) {
        return;
    }
    let space = Namespace::new("wpbench");
    for len in [76, 1_526] {
        sent_by_host(&space, len);
    }
    for len in LENGTHS {
        received_by_host(&space, len);
    }
}

/// Returns the CPU time of this thread, nanoseconds.
fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("time goes forward")
}

fn report(port: &str, len: usize, spent: u64, frames: usize, held: usize) {
    let nanos = spent as f64 / frames as f64;
    println!("{port:<34} {len:>8} {nanos:>12.0} {:>12.2} {held:>14}", 1e3 / nanos);
}

fn frame(len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len];
    bytes[..HEADER_LEN as usize].fill(0);
    bytes[12..26]
        .copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes
}

/// Takes up to a batch of frames and reads them packet by packet, as for transmission.
fn take_batch(port: &mut dyn Port, packet: &mut [u8], held: &mut Vec<Token>) {
    while held.len() < BATCH {
        let Some(sent) = port.take(Instant::EPOCH).expect("a sound queue") else { break };
        for offset in (0..sent.len).step_by(PACKET) {
            let piece = PACKET.min((sent.len - offset) as usize);
            port.read(sent.token, offset, &mut packet[..piece], Reading::First)
                .expect("it is there");
        }
        held.push(sent.token);
    }
}

/// Takes, reads and releases the frames that `send` makes the tenant send.
fn drain(port: &mut dyn Port, mut send: impl FnMut()) -> (u64, usize, usize) {
    let (mut spent, mut frames, mut max_memory) = (0, 0, 0);
    let mut packet = vec![0; MAX_FRAME as usize];
    while frames < FRAMES {
        send();
        let mut held = vec![];
        let begun = cpu();
        take_batch(port, &mut packet, &mut held);
        spent += cpu() - begun;
        if !held.is_empty() {
            max_memory = max_memory.max(port.holdings().taken_memory / held.len());
        }
        let begun = cpu();
        held.iter().for_each(|&token| port.release(token));
        port.flush().expect("a sound queue");
        spent += cpu() - begun;
        frames += held.len();
    }
    (spent, frames, max_memory)
}

fn vhost(name: &str, receive_len: u32) -> (VhostPort, Guest, Socket) {
    let socket = Socket::new(name);
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).expect("a socket");
    let guest = Guest::start(&mut port, &socket.0, 256, USUAL, receive_len);
    (port, guest, socket)
}

fn sent_by_guest(len: usize, trusted: bool) {
    let (mut port, mut guest, _socket) = vhost("sends", 1_536);
    let frame = frame(len);
    if trusted {
        // The first retransmission shows that the guest keeps its buffers.
        assert!(guest.send(&frame));
        let sent = port.take(Instant::EPOCH).expect("a sound queue").expect("it was sent");
        port.read(sent.token, 0, &mut [0; 20], Reading::Retransmission).expect("it is there");
        port.release(sent.token);
        port.flush().expect("a sound queue");
        assert_eq!(port.custody(), Custody::Guest);
    }
    let (spent, frames, held) = drain(&mut port, || {
        for _ in 0..BATCH {
            guest.send(&frame);
        }
    });
    let name =
        if trusted { "vhost-user sends, delayed release" } else { "vhost-user sends, copied" };
    report(name, len, spent, frames, held);
    if trusted && len == 1_526 {
        held_by_rate(held);
    }
}

/// Measures the port's part of BIFROST's figure 22: frames of 1,400 bytes in flight for 300 us.
fn held_by_rate(bytes: usize) {
    for gigabits in [1.0, 5.0, 10.0] {
        let in_flight = gigabits * 1e9 / 8.0 / 1400.0 * 300e-6;
        let held = in_flight * bytes as f64 / 1e3;
        let rate = format!("{gigabits} Gb/s");
        figure_row("bifrost-fig22", &json!({ "part": "port", "rate": rate, "held": held }));
    }
}

/// A running testpmd, which is killed when this is dropped.
struct Testpmd(Child);

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures the traffic of an independent driver, DPDK's, at its maximum rate, with a daemon's waits.
fn sent_by_dpdk() {
    let socket = Socket::new("testpmd");
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).expect("a socket");
    let device = format!("net_virtio_user0,path={},queues=1", socket.0.display());
    let started = Command::new("dpdk-testpmd")
        .args(["--no-huge", "-m", "128", "--no-pci", "--lcores", "(0-1)@0", "--no-telemetry"])
        .args(["--file-prefix", "wpbench", "--vdev", &device])
        .args(["--", "-i", "--forward-mode=txonly", "--auto-start", "--total-num-mbufs=2048"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(_testpmd) = started.map(Testpmd) else {
        return println!("SKIPPED DPDK: no dpdk-testpmd (apt-get install dpdk-dev)");
    };
    let (mut frames, mut begun, mut max_memory) = (0, None, 0);
    let mut packet = vec![0; MAX_FRAME as usize];
    let deadline = Real::now() + Duration::from_secs(60);
    while frames < 50 * FRAMES {
        assert!(Real::now() < deadline, "testpmd sends nothing");
        let mut fds = [PollFd::from_borrowed_fd(port.fd(), PollFlags::IN)];
        let a_second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut fds, Some(&a_second));
        port.service(Instant::EPOCH).expect("a sound front end");
        loop {
            let mut held = vec![];
            take_batch(&mut port, &mut packet, &mut held);
            if held.is_empty() {
                break;
            }
            // The CPU time counts from the first frame.
            begun.get_or_insert_with(cpu);
            max_memory = max_memory.max(port.holdings().taken_memory / held.len());
            held.iter().for_each(|&token| port.release(token));
            port.flush().expect("a sound queue");
            frames += held.len();
        }
    }
    let spent = cpu() - begun.expect("there were frames");
    report("vhost-user, DPDK sends, copied", 76, spent, frames, max_memory);
}

/// Places a batch of frames.
fn fill(port: &mut dyn Port, frame: &[u8]) -> usize {
    let len = u32::try_from(frame.len()).expect("a frame");
    let mut placed = 0;
    while placed < BATCH {
        let Some(slot) = port.claim(len, Turn::Next, Staging::InPlace, &[]) else { break };
        for (at, piece) in frame.chunks(PACKET).enumerate() {
            let offset = u32::try_from(at * PACKET).expect("within a frame");
            port.place(slot, offset, piece).expect("it was claimed");
        }
        port.complete(slot);
        placed += 1;
    }
    port.flush().expect("a sound queue");
    placed
}

fn received_by_guest(len: usize) {
    let (mut port, mut guest, _socket) = vhost("receives", 1_536);
    let frame = frame(len);
    let (mut spent, mut frames, mut held) = (0, 0, 0);
    while frames < FRAMES {
        let begun = cpu();
        frames += fill(&mut port, &frame);
        spent += cpu() - begun;
        held = held.max(port.holdings().claimed_memory);
        guest.receive();
        guest.received.clear();
    }
    report("vhost-user receives", len, spent, frames, held);
}

fn tap(space: &Namespace) -> TapPort {
    TapPort::open(&TapConfig {
        namespace: Some(space.0.parse().expect("a name")),
        addresses: vec![("10.77.9.1".parse().expect("an address"), 24)],
        ..TapConfig::named("bench%d")
    })
    .expect("a TAP interface")
}

fn sent_by_host(space: &Namespace, len: usize) {
    let mut port = tap(space);
    let socket = space.enter(|| UdpSocket::bind("10.77.9.1:0")).expect("a socket");
    socket.set_broadcast(true).expect("it may");
    // Virtio, Ethernet, IPv4 and UDP headers come before it.
    let payload = vec![7; len - 54];
    let (spent, frames, held) = drain(&mut port, || {
        for _ in 0..BATCH {
            socket.send_to(&payload, "10.77.9.255:9").expect("there is room");
        }
    });
    report("TAP sends", len, spent, frames, held);
}

fn received_by_host(space: &Namespace, len: usize) {
    let mut port = tap(space);
    let frame = frame(len);
    let (mut spent, mut frames) = (0, 0);
    while frames < FRAMES {
        let begun = cpu();
        frames += fill(&mut port, &frame);
        spent += cpu() - begun;
    }
    report("TAP receives", len, spent, frames, port.holdings().claimed_memory / BATCH);
}
