//! The speed of programs on the device, compared with the alternatives on the same machine.
//!
//! `cargo bench -p weft-verbs --bench speed -- [ROUNDS] [one-host] [two-hosts] [busy] [queue-pairs] [sizes]`
//!
//! Contenders take turns, ROUNDS (3) times; the output is the median, the minimum, the maximum, and the median of the
//! rounds' ratios. `two-hosts` needs root for network namespaces.

#[path = "../../tests/programs/library.rs"]
mod library;
#[path = "../../tests/programs/pair.rs"]
#[expect(dead_code, reason = "it is the tests'")]
mod pair;

mod busy;
mod engine;
mod line;
mod programs;
mod sizes;
mod stage;
mod table;

use programs::{Perftest, Ucx, fi_pingpong, iperf3};
use stage::Two;
use table::{Better, Table};

use pair::{OneHost, Stage};

const SECTIONS: [&str; 5] = ["one-host", "two-hosts", "busy", "queue-pairs", "sizes"];

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(3);
    let named: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| word.parse::<usize>().is_err()).collect();
    if rounds == 0 || named.iter().any(|word| !SECTIONS.contains(word)) {
        eprintln!("usage: speed [ROUNDS] [{}]", SECTIONS.join("] ["));
        std::process::exit(2);
    }
    let wanted = |section| named.is_empty() || named.contains(&section);
    state("before");
    if wanted("one-host") {
        one_host(rounds, "");
    }
    let two = (wanted("two-hosts") || wanted("busy") || wanted("queue-pairs")).then(Two::up);
    let two = two.flatten();
    if let Some(two) = two.as_ref().filter(|_| wanted("two-hosts")) {
        two_hosts(rounds, two, "");
    }
    if wanted("busy") {
        let _loops = busy::Loops::start(4);
        one_host(rounds, ", 4 busy loops");
        if let Some(two) = &two {
            two_hosts(rounds, two, ", 4 busy loops");
        }
    }
    if wanted("queue-pairs") {
        queue_pairs(rounds, &OneHost, "one host");
        if let Some(two) = &two {
            queue_pairs(rounds, two, "two hosts");
        }
    }
    if wanted("sizes") {
        sizes::sweep(rounds);
    }
    state("after");
}

/// Prints conditions of the machine that affect the figures.
fn state(when: &str) {
    let way =
        line::one_way_time().map_or_else(|| "unknown".into(), |nanos| format!("{nanos:.0} ns"));
    println!("{when}: load {}, a cache line from processor to processor {way}", busy::load());
}

fn one_host(rounds: usize, beside: &str) {
    let here = &OneHost;
    let mut latency =
        Table::new(&format!("one host{beside}: 8 bytes, one way"), "us", Better::Less);
    latency.row("ib_send_lat", || Perftest::latency("ib_send_lat", 8, 10_000).run(here));
    latency.row("ib_send_lat over UDP", || {
        Perftest::latency("ib_send_lat", 8, 5_000).over_udp().run(here)
    });
    latency.row("ucx_perftest tag_lat, shm", || Ucx::latency("shm").run(here));
    latency.row("ucx_perftest tag_lat, tcp", || Ucx::latency("tcp").run(here));
    latency.row("ib_write_lat", || Perftest::latency("ib_write_lat", 8, 1_000).run(here));
    latency.row("ib_write_lat over UDP", || {
        Perftest::latency("ib_write_lat", 8, 1_000).over_udp().run(here)
    });
    latency.row("ib_write_lat, shared memory", || {
        Perftest::latency("ib_write_lat", 8, 10_000).in_shared_memory().run(here)
    });
    let quiet = beside.is_empty();
    let latency = if quiet { latency.recorded("latency") } else { latency };
    latency.measure(rounds);
    let mut bandwidth = Table::new(&format!("one host{beside}: 64 KB"), "GB/s", Better::More);
    bandwidth.row("ib_write_bw", || Perftest::bandwidth("ib_write_bw", 65_536, 20_000).run(here));
    bandwidth.row("ib_write_bw over UDP", || {
        Perftest::bandwidth("ib_write_bw", 65_536, 3_000).over_udp().run(here)
    });
    bandwidth.row("ib_write_bw, shared memory", || {
        Perftest::bandwidth("ib_write_bw", 65_536, 20_000).in_shared_memory().run(here)
    });
    bandwidth.row("ucx_perftest ucp_put_bw, shm", || Ucx::bandwidth("ucp_put_bw").run(here));
    bandwidth.row("ucx_perftest tag_bw, shm", || Ucx::bandwidth("tag_bw").run(here));
    bandwidth.row("iperf3 TCP", || iperf3(here));
    let bandwidth = if quiet { bandwidth.recorded("rate") } else { bandwidth };
    bandwidth.measure(rounds);
}

fn two_hosts(rounds: usize, two: &Two, beside: &str) {
    let mut latency =
        Table::new(&format!("two hosts{beside}: 8 bytes, one way"), "us", Better::Less);
    latency.row("ib_send_lat", || Perftest::latency("ib_send_lat", 8, 3_000).run(two));
    latency.row("fi_pingpong udp;ofi_rxd", || fi_pingpong(two, 8).map(|xfer| xfer.micros));
    latency.row("ib_write_lat", || Perftest::latency("ib_write_lat", 8, 1_000).run(two));
    latency.measure(rounds);
    let mut bandwidth = Table::new(&format!("two hosts{beside}: 64 KB"), "GB/s", Better::More);
    bandwidth.row("ib_write_bw", || Perftest::bandwidth("ib_write_bw", 65_536, 10_000).run(two));
    bandwidth.row("iperf3 TCP", || iperf3(two));
    bandwidth.row("fi_pingpong udp;ofi_rxd", || fi_pingpong(two, 65_536).map(|xfer| xfer.rate));
    bandwidth.measure(rounds);
}

fn queue_pairs(rounds: usize, stage: &impl Stage, place: &str) {
    let title = format!("{place}: ib_write_bw, 64 KB, by queue pairs");
    let mut table = Table::new(&title, "GB/s", Better::More);
    for pairs in [1, 2, 4, 8] {
        let name = format!("-q {pairs}");
        let test = Perftest::bandwidth("ib_write_bw", 65_536, 10_000 / pairs).with(&name);
        table.row(&name, move || test.run(stage));
    }
    table.measure(rounds);
}
