//! One connection with the default transport over four paths that are slower than the host's link
//! (`scenarios/narrow-paths.toml`), in the simulator; `docs/design/congestion.md` has the same on real packets.

use std::path::Path;

use toml::Table;
use weft_sim::{Scenario, run};
use weft_udp::AgentConfig;
use weft_units::Seed;

/// The rate of all four paths in the scenario, bit/s.
const RATE: f64 = 800e6;

fn scenario() -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let text = std::fs::read_to_string(folder.join("narrow-paths.toml")).unwrap();
    Scenario::parse(&text, &folder).unwrap()
}

/// Returns the part of the four paths that the transfer of 100 MB has with other settings of the transport; packets have
/// 78 bytes of headers.
fn share(others: Table) -> f64 {
    let mut scenario = scenario();
    scenario.transport.overrides.extend(others);
    let topology = scenario.build_topology().unwrap();
    let mtu = f64::from(scenario.transport.resolve(&topology).unwrap().mtu);
    let report = run(&scenario, Seed(1)).unwrap();
    assert!(report.finished);
    let at_all_paths = 100e6 * 8.0 / (RATE / 1e6) * (mtu + 78.0) / mtu;
    at_all_paths / report.workloads[0].flows.fct_us.max
}

#[test]
fn the_scenario_has_the_default_transport() {
    let scenario = scenario();
    let transport = scenario.transport.resolve(&scenario.build_topology().unwrap()).unwrap();
    assert_eq!(transport, AgentConfig::ethernet(128));
}

#[test]
fn a_connection_fills_paths_that_are_slower_than_the_hosts_link() {
    let default = share(Table::new());
    assert!(default > 0.93, "{default}");
    // BIFROST's best four ports by round trip are those of one or two paths.
    let best = share(toml::toml! { policy = "rtt-groups"
    top_k = 4 });
    assert!(default > 1.3 * best, "{best}, by default {default}");
}

/// A unit of eight packets of 9,000 bytes occupies a path for longer than the queue's target: the other paths run empty.
#[test]
fn units_have_few_of_the_longest_packets() {
    let longer = share(toml::toml! { mtu = 8896 });
    assert!(longer > 0.85, "{longer}");
}
