//! Tests with both ends on one host.

use crate::compiled::compiled;
use crate::ends::{UDADDY_PORT, connect, connect_at, serve};
use crate::pair::{OneHost, run};

#[test]
fn rping_validates_the_received_data() {
    connect(&OneHost, "rping -s -V -C 50", "rping -c -V -C 50 -a");
}

/// The server binds one address, not all of them.
#[test]
fn rping_on_one_address() {
    connect(&OneHost, "rping -s -V -C 5 -a 127.0.0.1", "rping -c -V -C 5 -a");
}

#[test]
fn datagrams() {
    let printed = connect_at(&OneHost, UDADDY_PORT, "udaddy", "udaddy -s");
    assert!(printed.client.contains("data transfers complete"), "{printed:?}");
}

#[test]
fn several_connections_of_one_program() {
    let printed = connect(&OneHost, "ucmatose -c 8 -C 20", "ucmatose -c 8 -C 20 -s");
    assert!(printed.client.contains("data transfers complete"), "{printed:?}");
}

/// Blocking calls, and endpoints made by name.
#[test]
fn synchronous_calls() {
    connect(&OneHost, "rdma_server", "rdma_client -s");
}

/// The program posts inline data although it reserved no room for it.
#[test]
fn rdma_xclient() {
    connect(&OneHost, "rdma_xserver", "rdma_xclient -s");
}

/// Runs a program of perftest; its table follows this line.
fn perftest(words: &str) {
    let printed = run(&OneHost, words);
    assert!(printed.client.contains("#bytes"), "{printed:?}");
    assert!(!printed.client.contains("rror") && !printed.server.contains("rror"), "{printed:?}");
}

#[test]
fn perftest_connects_by_the_connection_manager() {
    for words in [
        "ib_write_bw -R -n 200",
        "ib_write_bw -R -q 4 -n 50",
        "ib_write_bw -R -b -n 50",
        "ib_write_lat -R -n 50",
        "ib_read_bw -R -n 100",
        "ib_read_lat -R -n 50",
        "ib_send_bw -R -e -n 50",
        "ib_send_bw -R --use-srq -q 4 -n 50",
        "ib_send_bw -R -c UD -n 100",
        "ib_send_lat -R -n 100",
        "ib_send_lat -R -c UD -n 50",
        "ib_atomic_bw -R -n 50",
        "ib_atomic_lat -R -n 50",
    ] {
        perftest(words);
    }
}

/// The program sleeps between polling for completions and polling for events.
#[test]
fn received_messages_are_seen_before_the_disconnection() {
    let binary = compiled("cc", "last_word", &["-lrdmacm", "-libverbs"], "librdmacm-dev");
    let words = binary.to_str().unwrap();
    let printed = connect(&OneHost, words, words);
    assert_eq!(printed.client, "10 of 10 messages were seen to arrive\n");
}

/// Connections begin and end a hundred at a time.
#[test]
fn many_connections() {
    let printed = serve(&OneHost, "cmtime -c 100", "cmtime -c 100 -s");
    assert!(printed.contains("us / conn"), "{printed}");
}
