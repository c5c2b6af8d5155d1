//! libfabric's reliable datagrams over its provider for verbs.

use crate::ends::connect_at;
use crate::pair::{OneHost, Stage};

/// Where the two ends find each other, over TCP.
const PORT: u16 = 47_592;

/// Every size up to a megabyte, each message checked.
pub(crate) fn pingpong(stage: &impl Stage) {
    let words = "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20";
    let printed = connect_at(stage, PORT, words, words);
    assert!(printed.client.contains("1m      20"), "{printed:?}");
}

#[test]
fn fi_pingpong() {
    pingpong(&OneHost);
}

/// Its last message and the end of the connection are one after the other.
#[test]
fn fi_pingpong_over_connections() {
    let words = "fi_pingpong -p verbs -e msg -S 4096 -I 200";
    for _ in 0..5 {
        let printed = connect_at(&OneHost, PORT, words, words);
        assert!(printed.client.contains("4k      200"), "{printed:?}");
    }
}
