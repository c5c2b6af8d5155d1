//! Tests of libfabric's reliable datagrams over its verbs provider.

use crate::ends::connect_at;
use crate::pair::{OneHost, Stage};

/// The TCP port at which the two ends meet.
const PORT: u16 = 47_592;

/// Sends messages of every size up to a megabyte and checks each.
pub(crate) fn pingpong(stage: &impl Stage) {
    let words = "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20";
    let printed = connect_at(stage, PORT, words, words);
    assert!(printed.client.contains("1m      20"), "{printed:?}");
}

#[test]
fn fi_pingpong() {
    pingpong(&OneHost);
}

/// The last message and the end of the connection follow each other at once.
#[test]
fn fi_pingpong_over_connections() {
    let words = "fi_pingpong -p verbs -e msg -S 4096 -I 200";
    for _ in 0..5 {
        let printed = connect_at(&OneHost, PORT, words, words);
        assert!(printed.client.contains("4k      200"), "{printed:?}");
    }
}
