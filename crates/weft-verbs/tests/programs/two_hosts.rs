//! The ends in two network namespaces, with four paths between them of which one loses a packet in a hundred.

use std::io::{self, Write};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_lab::{Direction, Impairment, Lab, LabSpec, Loss, requirements};

use crate::pair::{Stage, run};

/// Two hosts of a lab.
struct TwoHosts(Lab);

impl Stage for TwoHosts {
    fn server(&self) -> String {
        self.0.fabric().address(0).to_string()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        self.0.spawn(if second { "h1" } else { "h0" }, command).unwrap()
    }
}

/// Two hosts, or `None` after saying why there are none. Labs come up one after the other.
fn two_hosts(test: &str) -> Option<TwoHosts> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if let Some(missing) = requirements().into_iter().find(|r| r.essential && !r.met) {
        let line = format!("SKIPPED {test}: no {} ({})\n", missing.name, missing.fix);
        io::stderr().write_all(line.as_bytes()).unwrap();
        return None;
    }
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut lab = Lab::up(&LabSpec::named(format!("v{}-{number}", std::process::id()))).unwrap();
    let loss: Loss = "1%".parse().unwrap();
    let lossy = Impairment { loss, ..Impairment::default() };
    lab.impair("l0-s1", Direction::Both, &lossy).unwrap();
    Some(TwoHosts(lab))
}

fn all(test: &str, programs: &[&str]) {
    let Some(hosts) = two_hosts(test) else { return };
    for words in programs {
        let printed = run(&hosts, words);
        let said = &printed.client;
        assert!(said.contains("usec/iter") || said.contains("#bytes"), "{words}: {printed:?}");
        assert!(!said.contains("invalid data"), "{words}: {printed:?}");
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
