//! Damaged files of installed tables and of saved states, and damaged reports of probes.

use std::path::Path;

#[path = "../../weft-units/tests/garble/mod.rs"]
mod garble;
mod properties;

fn golden(folder: &str) -> Vec<Vec<u8>> {
    garble::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder))
}

#[test]
fn no_garbled_tables_break_a_promise() {
    let good = golden("installed");
    assert!(good.iter().all(|text| properties::installed(text)));
    let taken = garble::survive(&good, 5_000, properties::installed);
    assert!(taken > 100, "only {taken} were fabrics: the garbling is too wild");
}

#[test]
fn no_garbled_state_breaks_a_promise() {
    let taken = garble::survive(&golden("state"), 5_000, properties::state);
    assert!(taken > 250, "only {taken} were states: the garbling is too wild");
}

#[test]
fn no_garbled_record_of_another_controller_breaks_a_promise() {
    let good = golden("records");
    assert!(good.iter().all(|text| properties::record(text)));
    let taken = garble::survive(&good, 5_000, properties::record);
    assert!(taken > 250, "only {taken} were records: the garbling is too wild");
}

#[test]
fn no_garbled_report_of_probes_breaks_a_promise() {
    let taken = garble::survive(&golden("probes"), 5_000, properties::probe_report);
    assert!(taken > 100, "only {taken} were accepted: the garbling is too wild");
}
