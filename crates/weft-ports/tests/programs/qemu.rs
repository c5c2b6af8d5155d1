//! A test with Linux in QEMU, on emulated processors: it fetches a file, checks it, and sends it back.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use weft_ports::{Port, VhostConfig, VhostPort};
use weft_testkit::Files;

use crate::common::guest::Socket;
use crate::common::namespace::Namespace;
use crate::common::network::{Signal, forward, noise};
use crate::common::wire::Impairments;
use crate::machine::{Device, Guest, accept, parts};
use crate::tap;

/// The guest's script: it prints each step on its console.
const SCRIPT: &str = "\
(sleep 200; poweroff -f) &
ip link set eth0 up; ip address add NET.2/24 dev eth0
ping -c 3 -W 20 NET.1 && echo step ping
wget -q -O /file http://NET.1:8000/file && echo step fetch
nc NET.1 8001 < /file && echo step send
poweroff -f
";

/// Serves a file, and sets `half` when half of it is sent.
fn serve(file: &[u8], mut stream: TcpStream, half: &AtomicBool) {
    let mut request = [0; 4_096];
    let len = stream.read(&mut request).unwrap();
    assert!(request[..len].starts_with(b"GET /file "));
    let header = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
    stream.write_all(header.as_bytes()).unwrap();
    let (first, second) = file.split_at(file.len() / 2);
    stream.write_all(first).unwrap();
    half.store(true, Ordering::Relaxed);
    stream.write_all(second).unwrap();
}

#[test]
fn a_linux_guest_receives_and_sends_a_file_whole_over_a_lossy_network_and_an_upgrade() {
    exchange("10.77.4", false);
}

#[test]
fn a_linux_guest_with_packed_rings_receives_and_sends_a_file_whole() {
    exchange("10.77.6", true);
}

/// Runs a guest in the subnet `net` until it has sent the file back; with split rings over an upgrade of the port.
fn exchange(net: &str, packed: bool) {
    let (qemu, busybox, kernel) = match parts() {
        Ok(parts) => parts,
        Err(missing) => return weft_testkit::skip("a guest in QEMU", &missing),
    };
    if weft_testkit::lab_is_missing("a guest in QEMU", &[]) {
        return;
    }
    let space = Namespace::new(if packed { "wpqemup" } else { "wpqemu" });
    let mut tap = tap(&space, &format!("{net}.1"));
    let socket = Socket::new(&format!("qemu-{packed}"));
    let config = VhostConfig::at(&socket.0);
    let mut port = VhostPort::open(&config).unwrap();
    let script = SCRIPT.replace("NET", net);
    // A temporary file, removed at the end of the test like sockets.
    let initramfs = Socket::new(&format!("initramfs-{packed}"));
    fs::write(&initramfs.0, kernel.initramfs(&busybox, &[], &Files::default(), &script)).unwrap();
    let file = noise(6 << 20);
    let listen = |port| space.enter(|| TcpListener::bind(format!("{net}.1:{port}")).unwrap());
    let [http, upload] = [8_000, 8_001].map(listen);
    let (half, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let impairments = Impairments { loss: 10, reordering: 32 };

    std::thread::scope(|scope| {
        let files = scope.spawn(|| {
            let _half = Signal(&half);
            serve(&file, accept(&http), &half);
            let mut back = vec![];
            accept(&upload).read_to_end(&mut back).unwrap();
            back
        });
        let guest = scope.spawn(|| {
            let _done = Signal(&done);
            let device = Device { packed, ..Device::of("02:00:00:00:77:04") };
            Guest::boot((&qemu, &kernel), &initramfs.0, &socket.0, &device).console()
        });
        let before = forward([&mut tap, &mut port], impairments, &half);
        let counters = port.counters();
        // Half of the file has arrived when the port's process ends and another replaces it.
        // QEMU 7.2 forgets a packed ring's position then, and writes to the ring itself.
        let mut port = if packed {
            port
        } else {
            drop(port);
            tap.return_buffers();
            VhostPort::open(&config).unwrap()
        };
        let after = forward([&mut tap, &mut port], impairments, &done);
        let output = guest.join().unwrap();
        for step in ["ping", "fetch", "send"] {
            assert!(output.contains(&format!("step {step}")), "no {step}: {output}");
        }
        assert!(files.join().unwrap() == file, "the file came back changed");
        for counters in [counters, port.counters()] {
            assert!(counters.sent_frames > 10 && counters.received_frames > 10, "{counters:?}");
            let bad = counters.bad_chain + counters.bad_frame + counters.bad_header;
            // Linux does not change its buffers before they return, so most frames stay there without a copy.
            assert_eq!((bad, counters.recycled_early), (0, 0));
            assert!(2 * counters.uncopied > counters.sent_frames, "{counters:?}");
        }
        // Super-frames in both directions: those that the guest's TCP sends, and those that it receives.
        assert!(before[0].largest > 5_000 && after[1].largest > 5_000);
        assert_eq!(port.holdings().taken, 0);
    });
}
