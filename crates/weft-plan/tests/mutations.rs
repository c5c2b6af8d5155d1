//! Mutated descriptions of clusters and machines.

use std::path::Path;

#[path = "../../weft-units/tests/garble/mod.rs"]
mod garble;
mod properties;

fn golden(folder: &str) -> Vec<Vec<u8>> {
    garble::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder))
}

#[test]
fn no_garbled_nccl_file_breaks_a_promise() {
    let taken = garble::survive(&golden("nccl"), 5_000, properties::nccl);
    assert!(taken > 250, "only {taken} were machines: the garbling is too wild");
}

#[test]
fn no_garbled_port_table_breaks_a_promise() {
    let taken = garble::survive(&golden("ports"), 5_000, properties::ports);
    assert!(taken > 250, "only {taken} were tables: the garbling is too wild");
}

#[test]
fn no_garbled_tuner_table_breaks_a_promise() {
    let taken = garble::survive(&golden("tuner"), 5_000, properties::tuner);
    assert!(taken > 250, "only {taken} were tables: the garbling is too wild");
}

#[test]
fn no_garbled_cluster_breaks_a_promise() {
    let taken = garble::survive(&golden("cluster"), 5_000, properties::cluster);
    assert!(taken > 250, "only {taken} were clusters: the garbling is too wild");
}
