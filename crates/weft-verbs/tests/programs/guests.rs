//! Tests of unmodified programs in virtual machines, on devices of this machine's daemon.
//!
//! `make guests`

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weft_lab::{Direction, Impairment};

use crate::library::LIBRARY;
use crate::pair::{next_port, output, until_listening};
use crate::processes::ticks_of;
use crate::two_namespaces::two_hosts;
use host::{Host, Program};
use machine::{Machine, Parts};

mod host;
mod machine;

fn parts(test: &str) -> Option<Parts> {
    Parts::find().map_err(|missing| weft_testkit::skip(test, &missing)).ok()
}

/// Programs of which one end listens and the other connects.
const PROGRAMS: [&str; 8] = [
    "ibv_rc_pingpong -g 0 -c -s 20000 -n 100",
    "ibv_rc_pingpong -g 0 -e -n 100",
    "ib_write_bw -n 100",
    "ib_read_bw -n 50",
    "ib_send_lat -n 100",
    "env UCX_TLS=rc_v ucx_perftest -n 200 -w 10 -t tag_lat",
    "env UCX_TLS=rc_v ucx_perftest -n 50 -w 5 -t tag_bw -s 65536",
    "env UCX_TLS=rc_v ucx_perftest -n 50 -w 5 -t ucp_put_bw -s 65536",
];

#[test]
#[ignore = "it boots a virtual machine (make guests)"]
fn programs_of_a_guest_and_its_host_reach_each_other() {
    let Some(parts) = parts("a guest and its host") else { return };
    let host = Host::start(&["guest"]);
    let (mut listening, mut script) = (Vec::new(), "ibv_devinfo\n".to_owned());
    for words in PROGRAMS {
        let (program, port) = host.listen(words);
        script += &format!("{words} -p {port} 10.0.2.2 && echo done: {words}\n");
        listening.push((program, words));
    }
    let console = Machine::boot(&parts, &host, "guest", &[], &script).finish();
    println!("{console}");
    assert!(console.contains("hca_id:\tguest"), "{console}");
    for (mut program, words) in listening {
        assert!(console.contains(&format!("done: {words}")), "{words}: {console}");
        let printed = output(&mut program.0);
        assert!(program.0.wait().unwrap().success(), "{words}: {printed}");
    }
    assert!(!console.contains("invalid data"), "{console}");
    let used = host.show("guest").used;
    assert_eq!((used.processes, used.queue_pairs), (0, 0));
}

#[test]
#[ignore = "it boots a virtual machine (make guests)"]
fn a_killed_process_of_a_guest_leaves_its_device_to_the_next() {
    let Some(parts) = parts("a killed process of a guest") else { return };
    let host = Host::start(&["third"]);
    let [port, kill, open] = [next_port(), next_port(), next_port()];
    // Of two ports: one is in use by each program that runs.
    let script = listen_in_guest("ib_write_bw -n 5000000", port)
        + &format!("program=$!; nc -l -p {kill} </dev/null; kill -9 $program; echo killed\n")
        + &format!("nc -l -p {open} </dev/null\n")
        + &"ibv_devinfo | grep hca_id\n".repeat(4)
        + &format!("nc -l -p {kill} </dev/null; echo over\n");
    let mut guest = Machine::boot(&parts, &host, "third", &[port, kill, open], &script);
    guest.until(&format!("listens at {port}"));
    let mut peer = write_to(&host, "third", port);
    while !guest.console().contains("killed") {
        let _ = TcpStream::connect(("127.0.0.1", kill));
        weft_testkit::pause();
    }
    // No other process has opened the port: it is the guardian that ends the device.
    let killed = Instant::now();
    while host.show("third").used.processes > 0 {
        weft_testkit::pause();
    }
    assert!(killed.elapsed() < Duration::from_millis(2_500), "its silence was noticed, after 3 s");
    let printed = output(&mut peer.0);
    assert!(printed.contains("Failed status 12"), "{printed}");
    while guest.console().matches("hca_id:\tthird").count() < 4 {
        let _ = TcpStream::connect(("127.0.0.1", open));
        weft_testkit::pause();
    }
}

