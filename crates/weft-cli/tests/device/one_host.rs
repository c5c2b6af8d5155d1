//! Both ends on one host, with one daemon.

use crate::conformance;
use crate::daemon::Daemon;
use crate::ends::{UDADDY_PORT, connect, connect_at, serve};
use crate::library::LIBRARY;
use crate::pair::run;

fn pingpongs(words: &[&str]) {
    let daemon = Daemon::start();
    for words in words {
        let printed = run(&daemon, &format!("{words} -g 0"));
        for output in [&printed.client, &printed.server] {
            assert!(output.contains("usec/iter"), "{words}: {printed:?}");
            assert!(!output.contains("invalid data"), "{words}: {printed:?}");
        }
    }
}

#[test]
fn rc_pingpong() {
    pingpongs(&[
        "ibv_rc_pingpong",
        "ibv_rc_pingpong -c -s 1000000 -n 20",
        "ibv_rc_pingpong -e",
        "ibv_rc_pingpong -N",
    ]);
}

#[test]
fn other_pingpongs() {
    pingpongs(&["ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_srq_pingpong -e"]);
}

/// Runs programs of perftest, and checks that each prints its table, which follows a line of headings.
fn perftests(words: &[&str]) {
    let daemon = Daemon::start();
    for words in words {
        let printed = run(&daemon, words);
        assert!(printed.client.contains("#bytes"), "{words}: {printed:?}");
        assert!(
            !printed.client.contains("rror") && !printed.server.contains("rror"),
            "{words}: {printed:?}"
        );
    }
}

#[test]
fn writes_and_reads() {
    perftests(&[
        "ib_write_bw -n 200",
        "ib_write_bw -n 100 -b",
        "ib_write_bw -n 50 -q 4",
        "ib_write_bw -a -n 5",
        "ib_write_lat -n 50",
        "ib_write_lat -n 50 -I 64 -s 64",
        "ib_read_bw -n 200",
        "ib_read_lat -n 100",
    ]);
}

#[test]
fn sends_and_atomics() {
    perftests(&[
        "ib_send_bw -n 200",
        "ib_send_bw -n 100 -e",
        "ib_send_bw -n 100 --use-srq",
        "ib_send_lat -n 100",
        "ib_send_lat -n 100 -e",
        "ib_atomic_bw -n 200",
        "ib_atomic_bw -n 200 -A CMP_AND_SWAP",
        "ib_atomic_lat -n 100",
    ]);
}

#[test]
fn unreliable_services() {
    perftests(&[
        "ib_send_bw -c UD -n 200",
        "ib_send_lat -c UD -n 100",
        "ib_write_bw -c UC -n 100",
        "ib_write_lat -c UC -n 50",
    ]);
}

#[test]
fn the_tests_of_rdma_core_pass() {
    let daemon = Daemon::start();
    conformance::check("a", |tests| daemon.equip("a", tests));
}

/// UCX uses a device because `weft run` makes it find a node in `/dev`.
#[test]
fn ucx() {
    let daemon = Daemon::start();
    let preload = LIBRARY.join("libweft_preload.so");
    for test in ["rc_v ucx_perftest -t tag_lat", "ud_v ucx_perftest -t tag_bw -s 65536"] {
        let words = format!(
            "env LD_PRELOAD={} UCX_NET_DEVICES=a:1 UCX_TLS={test} -n 200 -w 10",
            preload.display()
        );
        let printed = run(&daemon, &words);
        assert!(printed.client.contains("Final:"), "{printed:?}");
    }
}

#[test]
fn connections() {
    let daemon = Daemon::start();
    connect(&daemon, "rping -s -V -C 50", "rping -c -V -C 50 -a");
    connect(&daemon, "ucmatose -c 4 -C 20", "ucmatose -c 4 -C 20 -s");
    let printed = connect_at(&daemon, UDADDY_PORT, "udaddy", "udaddy -s");
    assert!(printed.client.contains("data transfers complete"), "{printed:?}");
    let printed = run(&daemon, "ib_write_bw -R -n 100");
    assert!(printed.client.contains("#bytes"), "{printed:?}");
    let printed = serve(&daemon, "cmtime -c 20", "cmtime -c 20 -s");
    assert!(printed.contains("us / conn"), "{printed}");
}
