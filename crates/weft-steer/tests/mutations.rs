//! Damaged answers of routers and damaged configurations.

use std::path::Path;

#[path = "../../weft-units/tests/garble/mod.rs"]
mod garble;
mod properties;

fn golden(folder: &str) -> Vec<Vec<u8>> {
    garble::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder))
}

#[test]
fn no_garbled_answer_of_a_router_breaks_a_promise() {
    let taken = garble::survive(&golden("tables"), 5_000, properties::tables);
    assert!(taken > 250, "only {taken} were understood: the garbling is too wild");
}

#[test]
fn no_garbled_answer_of_a_gnmi_server_breaks_a_promise() {
    let taken = garble::survive(&golden("gnmi"), 5_000, properties::gnmi_answer);
    assert!(taken > 250, "only {taken} were understood: the garbling is too wild");
}

#[test]
fn no_garbled_job_breaks_a_promise() {
    let taken = garble::survive(&golden("jobs"), 5_000, properties::job_table);
    assert!(taken > 250, "only {taken} were tables: the garbling is too wild");
}

#[test]
fn no_garbled_configuration_breaks_a_promise() {
    let taken = garble::survive(&golden("config"), 5_000, properties::steer_config);
    assert!(taken > 250, "only {taken} were configurations: the garbling is too wild");
}
