//! Thousands of connections through two daemons, whose packets come one by one and all at once. Needs root;
//! without it the test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

#[path = "../benches/common/many_ports.rs"]
mod many_ports;
#[path = "../benches/common/packet.rs"]
mod packet;

use std::time::Duration;

use many_ports::{Tenants, status, trial};

const PORTS: usize = 50;

/// Number of frames of each pair after its first, with all pairs active.
const ROUNDS: usize = 1;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Checks that datagrams are read as fast as they come, and no more frames taken from tenants than can leave:
/// otherwise answers come after their peers' timeout, which then close the connections and send the rest in plain
/// VXLAN.
#[test]
fn thousands_of_connections_hold_while_all_are_active() {
    if weft_testkit::lab_is_missing("thousands of connections", &[]) {
        return;
    }
    let trial = trial("vs-many", PORTS, 1);
    let mut tenants = Tenants::new(&trial, PORTS);
    for round in 0..=ROUNDS {
        let len = if round == 0 { 100 } else { 1400 };
        for from in 0..PORTS {
            (0..PORTS).for_each(|to| tenants.send(from, to, len));
        }
        // As many frames as fit into the interfaces' queues.
        let limit = if round == ROUNDS { 0 } else { (PORTS * PORTS) as u64 };
        let in_flight = tenants.wait_for(limit, TIMEOUT);
        let transport = [0, 1].map(|host| status(&trial, host).transport);
        assert!(in_flight <= limit, "round {round}: {in_flight} are missing; {transport:?}");
    }
    for host in 0..2 {
        let status = status(&trial, host);
        assert_eq!(status.threads[0].pairs, PORTS * PORTS, "host {host}: {:?}", status.transport);
        let plain: u64 = status.ports.iter().map(|port| port.carried.1).sum();
        assert_eq!(plain, 0, "host {host}: {:?}", status.transport);
    }
}
