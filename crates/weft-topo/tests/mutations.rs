//! Fuzz tests that read damaged topology files.

use std::path::Path;

#[path = "../../weft-units/tests/garble/mod.rs"]
mod garble;
mod properties;

#[test]
fn mutated_topology_files_keep_every_property() {
    let golden = garble::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"));
    let accepted = garble::survive(&golden, 20_000, properties::topology);
    assert!(
        accepted > 1_000,
        "only {accepted} mutants were topologies: the mutations destroy too much"
    );
}

#[test]
fn a_header_of_millions_costs_no_more_than_its_text() {
    let unconnected = "1048576 1048575 4194304\n";
    assert!(!properties::topology(unconnected.as_bytes()));
}
