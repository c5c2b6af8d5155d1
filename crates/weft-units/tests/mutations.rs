//! Fuzz tests that parse damaged quantities.

mod garble;
mod properties;

#[test]
fn mutated_quantities_keep_every_property() {
    let golden = ["250us", "1.5 s", "400Gbps", "25Mbps", "64KiB", "4096", "2MB"];
    let golden: Vec<_> = golden.iter().map(|text| text.as_bytes().to_vec()).collect();
    let accepted = garble::survive(&golden, 100_000, properties::units);
    assert!(accepted > 10_000, "only {accepted} were quantities: the mutations are too strong");
}
