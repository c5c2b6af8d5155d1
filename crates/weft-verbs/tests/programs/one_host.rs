//! Tests with both ends on one host, through shared memory and, if that is disabled, over UDP.

use std::process::{Child, Command};

use crate::pair::{OneHost, Printed, Stage, run};

/// A stage with both ends on this host, without shared memory.
struct OverUdp;

impl Stage for OverUdp {
    fn server(&self) -> String {
        OneHost.server()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        OneHost.start(second, command.env("WEFT_SAME_HOST", "off"))
    }
}

fn both_ways(words: &str) -> [Printed; 2] {
    [run(&OneHost, words), run(&OverUdp, words)]
}

/// Checks the output with which every pingpong ends.
fn pingpong(words: &str) {
    for printed in both_ways(&format!("{words} -g 0")) {
        for output in [&printed.client, &printed.server] {
            assert!(output.contains("usec/iter"), "{printed:?}");
            assert!(!output.contains("invalid data"), "{printed:?}");
        }
    }
}

#[test]
fn rc_pingpong() {
    pingpong("ibv_rc_pingpong");
}

#[test]
fn rc_pingpong_validates_the_received_data() {
    pingpong("ibv_rc_pingpong -c -s 1000000 -n 20");
}

#[test]
fn rc_pingpong_with_events() {
    pingpong("ibv_rc_pingpong -e");
}

#[test]
fn rc_pingpong_builds_its_requests_call_by_call() {
    pingpong("ibv_rc_pingpong -N");
}

#[test]
fn rc_pingpong_with_everything() {
    pingpong("ibv_rc_pingpong -N -e -c");
}

#[test]
fn uc_pingpong() {
    pingpong("ibv_uc_pingpong -c");
    pingpong("ibv_uc_pingpong -e");
}

#[test]
fn ud_pingpong() {
    pingpong("ibv_ud_pingpong -c");
    pingpong("ibv_ud_pingpong -e");
}

#[test]
fn srq_pingpong() {
    pingpong("ibv_srq_pingpong -c");
    pingpong("ibv_srq_pingpong -e");
}

/// Runs a program of perftest; its table follows this line.
fn perftest(words: &str) {
    for printed in both_ways(words) {
        assert!(printed.client.contains("#bytes"), "{printed:?}");
        let complains = |output: &str| output.contains("rror");
        assert!(!complains(&printed.client) && !complains(&printed.server), "{printed:?}");
    }
}

#[test]
fn writes() {
    perftest("ib_write_bw -n 200");
    perftest("ib_write_bw -n 100 -b");
    perftest("ib_write_bw -n 50 -q 4");
    perftest("ib_write_lat -n 50");
    perftest("ib_write_lat -n 50 -I 64 -s 64");
}

#[test]
fn reads() {
    perftest("ib_read_bw -n 200");
    perftest("ib_read_lat -n 100");
    perftest("ib_read_bw -n 50 -q 4");
    perftest("ib_read_bw -n 50 -b");
    perftest("ib_read_bw -n 50 -e");
    perftest("ib_read_lat -n 50 -e");
}

#[test]
fn sends() {
    perftest("ib_send_bw -n 200");
    perftest("ib_send_bw -n 100 -b");
    perftest("ib_send_bw -n 100 -e");
    perftest("ib_send_bw -n 100 --use-srq");
    perftest("ib_send_bw -n 50 --use-srq -q 4");
    perftest("ib_send_bw -n 100 --use_old_post_send");
    perftest("ib_send_lat -n 100");
    perftest("ib_send_lat -n 100 -e");
    perftest("ib_send_lat -n 100 --use-srq");
}

#[test]
fn atomics() {
    perftest("ib_atomic_bw -n 200");
    perftest("ib_atomic_bw -n 200 -A CMP_AND_SWAP");
    perftest("ib_atomic_bw -n 100 -b");
    perftest("ib_atomic_bw -n 50 -q 4");
    perftest("ib_atomic_bw -n 50 -e");
    perftest("ib_atomic_lat -n 100");
    perftest("ib_atomic_lat -n 50 -e");
}

#[test]
fn every_size() {
    perftest("ib_write_bw -a -n 5");
    perftest("ib_send_bw -c UD -a -n 20");
}

#[test]
fn unreliable_services() {
    perftest("ib_send_bw -c UD -n 200");
    perftest("ib_send_bw -c UD -n 100 -b");
    perftest("ib_send_bw -c UD -n 100 -e");
    perftest("ib_send_bw -c UD -n 50 -q 4");
    perftest("ib_send_lat -c UD -n 100");
    perftest("ib_send_bw -c UC -n 100");
    perftest("ib_send_lat -c UC -n 100");
    perftest("ib_write_lat -c UC -n 50");
    perftest("ib_write_bw -c UC -n 100");
}