/// A write to a port of virtio-serial whose host's end is closed waits.
#[test]
#[ignore = "it boots a virtual machine (make guests)"]
fn nothing_in_a_guest_waits_for_a_relay_that_has_ended() {
    let Some(parts) = parts("a relay that has ended") else { return };
    let host = Host::start(&["left"]);
    let [port, kill] = [next_port(), next_port()];
    let script = listen_in_guest("ib_write_bw", port)
        + &format!("program=$!; nc -l -p {kill} </dev/null; kill -9 $program; echo killed\n")
        + "ibv_devinfo\nfor try in $(seq 50); do pidof weft-guardian && usleep 100000; done\n"
        + "pidof weft-guardian || echo no guardian\n";
    let mut guest = Machine::boot(&parts, &host, "left", &[port, kill], &script);
    guest.until(&format!("listens at {port}"));
    guest.end_relays();
    while host.show("left").used.processes > 0 {
        weft_testkit::pause();
    }
    while !guest.console().contains("killed") {
        let _ = TcpStream::connect(("127.0.0.1", kill));
        weft_testkit::pause();
    }
    let console = guest.finish();
    assert!(console.contains("has no relay: start QEMU"), "{console}");
    assert!(console.contains("no guardian"), "{console}");
}

/// The other host's programs have the device in themselves.
#[test]
#[ignore = "it boots a virtual machine (make guests)"]
fn a_guest_and_another_host_reach_each_other_through_loss() {
    let Some(parts) = parts("a guest and another host") else { return };
    let Some(mut hosts) = two_hosts("a guest and another host") else { return };
    let lossy = Impairment { loss: "10%".parse().unwrap(), ..Impairment::default() };
    hosts.0.impair("l0-s1", Direction::Both, &lossy).unwrap();
    let lab = &hosts.0;
    let (mut listening, mut script) = (Vec::new(), String::new());
    for words in &PROGRAMS[..5] {
        let port = next_port();
        let mut command = Command::new("env");
        command.args(format!("{words} -p {port}").split(' ')).env("LD_LIBRARY_PATH", &*LIBRARY);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Program(lab.spawn("h1", &mut command).unwrap());
        until_listening(&mut program.0, port);
        let address = lab.fabric().address(1);
        script += &format!("{words} -p {port} {address} && echo done: {words}\n");
        listening.push((program, words));
    }
    let host = lab.enter("h0", || Host::start(&["far"])).unwrap();
    let guest = lab.enter("h0", || Machine::boot(&parts, &host, "far", &[], &script)).unwrap();
    let console = guest.finish();
    assert!(!console.contains("invalid data"), "{console}");
    for (mut program, words) in listening {
        assert!(console.contains(&format!("done: {words}")), "{words}: {console}");
        assert!(program.0.wait().unwrap().success(), "{words}: {}", output(&mut program.0));
    }
    let lossy = lab.counters().unwrap()[lab.fabric().link("l0-s1").unwrap()];
    assert!(lossy.forward.dropped + lossy.backward.dropped > 0, "{lossy:?}");
}

/// Starts a program that writes to one at a port of a guest without end. Returns when it writes.
fn write_to(host: &Host, device: &str, port: u16) -> Program {
    let mut peer = host.run(&format!("ib_write_bw -n 5000000 -p {port} 127.0.0.1"));
    // It polls without pause once it writes.
    let process = peer.0.id();
    while host.show(device).used.queue_pairs == 0 || ticks_of(process) <= 30 {
        assert!(peer.0.try_wait().unwrap().is_none(), "{}", output(&mut peer.0));
        weft_testkit::pause();
    }
    peer
}

/// Returns a script that starts a program in the background and prints a line when it listens.
fn listen_in_guest(words: &str, port: u16) -> String {
    format!(
        "{words} -p {port} &\nuntil netstat -ltn | grep -q :{port}; do usleep 100000; done\necho listens at {port}\n"
    )
}

#[test]
#[ignore = "it boots two virtual machines (make guests)"]
fn two_guests_reach_each_other_and_the_death_of_one_is_noticed() {
    let Some(parts) = parts("two guests") else { return };
    let host = Host::start(&["first", "second"]);
    let [pingpong, endless] = [next_port(), next_port()];
    let words = "ibv_rc_pingpong -g 0 -c -n 100";
    let script = listen_in_guest(words, pingpong)
        + "wait\n"
        + &listen_in_guest("ib_write_bw -n 5000000", endless)
        + "wait\n";
    let mut first = Machine::boot(&parts, &host, "first", &[pingpong, endless], &script);
    first.until(&format!("listens at {pingpong}"));
    let script = format!("{words} -p {pingpong} 10.0.2.2 && echo both done\n");
    let console = Machine::boot(&parts, &host, "second", &[], &script).finish();
    assert!(console.contains("both done") && !console.contains("invalid"), "{console}");

    first.until(&format!("listens at {endless}"));
    let mut peer = write_to(&host, "first", endless);
    first.kill();
    let printed = output(&mut peer.0);
    assert!(printed.contains("Failed status 12"), "{printed}");
    while host.show("first").used.processes > 0 {
        weft_testkit::pause();
    }
}
