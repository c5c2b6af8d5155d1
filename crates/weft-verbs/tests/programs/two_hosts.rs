//! Tests with the ends in two network namespaces, with four paths between them of which one loses 1 % of the packets.

use weft_lab::{Direction, Impairment};

use crate::pair::run;
use crate::two_namespaces::two_hosts;

fn all(test: &str, programs: &[&str]) {
    let Some(hosts) = two_hosts(test) else { return };
    for words in programs {
        let printed = run(&hosts, words);
        let output = &printed.client;
        assert!(output.contains("usec/iter") || output.contains("#bytes"), "{words}: {printed:?}");
        assert!(!output.contains("invalid data"), "{words}: {printed:?}");
    }
}

#[test]
fn pingpongs_across_hosts() {
    all(
        "pingpongs across hosts",
        &[
            "ibv_rc_pingpong -g 0 -c -s 100000 -n 100",
            "ibv_rc_pingpong -g 0 -e",
            "ibv_rc_pingpong -g 0 -N",
            "ibv_srq_pingpong -g 0 -c",
            "ibv_uc_pingpong -g 0 -c",
            "ibv_ud_pingpong -g 0 -e",
        ],
    );
}

#[test]
fn perftest_across_hosts() {
    all(
        "perftest across hosts",
        &[
            "ib_write_bw -n 200",
            "ib_write_lat -n 50",
            "ib_read_bw -n 100",
            "ib_read_lat -n 50",
            "ib_send_bw -n 200",
            "ib_send_lat -n 50",
            "ib_atomic_bw -n 200",
            "ib_atomic_lat -n 50",
            "ib_write_bw -n 50 -q 4 -b",
            "ib_send_bw -c UD -n 100",
            "ib_send_bw -n 50 --use-srq -e",
            "ib_send_lat -c UC -n 50",
            "ib_write_bw -c UC -n 100",
            "ib_write_bw -a -n 5",
            "ib_send_bw -a -n 5",
        ],
    );
}

#[test]
fn programs_take_af_xdp() {
    let Some(hosts) = two_hosts("programs by AF_XDP") else { return };
    for (profile, words) in [
        ("ethernet", "ibv_rc_pingpong -g 0 -c -s 100000 -n 100"),
        ("stellar", "ibv_ud_pingpong -g 0 -e"),
        ("stellar", "ib_write_bw -n 200"),
        ("ethernet", "ib_read_bw -n 100"),
        ("ethernet", "ib_send_lat -n 50"),
        ("stellar", "ib_atomic_bw -n 200"),
    ] {
        let variables = format!("env WEFT_WIRE=af-xdp WEFT_PROFILE={profile}");
        let printed = run(&hosts, &format!("{variables} {words}"));
        for output in [&printed.client, &printed.server] {
            assert!(!output.contains("AF_XDP"), "refused, {words}: {output}");
            assert!(!output.contains("invalid data"), "{words}: {output}");
        }
    }
}

#[test]
fn a_host_gives_its_link_no_more_than_its_queue_holds() {
    let Some(mut hosts) = two_hosts("a host and its link") else { return };
    let rate = Some("200Mbps".parse().unwrap());
    let limited = Impairment { rate, ..Impairment::default() };
    for link in ["h0-l0", "h1-l1"] {
        hosts.0.impair(link, Direction::Both, &limited).unwrap();
    }
    let printed = run(&hosts, "ib_write_bw -n 50 -q 4");
    assert!(printed.client.contains("#bytes"), "{printed:?}");
    for link in &hosts.0.counters().unwrap()[..2] {
        assert_eq!(link.forward.queue_dropped, 0, "{link:?}");
    }
}
