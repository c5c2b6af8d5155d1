//! Routers that join and leave the inventory of a running daemon.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::{Method, PortEntry};

/// The answer of a router with the ports s0 and s1, with a hash whose seed is known.
const SHOWN: &str = include_str!("../../tests/golden/tables/shown.txt");

/// The version of the inventory that the daemon reads next.
static VERSION: AtomicUsize = AtomicUsize::new(0);

fn answer() -> PathBuf {
    std::env::temp_dir().join(format!("ws-daemon-{}", std::process::id()))
}

/// Returns a router that answers every script with the file, and whose port leads to a host.
fn router(name: &str, number: u8, host: u8) -> RouterEntry {
    let script = format!("cat >/dev/null; cat {}", answer().display());
    let to = weft_route::installed::Cable::Host(std::net::Ipv4Addr::new(10, 1, 0, host).into());
    RouterEntry {
        name: name.into(),
        reach: ["sh", "-c", &script].map(String::from).to_vec(),
        agent: [10, 0, 0, number].into(),
        sources: vec![],
        apply: Method::Kernel,
        ports: vec![PortEntry { name: "s0".into(), speed: None, to: Some(to) }],
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a function that reads inventories")]
fn inventory(_: &SteerConfig) -> Result<Inventory, SteerError> {
    let routers = match VERSION.load(Ordering::Relaxed) {
        0 => vec![router("l0", 1, 2)],
        1 => vec![router("l0", 1, 2), router("l1", 2, 3)],
        _ => vec![router("l1", 2, 4)],
    };
    Ok(Inventory { routers })
}

#[test]
fn routers_that_join_the_inventory_get_orders_and_those_that_leave_it_get_none() {
    fs::write(answer(), SHOWN.replacen("\n0\n7\n0\n1\n", "\n3\n55\n1\n1\n", 1)).unwrap();
    let listen = "127.0.0.1:0".parse().ok();
    let config = SteerConfig { listen, ..SteerConfig::default() };
    let mut daemon = Daemon::open(config, inventory).unwrap();
    let read = |daemon: &Daemon, name: &str| {
        daemon.order(name, Job::Read { requested_at: daemon.clock.now() });
        let outcome = daemon.outcomes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(outcome.router, name);
        let Done::Read { result: Ok(router), .. } = outcome.result else {
            panic!("{:?}", outcome.result)
        };
        router
    };
    VERSION.store(1, Ordering::Relaxed);
    daemon.read_fabric();
    until_fabric_is_read(&mut daemon);
    assert_eq!(daemon.workers.keys().collect::<Vec<_>>(), ["l0", "l1"]);
    let tables = read(&daemon, "l1");
    assert_eq!(daemon.controller.handle_tables(tables, daemon.clock.now()), Ok(()));
    assert_eq!(daemon.leases.due(daemon.clock.now()), ["l0", "l1"]);

    VERSION.store(2, Ordering::Relaxed);
    daemon.read_fabric();
    until_fabric_is_read(&mut daemon);
    assert_eq!(daemon.workers.keys().collect::<Vec<_>>(), ["l1"]);
    let released = daemon.outcomes.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(released.router == "l0" && matches!(released.result, Done::Released), "{released:?}");
    // The router's cable has changed, so its tables are read with the new entry.
    let tables = read(&daemon, "l1");
    assert_eq!(daemon.controller.handle_tables(tables, daemon.clock.now()), Ok(()));
    fs::remove_file(answer()).unwrap();
}

/// Takes the fabric that a thread reads.
fn until_fabric_is_read(daemon: &mut Daemon) {
    while daemon.fabric_read.is_some() {
        weft_testkit::pause();
        daemon.poll_fabric(daemon.clock.now());
    }
}

/// The file that keeps the router of [`slow_inventory`] from answering while it exists.
fn hold() -> PathBuf {
    std::env::temp_dir().join(format!("ws-daemon-hold-{}", std::process::id()))
}

/// Returns a router that, before it answers from a copy of the answers, waits while [`hold`] exists.
#[expect(clippy::unnecessary_wraps, reason = "the type of a function that reads inventories")]
fn slow_inventory(_: &SteerConfig) -> Result<Inventory, SteerError> {
    let hold = hold().display().to_string();
    let script = format!("while [ -e {hold} ]; do sleep 0.01; done; cat {hold}.answer");
    let reach = ["sh", "-c", &script].map(String::from).to_vec();
    Ok(Inventory { routers: vec![RouterEntry { reach, ..router("l0", 1, 2) }] })
}

#[test]
fn the_loop_goes_on_while_a_router_does_not_answer_and_a_change_meanwhile_repeats_the_read() {
    let answer = hold().with_extension("answer");
    fs::write(&answer, SHOWN.replacen("\n0\n7\n0\n1\n", "\n3\n55\n1\n1\n", 1)).unwrap();
    let listen = "127.0.0.1:0".parse().ok();
    let config = SteerConfig { listen, ..SteerConfig::default() };
    let mut daemon = Daemon::open(config, slow_inventory).unwrap();
    fs::write(hold(), "").unwrap();
    let begun = std::time::Instant::now();
    daemon.read_fabric();
    for _ in 0..3 {
        daemon.turn().unwrap();
    }
    // A router that is not reached takes 20 s, and the service manager waits 30 s.
    assert!(begun.elapsed() < Duration::from_secs(10) && daemon.fabric_read.is_some());
    daemon.outdate_fabric_read();
    fs::remove_file(hold()).unwrap();
    let is_outdated = |daemon: &Daemon| daemon.fabric_read.as_ref().map(|read| read.is_outdated);
    while is_outdated(&daemon) == Some(true) {
        daemon.turn().unwrap();
    }
    assert_eq!(is_outdated(&daemon), Some(false), "it is read again");
    until_fabric_is_read(&mut daemon);
    fs::remove_file(answer).unwrap();
}

/// The file without which the router l1 of [`partly_silent_inventory`] does not answer.
fn speaks() -> PathBuf {
    std::env::temp_dir().join(format!("ws-daemon-speaks-{}", std::process::id()))
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a function that reads inventories")]
fn partly_silent_inventory(_: &SteerConfig) -> Result<Inventory, SteerError> {
    let speaks = speaks().display().to_string();
    let router = |name: &str, number: u8, condition: &str| {
        let script = format!("cat >/dev/null; {condition}cat {speaks}.answer");
        let reach = ["sh", "-c", &script].map(String::from).to_vec();
        RouterEntry { reach, ..router(name, number, number) }
    };
    let l1 = router("l1", 2, &format!("[ -e {speaks} ] || exit 7; "));
    Ok(Inventory { routers: vec![router("l0", 1, ""), l1] })
}

#[test]
fn a_controller_starts_without_the_tables_of_a_silent_router_and_takes_them_later() {
    let answer = speaks().with_extension("answer");
    fs::write(&answer, SHOWN.replacen("\n0\n7\n0\n1\n", "\n3\n55\n1\n1\n", 1)).unwrap();
    let listen = "127.0.0.1:0".parse().ok();
    let read_every = weft_units::Duration::from_millis(100);
    let config = SteerConfig { listen, read_every, ..SteerConfig::default() };
    let mut daemon = Daemon::open(config, partly_silent_inventory).unwrap();
    assert_eq!(daemon.read_errors.keys().collect::<Vec<_>>(), ["l1"]);
    let routes = |daemon: &Daemon, name: &str| {
        daemon.controller.fabric().installed().router(name).unwrap().routes.len()
    };
    assert_eq!((routes(&daemon, "l0") > 0, routes(&daemon, "l1")), (true, 0));
    fs::write(speaks(), "").unwrap();
    while routes(&daemon, "l1") == 0 {
        daemon.turn().unwrap();
    }
    assert!(daemon.read_errors.is_empty());
    // If none answers there is nothing to steer.
    fs::remove_file(&answer).unwrap();
    let error =
        Daemon::open(SteerConfig { listen, ..SteerConfig::default() }, partly_silent_inventory);
    assert!(matches!(error, Err(SteerError::Command { .. })), "{error:?}");
    fs::remove_file(speaks()).unwrap();
}
