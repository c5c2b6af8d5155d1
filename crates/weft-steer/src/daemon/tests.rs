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
        daemon.order(name, Job::Read);
        let outcome = daemon.outcomes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(outcome.router, name);
        let Done::Read(Ok(router)) = outcome.result else { panic!("{:?}", outcome.result) };
        router
    };
    VERSION.store(1, Ordering::Relaxed);
    daemon.read_fabric(daemon.clock.now());
    assert_eq!(daemon.workers.keys().collect::<Vec<_>>(), ["l0", "l1"]);
    let tables = read(&daemon, "l1");
    assert_eq!(daemon.controller.handle_tables(tables, daemon.clock.now()), Ok(()));
    assert_eq!(daemon.leases.due(daemon.clock.now()), ["l0", "l1"]);

    VERSION.store(2, Ordering::Relaxed);
    daemon.read_fabric(daemon.clock.now());
    assert_eq!(daemon.workers.keys().collect::<Vec<_>>(), ["l1"]);
    let released = daemon.outcomes.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(released.router == "l0" && matches!(released.result, Done::Released), "{released:?}");
    // The router's cable has changed, so its tables are read with the new entry.
    let tables = read(&daemon, "l1");
    assert_eq!(daemon.controller.handle_tables(tables, daemon.clock.now()), Ok(()));
    fs::remove_file(answer()).unwrap();
}
