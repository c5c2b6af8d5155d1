//! The properties of a neighbour's bytes, over mutated messages.

mod properties;

use properties::{evpn_neighbour, inputs};

#[test]
fn no_neighbour_violates_a_property() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = inputs::corpus(&file.join("tests/golden/evpn_neighbour.corpus"));
    let kept = inputs::survive(&corpus, 20_000, evpn_neighbour);
    assert!(kept > 1_000, "only {kept} kept a route: the mutants are too wild");
}
