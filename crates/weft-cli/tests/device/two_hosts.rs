//! The ends in two network namespaces with a daemon each, and four paths between them of which one loses one packet
//! in a hundred.

use std::process::{Child, Command};

use weft_lab::{Direction, Impairment, Lab, LabSpec, Probability};

use crate::daemon::Daemon;
use crate::ends::connect;
use crate::pair::{Stage, run};

/// Two hosts of a lab. The daemons end before it.
struct TwoHosts {
    daemons: [Daemon; 2],
    lab: Lab,
}

impl Stage for TwoHosts {
    fn server(&self) -> String {
        self.lab.fabric().address(0).to_string()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        let host = usize::from(second);
        self.daemons[host].equip("a", command);
        self.lab.spawn(["h0", "h1"][host], command).unwrap()
    }
}

/// Returns two hosts; `None` if the lab is missing, after it has reported the skip.
fn two_hosts(test: &str) -> Option<TwoHosts> {
    if weft_testkit::lab_is_missing(test, &[]) {
        return None;
    }
    let mut lab = Lab::up(&LabSpec::named(format!("d{}", std::process::id()))).unwrap();
    let loss: Probability = "1%".parse().unwrap();
    let lossy = Impairment { loss, ..Impairment::default() };
    lab.impair("l0-s1", Direction::Both, &lossy).unwrap();
    let daemons =
        ["h0", "h1"].map(|host| Daemon::start_with(|command| lab.spawn(host, command).unwrap()));
    Some(TwoHosts { daemons, lab })
}

#[test]
fn programs_across_hosts() {
    let Some(hosts) = two_hosts("devices of two daemons") else { return };
    for words in [
        "ibv_rc_pingpong -g 0 -c -s 100000 -n 100",
        "ibv_rc_pingpong -g 0 -e",
        "ibv_srq_pingpong -g 0",
        "ib_write_bw -n 200",
        "ib_write_lat -n 50",
        "ib_read_bw -n 100",
        "ib_send_bw -n 200",
        "ib_send_lat -n 50 -e",
        "ib_atomic_bw -n 200",
        "ib_write_bw -n 50 -q 4 -b",
        "ib_send_bw -c UD -n 100",
    ] {
        let printed = run(&hosts, words);
        let output = &printed.client;
        assert!(output.contains("usec/iter") || output.contains("#bytes"), "{words}: {printed:?}");
        assert!(!output.contains("invalid data"), "{words}: {printed:?}");
    }
    connect(&hosts, "rping -s -V -C 50", "rping -c -V -C 50 -a");
}
