//! One connection with the default transport over four paths that are slower than the host's link
//! (`scenarios/narrow-paths.toml`), in the simulator; `docs/design/congestion.md` has the same on real packets.

use std::path::Path;

use toml::Table;
use weft_sim::{Scenario, run};
use weft_udp::AgentConfig;
use weft_units::Seed;

/// The microseconds that 100 MB of packets of 1,440 bytes, with 78 of headers, occupy four paths of 200 Mb/s.
const FOUR_PATHS: f64 = 100e6 * 8.0 / 800.0 * 1518.0 / 1440.0;

fn scenario() -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let text = std::fs::read_to_string(folder.join("narrow-paths.toml")).unwrap();
    Scenario::parse(&text, &folder).unwrap()
}

/// Returns the duration of the transfer with other settings of the transport, microseconds.
fn duration(others: Table) -> f64 {
    let mut scenario = scenario();
    scenario.transport.overrides.extend(others);
    let report = run(&scenario, Seed(1)).unwrap();
    assert!(report.finished);
    report.workloads[0].flows.fct_us.max
}

#[test]
fn the_scenario_has_the_default_transport() {
    let scenario = scenario();
    let transport = scenario.transport.resolve(&scenario.build_topology().unwrap()).unwrap();
    assert_eq!(transport, AgentConfig::ethernet(128));
}

#[test]
fn a_connection_fills_paths_that_are_slower_than_the_hosts_link() {
    let default = duration(Table::new());
    assert!(default < FOUR_PATHS / 0.93, "{default} us of {FOUR_PATHS}");
    // BIFROST's best four ports by round trip are those of one or two paths.
    let best = duration(toml::toml! { policy = "rtt-groups"
    top_k = 4 });
    assert!(best > 1.3 * default, "{best} us, by default {default}");
}
