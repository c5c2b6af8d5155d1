//! Quantities with typing errors.

mod garble;
mod properties;

#[test]
fn no_garbled_quantity_breaks_a_promise() {
    let golden = ["250us", "1.5 s", "400Gbps", "25Mbps", "64KiB", "4096", "2MB"];
    let golden: Vec<_> = golden.iter().map(|text| text.as_bytes().to_vec()).collect();
    let taken = garble::survive(&golden, 100_000, properties::units);
    assert!(taken > 10_000, "only {taken} were quantities: the mutations are too strong");
}
