//! Tests with the ends in two network namespaces, with four paths between them of which one loses 1 % of the packets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::ends::{UDADDY_PORT, connect, connect_at};
use crate::pair::run;
use crate::two_namespaces::two_hosts;
use crate::{fabric, mpi, ucx};

#[test]
fn connections_across_hosts() {
    let Some(hosts) = two_hosts("connections across hosts") else { return };
    connect(&hosts, "rping -s -V -C 50", "rping -c -V -C 50 -a");
    connect(&hosts, "ucmatose -c 4 -C 20", "ucmatose -c 4 -C 20 -s");
    let datagrams = connect_at(&hosts, UDADDY_PORT, "udaddy", "udaddy -s");
    assert!(datagrams.client.contains("data transfers complete"), "{datagrams:?}");
    for words in [
        "ib_write_bw -R -n 200",
        "ib_send_lat -R -n 50",
        "ib_read_bw -R -q 4 -n 50",
        "ib_atomic_bw -R -n 50",
    ] {
        let printed = run(&hosts, words);
        assert!(printed.client.contains("#bytes"), "{words}: {printed:?}");
    }
    fabric::pingpong(&hosts);
    for (transport, test) in [("rc_v", "tag_bw -s 65536"), ("ud_v", "tag_lat")] {
        ucx::perftest(&hosts, transport, test);
    }
}

/// Each host has two of the ranks; Open MPI starts the other host's through a shell that this test makes.
#[test]
fn ranks_on_two_hosts_agree_on_sums() {
    let Some(hosts) = two_hosts("ranks on two hosts") else { return };
    let addresses = [0, 1].map(|host| hosts.0.fabric().address(host));
    let shell = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shell-of-h1");
    let script =
        format!("#!/bin/sh\nshift\nexec ip netns exec weft-{}.h1 sh -c \"$*\"\n", hosts.0.name());
    std::fs::write(&shell, script).unwrap();
    std::fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).unwrap();
    let places = format!(
        "--host {}:2,{}:2 --mca plm_rsh_agent {} --mca oob_tcp_if_include 10.0.0.0/8",
        addresses[0],
        addresses[1],
        shell.display()
    );
    mpi::agree(&hosts, 2, &places);
}
