//! Two daemons whose tenants are a namespace and a Linux in QEMU on vhost-user, over paths that lose and reorder.
//! Needs root, QEMU, busybox and a kernel to boot; without them the test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

#[path = "../../weft-ports/tests/programs/machine.rs"]
mod machine;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use machine::{Device, Guest, accept, parts};
use weft_lab::{Direction, Impairment};
use weft_testkit::Files;
use weft_trial::{Trial, TrialConfig};
use weft_units::Seed;
use weft_vswitch::config::VhostUser;
use weft_vswitch::control::{Answer, Request, send_request};

/// The guest's script: it prints each step on its console.
const SCRIPT: &str = "\
ip link set eth0 up; ip address add 192.168.7.2/24 dev eth0
wget -q -O /file http://192.168.7.1:8000/file && echo step fetch
nc 192.168.7.1 8001 < /file && echo step send
poweroff -f
";

/// A file of this test, which is removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("weft-vs-qemu-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns a trial with red in a namespace on host 0 and behind `socket` on host 1; packets alternate between four
/// paths, of which two are slow and all lose.
fn trial(socket: &Scratch) -> Trial {
    let mut config = TrialConfig::named("vs-qemu");
    config.tenants = vec!["red".into()];
    config.host.policy = "round-robin".into();
    config.host.group = 1;
    let mut trial = Trial::up(&config).unwrap();
    trial.stop(1);
    let port = &mut trial.config(1).ports[0];
    port.tap = None;
    port.vhost_user = Some(VhostUser::at(socket.0.clone()));
    trial.start(1).unwrap();
    for spine in 0..4 {
        let rate = (spine % 2 == 0).then(|| "50Mbps".parse().unwrap());
        let impairment = Impairment { loss: "1%".parse().unwrap(), rate, ..Impairment::default() };
        trial.lab.impair(&format!("l1-s{spine}"), Direction::Both, &impairment).unwrap();
    }
    trial
}

#[test]
fn a_guest_behind_the_daemon_gets_and_sends_a_file_whole() {
    const TEST: &str = "a guest in QEMU behind the daemon";
    let (qemu, busybox, kernel) = match parts() {
        Ok(parts) => parts,
        Err(missing) => return weft_testkit::skip(TEST, &missing),
    };
    if weft_testkit::lab_is_missing(TEST, &[]) {
        return;
    }
    let [socket, initramfs] = ["socket", "initramfs"].map(Scratch::new);
    fs::write(&initramfs.0, kernel.initramfs(&busybox, &[], &Files::default(), SCRIPT)).unwrap();
    let trial = trial(&socket);
    let mut rng = Seed(4).rng();
    let file: Vec<u8> = (0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let listen = |port| {
        let bind = || TcpListener::bind((Trial::address(0), port)).unwrap();
        weft_lab::enter(&trial.namespace("red", 0), bind).unwrap()
    };
    let [http, upload] = [8_000, 8_001].map(listen);
    let (console, back) = std::thread::scope(|scope| {
        let back = scope.spawn(|| {
            let mut stream = accept(&http);
            let mut request = [0; 4_096];
            let len = stream.read(&mut request).unwrap();
            assert!(request[..len].starts_with(b"GET /file "));
            let header = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
            stream.write_all(header.as_bytes()).unwrap();
            stream.write_all(&file).unwrap();
            drop(stream);
            let mut back = vec![];
            accept(&upload).read_to_end(&mut back).unwrap();
            back
        });
        let device = Device::of("02:00:00:00:07:02");
        let guest = Guest::boot((&qemu, &kernel), &initramfs.0, &socket.0, &device);
        (guest.console(), back.join().unwrap())
    });
    for step in ["fetch", "send"] {
        assert!(console.contains(&format!("step {step}")), "no {step}: {console}");
    }
    assert!(back == file, "the file came back changed, {} bytes of {}", back.len(), file.len());
    for host in 0..2 {
        let status = match send_request(&trial.control(host), &Request::Status).unwrap() {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        };
        let (port, transport) = (&status.ports[0], &status.transport);
        // Broadcasts of the namespace while the guest boots find no buffer there.
        assert!(port.dropped.keys().all(|cause| cause == "no_buffer"), "host {host}: {port:?}");
        // Frames travel on the connection, except for the broadcasts before it.
        assert!(port.carried.0 > 10 && port.carried.1 < 10, "host {host}: {port:?}");
        assert!(transport["out_of_order"] > 10, "host {host}: {transport:?}");
    }
}
