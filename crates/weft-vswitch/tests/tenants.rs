//! Real tenants in namespaces on two hosts, over a fabric of kernel routers: pings, TCP, loss, and
//! isolation. Needs root; without it each test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_lab::{Direction, Impairment, LabSpec};
use weft_trial::{Trial, TrialConfig};
use weft_udp::sockets::Wire;
use weft_vpc::{AclConfig, Action};
use weft_vswitch::Status;
use weft_vswitch::config::{Config, Mac, Route, Row};
use weft_vswitch::control::{Answer, Request, send_request};

const LIMIT: Duration = Duration::from_secs(60);

/// The threads of hosts and the way of their packets.
#[derive(Clone, Copy)]
struct Hosts(u8, Wire);

/// Defines every test of this file for hosts of one thread and of two, and for one thread by AF_XDP.
macro_rules! on_all_hosts {
    ($($test:ident)+) => {
        mod one_thread { $(#[test] fn $test() { super::$test(super::Hosts(1, weft_udp::sockets::Wire::Kernel)); })+ }
        mod two_threads { $(#[test] fn $test() { super::$test(super::Hosts(2, weft_udp::sockets::Wire::Kernel)); })+ }
        mod af_xdp { $(#[test] fn $test() { super::$test(super::Hosts(1, weft_udp::sockets::Wire::AfXdp)); })+ }
    };
}

on_all_hosts! {
    tcp_crosses_whole_over_paths_that_lose_packets
    frames_lost_between_switch_and_tenant_are_retransmitted
    frames_of_a_port_are_captured
    a_network_without_reliability_leaves_losses_to_the_tenant
    tenants_with_the_same_addresses_receive_only_their_own_frames
    a_restart_keeps_the_tenants_connections
    pings_cross_both_ways
    a_host_whose_daemon_has_ended_is_not_reached_until_it_starts_again
    a_configuration_is_reloaded_under_traffic
    tenants_of_two_subnets_reach_each_other_through_the_gateway
    a_tenant_that_floods_leaves_the_others_their_turn
}

/// Returns a trial; `None` if it cannot be built, after reporting the reason. With two threads each tenant
/// has its own.
fn trial(
    name: &str,
    Hosts(threads, wire): Hosts,
    change: impl FnOnce(&mut TrialConfig),
) -> Option<Trial> {
    if weft_testkit::lab_is_missing(&format!("tenants, {name}"), &[]) {
        return None;
    }
    let way = if wire == Wire::AfXdp { "x" } else { "" };
    let mut config = TrialConfig::named(format!("vs{threads}{way}-{name}"));
    (config.host.threads, config.host.wire) = (threads, Some(wire));
    change(&mut config);
    let trial = Trial::up(&config).unwrap();
    for host in 0..config.lab.leaves {
        assert!(status(&trial, host).threads.iter().all(|thread| thread.wire == wire));
    }
    Some(trial)
}

fn lose(trial: &mut Trial, link: &str, loss: &str) {
    let impairment = Impairment { loss: loss.parse().unwrap(), ..Impairment::default() };
    trial.lab.impair(link, Direction::Both, &impairment).unwrap();
}

fn status(trial: &Trial, host: usize) -> Status {
    match send_request(&trial.control(host), &Request::Status).unwrap() {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// Sends `bytes` by TCP from a tenant on host 0 to itself on host 1 and back.
fn echo(trial: &Trial, tenant: &str, port: u16, bytes: usize) -> Vec<u8> {
    echo_to(trial, tenant, SocketAddr::from((Trial::address(1), port)), bytes)
}

/// Sends `bytes` to one of the tenant's own addresses there, and back.
fn echo_to(trial: &Trial, tenant: &str, to: SocketAddr, bytes: usize) -> Vec<u8> {
    let port = to.port();
    let listener = weft_lab::enter(&trial.namespace(tenant, 1), || {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap()
    });
    let listener = listener.unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut back = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut back).unwrap();
    });
    let connect = || TcpStream::connect_timeout(&to, LIMIT).unwrap();
    let mut stream = weft_lab::enter(&trial.namespace(tenant, 0), connect).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut out = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        out.write_all(&pattern(bytes)).unwrap();
        out.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = vec![];
    stream.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    echo.join().unwrap();
    received
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 + index / 251).to_le_bytes()[0]).collect()
}

fn tcp_crosses_whole_over_paths_that_lose_packets(hosts: Hosts) {
    let Some(mut trial) = trial("tcp", hosts, |_| ()) else { return };
    for spine in 0..4 {
        lose(&mut trial, &format!("l1-s{spine}"), "2%");
    }
    let received = echo(&trial, "red", 5001, 3_000_000);
    assert!(received == pattern(3_000_000), "{} bytes", received.len());
    let status = status(&trial, 0);
    let red = status.ports.iter().find(|port| port.name == "red").unwrap();
    // Three million bytes are 46 frames at least, of 64 KiB. Plain frames are those sent before there was a
    // connection.
    let (reliable, plain, _) = red.carried;
    assert!(reliable >= 46 && plain * 4 < reliable, "on the connection: {red:?}");
    assert!(status.transport["fast_retransmits"] > 0, "{:?}", status.transport);
    assert_eq!(red.dropped, [].into(), "{red:?}");
    // The tenant's TCP does not see losses that the overlay recovers.
    let pair = &status.pairs[0];
    assert!(pair.up && pair.packets.1 > 0, "{pair:?}");
}

fn request_done(trial: &Trial, host: usize, request: &Request) {
    assert_eq!(send_request(&trial.control(host), request).unwrap(), Answer::Done);
}

fn frames_lost_between_switch_and_tenant_are_retransmitted(hosts: Hosts) {
    let Some(trial) = trial("lose", hosts, |_| ()) else { return };
    let request = |loss: &str| Request::Lose { port: "red".into(), loss: loss.parse().unwrap() };
    // Broadcasts are not retransmitted: the tenants know each other before frames are lost.
    assert!(echo(&trial, "red", 5000, 1) == pattern(1));
    // A million bytes are fewer than fifty frames, of which some must be lost at either end.
    (0..2).for_each(|host| request_done(&trial, host, &request("30%")));
    assert!(echo(&trial, "red", 5001, 1_000_000) == pattern(1_000_000));
    for host in 0..2 {
        let status = status(&trial, host);
        let red = status.ports.iter().find(|port| port.name == "red").unwrap();
        assert!(red.declined > 0, "{red:?}");
        request_done(&trial, host, &request("0%"));
    }
}

/// Returns the lengths of the frames in a capture: enhanced packet blocks (pcapng, section 4.3).
fn captured(file: &Path) -> Vec<usize> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut lengths) = (0, vec![]);
    while at < bytes.len() {
        if word(at) == 6 {
            lengths.push(word(at + 24));
        }
        at += word(at + 4);
    }
    lengths
}

fn frames_of_a_port_are_captured(hosts: Hosts) {
    let Some(trial) = trial("capture", hosts, |_| ()) else { return };
    let file = std::env::temp_dir().join(format!("{}.pcapng", trial.lab.spec().name));
    let capture = |file| Request::Capture { port: "red".into(), file };
    request_done(&trial, 0, &capture(Some(file.clone())));
    let again = send_request(&trial.control(0), &capture(Some(file.clone()))).unwrap();
    assert!(matches!(&again, Answer::Refused(why) if why.contains("exists")), "{again:?}");
    assert!(echo(&trial, "red", 5001, 200_000) == pattern(200_000));
    // Another tenant's frames must not appear in this port's capture.
    assert!(echo(&trial, "blue", 5001, 300_000) == pattern(300_000));
    request_done(&trial, 0, &capture(None));
    let lengths = captured(&file);
    std::fs::remove_file(&file).unwrap();
    let bytes: usize = lengths.iter().sum();
    assert!((400_000..500_000).contains(&bytes), "{bytes} bytes in {} frames", lengths.len());
}

fn a_network_without_reliability_leaves_losses_to_the_tenant(hosts: Hosts) {
    let Some(mut trial) = trial("plain", hosts, |config| config.network.reliable = false) else {
        return;
    };
    for spine in 0..4 {
        lose(&mut trial, &format!("l1-s{spine}"), "1%");
    }
    let received = echo(&trial, "red", 5001, 300_000);
    assert!(received == pattern(300_000));
    let status = status(&trial, 0);
    assert_eq!((status.transport["data_sent"], status.pairs.len()), (0, 0));
    // A super-frame counts as one frame.
    let (reliable, plain, _) = status.ports[0].carried;
    assert!(reliable == 0 && plain > 20, "{:?}", status.ports[0]);
}

fn tenants_with_the_same_addresses_receive_only_their_own_frames(hosts: Hosts) {
    let Some(trial) = trial("apart", hosts, |_| ()) else { return };
    thread::scope(|scope| {
        for (tenant, bytes) in [("red", 400_000), ("blue", 500_000)] {
            let trial = &trial;
            scope.spawn(move || assert!(echo(trial, tenant, 5001, bytes) == pattern(bytes)));
        }
    });
    let status = status(&trial, 1);
    assert_eq!(status.ports.len(), 2);
    assert_eq!(status.dropped, [].into());
}

#[test]
fn each_thread_carries_its_tenants_and_receives_their_packets_from_the_kernel() {
    let Some(mut trial) = trial("both", Hosts(2, Wire::Kernel), |_| ()) else { return };
    lose(&mut trial, "l1-s1", "1%");
    thread::scope(|scope| {
        for (tenant, bytes) in [("red", 1_500_000), ("blue", 1_000_000)] {
            let trial = &trial;
            scope.spawn(move || assert!(echo(trial, tenant, 5001, bytes) == pattern(bytes)));
        }
    });
    for host in 0..2 {
        let status = status(&trial, host);
        let owners: Vec<_> = status.ports.iter().map(|port| port.thread).collect();
        assert_eq!(owners, [0, 1], "the thread with the fewest");
        for thread in &status.threads {
            assert_eq!((thread.ports, thread.pairs), (1, 1), "{status:?}");
            let (sent, received) = thread.packets;
            assert!(sent > 100 && received > 100, "{thread:?}");
            // A packet that names a connection arrives at its thread: the other one receives at most the packets
            // that the kernel merged behind a set-up packet.
            assert!(thread.redirected.1 * 100 < received, "{thread:?}");
        }
        // Connection requests arrive at any thread.
        let redirected: u64 = status.threads.iter().map(|thread| thread.redirected.0).sum();
        assert!(redirected < 100, "{:?}", status.threads);
        assert_eq!(status.dropped, [].into());
    }
}

#[test]
fn tenants_of_two_threads_of_one_host_reach_each_other() {
    let Some(mut trial) = trial("near", Hosts(2, Wire::Kernel), |_| ()) else { return };
    // Blue joins red's network, with an address of its own.
    trial.stop(0);
    let config = trial.config(0);
    let blue = config.ports.iter_mut().find(|port| port.name == "blue").unwrap();
    (blue.vni, blue.mac) = (100, "02:00:00:00:07:99".parse().unwrap());
    blue.addresses = vec!["192.168.7.99/24".into()];
    trial.start(0).unwrap();
    let mut ping = trial.command("red", 0, "ping");
    let output =
        ping.args(["-c", "50", "-i", "0.005", "-W", "2", "192.168.7.99"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains(" 0% packet loss"), "{text}");
    // The other host's red reaches blue too, although no route leads there: its address is learned from plain
    // frames.
    let mut ping = trial.command("blue", 0, "ping");
    let output = ping.args(["-c", "20", "-i", "0.01", "-W", "2", "192.168.7.2"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let status = status(&trial, 0);
    assert!(status.threads.iter().all(|thread| thread.handed_over > 40), "{:?}", status.threads);
    assert_eq!(status.dropped, [].into());
}

fn a_restart_keeps_the_tenants_connections(hosts: Hosts) {
    let Some(mut trial) = trial("again", hosts, |config| {
        config.lab = LabSpec { spines: 2, ..config.lab.clone() };
    }) else {
        return;
    };
    for host in 0..2 {
        // The tenant's interface outlives its daemon.
        for port in &mut trial.config(host).ports {
            port.tap.as_mut().unwrap().persistent = true;
        }
        trial.stop(host);
        trial.start(host).unwrap();
    }
    let (listener, mut near) = connect(&trial, 5001);
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(LIMIT)).unwrap();
    for host in [1, 0] {
        near.write_all(b"before").unwrap();
        far.read_exact(&mut [0; 6]).unwrap();
        trial.stop(host);
        near.write_all(b"during").unwrap();
        trial.start(host).unwrap();
        far.read_exact(&mut [0; 6]).unwrap();
        if host == 1 {
            // The peer received a reset of the lost connection, and did not treat the host as one that speaks
            // only VXLAN.
            for _ in 0..100 {
                near.write_all(b"after").unwrap();
                far.read_exact(&mut [0; 5]).unwrap();
            }
            let ports = status(&trial, 0).ports;
            let (reliable, plain, _) =
                ports.iter().find(|port| port.carried.0 > 0).unwrap().carried;
            assert!(reliable > plain, "{reliable} frames on connections, {plain} plain");
        }
    }
}

fn pings_cross_both_ways(hosts: Hosts) {
    let Some(trial) = trial("ping", hosts, |_| ()) else { return };
    for host in 0..2 {
        let to = Trial::address(1 - host).to_string();
        let mut ping: Command = trial.command("red", host, "ping");
        let output = ping.args(["-c", "20", "-i", "0.01", "-W", "2", &to]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(" 0% packet loss"), "{text}");
    }
    let began = Instant::now();
    while !status(&trial, 0).pairs.iter().any(|pair| pair.up) {
        assert!(began.elapsed() < LIMIT);
        weft_testkit::pause();
    }
}

fn a_host_whose_daemon_has_ended_is_not_reached_until_it_starts_again(hosts: Hosts) {
    let Some(mut trial) = trial("peer", hosts, |_| ()) else { return };
    let peer = trial.config(1).host.address;
    let began = Instant::now();
    let until_reached = |trial: &Trial, expected: bool| {
        while status(trial, 0).peers.get(&peer) != Some(&expected) {
            assert!(began.elapsed() < 3 * LIMIT, "{:?}", status(trial, 0).peers);
            let to = Trial::address(1).to_string();
            let mut ping: Command = trial.command("red", 0, "ping");
            ping.args(["-c", "1", "-W", "1", &to]).output().unwrap();
        }
    };
    until_reached(&trial, true);
    trial.stop(1);
    until_reached(&trial, false);
    trial.start(1).unwrap();
    until_reached(&trial, true);
}

fn a_configuration_is_reloaded_under_traffic(hosts: Hosts) {
    let Some(mut trial) = trial("load", hosts, |_| ()) else { return };
    let (listener, near) = connect(&trial, 5001);
    let (mut far, mut near) = (listener.accept().unwrap().0, near);
    far.set_read_timeout(Some(LIMIT)).unwrap();
    let mut config = trial.config(1).clone();
    let rules = ["deny ingress tcp to any port 5002".parse().unwrap()].into();
    let acl = AclConfig { name: "edge".into(), default: Action::Allow, rules };
    config.policies.acls.push(acl);
    config.ports[0].policies.acl = Some("edge".into());
    let blue = config.ports.pop().unwrap();
    let reload = Request::Reload { config: Box::new(config.clone()), discard_changes: false };
    assert!(matches!(send_request(&trial.control(1), &reload), Ok(Answer::Reloaded(_))));
    // The connection continues, a new one is denied, and the other tenant's port is gone.
    near.write_all(b"still here").unwrap();
    far.read_exact(&mut [0; 10]).unwrap();
    let to = SocketAddr::from((Trial::address(1), 5002));
    let denied = || TcpStream::connect_timeout(&to, Duration::from_millis(300)).is_err();
    assert!(weft_lab::enter(&trial.namespace("red", 0), denied).unwrap());
    let known = status(&trial, 1);
    assert_eq!(known.ports.len(), 1);
    assert!(known.ports[0].dropped["denied"] > 0, "{:?}", known.ports[0]);
    // The port is added again; a change that needs a restart is refused with that reason.
    config.ports.push(blue);
    let reload = Request::Reload { config: Box::new(config.clone()), discard_changes: false };
    assert!(matches!(send_request(&trial.control(1), &reload), Ok(Answer::Reloaded(_))));
    assert!(echo(&trial, "blue", 5003, 10_000) == pattern(10_000));
    let changes: [fn(&mut Config); 2] =
        [|config| config.host.mtu = 1400, |config| config.host.threads = 3 - config.host.threads];
    for change in changes {
        let mut config = config.clone();
        change(&mut config);
        let reload = Request::Reload { config: Box::new(config), discard_changes: false };
        let answer = send_request(&trial.control(1), &reload).unwrap();
        assert!(matches!(&answer, Answer::Refused(why) if why.contains("restart")), "{answer:?}");
    }
}

fn tenants_of_two_subnets_reach_each_other_through_the_gateway(hosts: Hosts) {
    let gateways = vec!["192.168.7.254/24".to_owned(), "192.168.8.254/24".to_owned()];
    let Some(mut trial) = trial("hop", hosts, |config| config.network.gateways = gateways.clone())
    else {
        return;
    };
    (0..4).for_each(|spine| lose(&mut trial, &format!("l1-s{spine}"), "1%"));
    let ip = |trial: &Trial, host: usize, words: &str| {
        let mut command = trial.command("red", host, "ip");
        assert!(command.args(words.split_whitespace()).status().unwrap().success(), "ip {words}");
    };
    // Red moves to another subnet on host 1, and has one behind it.
    ip(&trial, 1, "addr del 192.168.7.2/24 dev eth0");
    ip(&trial, 1, "addr add 192.168.8.2/24 dev eth0");
    ip(&trial, 1, "addr add 10.9.0.1/32 dev lo");
    ip(&trial, 0, "route add default via 192.168.7.254");
    ip(&trial, 1, "route add default via 192.168.8.254");
    for host in 0..2 {
        let mac = |host: usize| format!("02:00:00:00:07:0{}", host + 1).parse::<Mac>().unwrap();
        let own = ["192.168.7.1", "192.168.8.2"][1 - host].parse().unwrap();
        let peer = trial.config(1 - host).host.address;
        let row = Row::Machine { mac: mac(1 - host), peer, addresses: [own].into() };
        request_done(&trial, host, &Request::SetRoute { route: Route { vni: 100, row } });
    }
    let row =
        Row::Prefix { to: "10.9.0.0/16".parse().unwrap(), via: "192.168.8.2".parse().unwrap() };
    request_done(&trial, 0, &Request::SetRoute { route: Route { vni: 100, row } });
    for (from, to) in [(0, "192.168.8.2"), (1, "192.168.7.1"), (0, "10.9.0.1")] {
        let mut ping = trial.command("red", from, "ping");
        let output = ping.args(["-c", "20", "-i", "0.01", "-W", "2", to]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("ttl=63"), "{text}");
    }
    // Super-frames are cut on the way, and their checksums are right.
    let to = SocketAddr::from(([10, 9, 0, 1], 5001));
    assert!(echo_to(&trial, "red", to, 2_000_000) == pattern(2_000_000));
    let red = status(&trial, 0).ports.into_iter().find(|port| port.name == "red").unwrap();
    assert!(red.carried.0 > 30, "{red:?}");
    assert_eq!(red.dropped.keys().filter(|cause| *cause != "no_route").count(), 0, "{red:?}");
}

/// Sends a flood from blue, to its other half and to unknown addresses, and checks that red loses nothing.
fn a_tenant_that_floods_leaves_the_others_their_turn(hosts: Hosts) {
    let Some(trial) = trial("flood", hosts, |_| ()) else { return };
    let stop = AtomicBool::new(false);
    let flood = |to: SocketAddr| {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let socket = weft_lab::enter(&trial.namespace("blue", 0), bind).unwrap();
        let mut sent = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            // The send fails if a queue is full or the port is closed.
            sent += u64::from(socket.send_to(&[7; 64], to).is_ok());
        }
        sent
    };
    thread::scope(|scope| {
        let nobody = (Ipv4Addr::new(192, 168, 7, 200), 9).into();
        let floods =
            [(Trial::address(1), 9).into(), nobody].map(|to| scope.spawn(move || flood(to)));
        let mut ping = trial.command("red", 0, "ping");
        let output = ping
            .args(["-c", "100", "-i", "0.01", "-W", "5", "-q", "192.168.7.2"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(" 0% packet loss"), "{text}");
        assert!(echo(&trial, "red", 5001, 300_000) == pattern(300_000));
        stop.store(true, Ordering::Relaxed);
        let sent = floods.map(|flood| flood.join().unwrap());
        assert!(sent[0] > 10_000, "{sent:?} datagrams are no flood");
    });
}

/// Opens a TCP connection of red from host 0 to host 1.
fn connect(trial: &Trial, port: u16) -> (TcpListener, TcpStream) {
    let to = SocketAddr::from((Trial::address(1), port));
    let bind = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let listener = weft_lab::enter(&trial.namespace("red", 1), bind).unwrap();
    let connect = || TcpStream::connect_timeout(&to, LIMIT).unwrap();
    (listener, weft_lab::enter(&trial.namespace("red", 0), connect).unwrap())
}
