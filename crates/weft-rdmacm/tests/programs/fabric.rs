//! Tests of libfabric's reliable datagrams over its verbs provider.

use crate::ends::connect_at;
use crate::pair::{OneHost, Printed, Stage};

/// The TCP port at which the two ends meet. The kernel may have given the default of fi_pingpong, 47592, to any socket.
const PORT: u16 = 7175;

fn connect_fi(stage: &impl Stage, words: &str) -> Printed {
    connect_at(stage, PORT, &format!("{words} -B {PORT}"), &format!("{words} -P {PORT}"))
}

/// Sends messages of every size up to a megabyte and checks each.
pub(crate) fn pingpong(stage: &impl Stage) {
    let words = "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20";
    let printed = connect_fi(stage, words);
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
        let printed = connect_fi(&OneHost, words);
        assert!(printed.client.contains("4k      200"), "{printed:?}");
    }
}
