//! A malicious peer, from scripts of a corpus and their mutations.

mod properties;

use properties::inputs::{corpus, survive};

#[test]
fn no_peer_breaks_an_invariant() {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.corpus");
    let received = survive(&corpus(&file), 20_000, properties::peer);
    assert!(received > 1_000, "only {received} had a message: the scripts are too wild");
}
