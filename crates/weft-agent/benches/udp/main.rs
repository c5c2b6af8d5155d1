//! Real packets: one connection over four paths against iperf3's TCP and a bare UDP blast, and a
//! ping-pong against a bare one, each round measuring all of them one after the other.
//!
//! As root between two network namespaces joined by one veth pair (MTU 1500), else over loopback.
//! `cargo bench -p weft-agent --bench udp -- [--rounds N] [--seconds S] [--burst PACKETS]
//! [--paths N] [--wait block|poll|hybrid]` prints a table, then one line of JSON.

use std::fmt::Write as _;

use serde::Serialize;

mod namespaces;
mod roles;

use namespaces::Place;
use roles::Settings;

/// One round: everything once.
#[derive(Debug, Serialize)]
struct Round {
    weft_gbps: f64,
    blast_gbps: f64,
    iperf3_gbps: Option<f64>,
    weft_p50_us: f64,
    weft_p99_us: f64,
    bare_p50_us: f64,
    bare_p99_us: f64,
    retransmits: u64,
    spurious_retransmits: u64,
}

#[derive(Debug, Serialize)]
struct Results {
    bench: &'static str,
    place: &'static str,
    settings: Settings,
    rounds: Vec<Round>,
    /// Medians over rounds of ratios within a round.
    throughput_to_iperf3: Option<f64>,
    throughput_to_blast: f64,
    latency_to_bare: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if arguments.first().is_some_and(|first| first == "role") {
        roles::play(&arguments[1..]);
        return;
    }
    let settings = Settings::parse(&arguments).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    let place = Place::prepare();
    let rounds: Vec<Round> = (0..settings.rounds).map(|_| round(&place, &settings)).collect();
    let results = summarize(rounds, settings, place.name());
    print!("{}", table(&results));
    println!("{}", serde_json::to_string(&results).expect("numbers and names"));
}

fn round(place: &Place, settings: &Settings) -> Round {
    let iperf3_gbps = place.iperf3(settings.seconds);
    let blast_gbps = roles::blast(place, settings);
    let weft = roles::throughput(place, settings);
    let bare = roles::bare_latency(place, settings);
    let ping = roles::latency(place, settings);
    Round {
        weft_gbps: weft.goodput_bps / 1e9,
        blast_gbps,
        iperf3_gbps,
        weft_p50_us: ping.latency_us.p50,
        weft_p99_us: ping.latency_us.p99,
        bare_p50_us: bare.p50,
        bare_p99_us: bare.p99,
        retransmits: weft.client.repeats(),
        spurious_retransmits: weft.client.spurious_retransmits,
    }
}

fn summarize(rounds: Vec<Round>, settings: Settings, place: &'static str) -> Results {
    let median_of = |ratio: &dyn Fn(&Round) -> f64| median(rounds.iter().map(ratio).collect());
    let throughput_to_iperf3 = rounds
        .iter()
        .all(|round| round.iperf3_gbps.is_some())
        .then(|| median_of(&|round| round.weft_gbps / round.iperf3_gbps.unwrap_or(f64::NAN)));
    Results {
        bench: "udp",
        place,
        settings,
        throughput_to_iperf3,
        throughput_to_blast: median_of(&|round| round.weft_gbps / round.blast_gbps),
        latency_to_bare: median_of(&|round| round.weft_p50_us / round.bare_p50_us),
        rounds,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn table(results: &Results) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string");
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
    let settings = &results.settings;
    line(format!(
        "{}: one connection, {} paths, bursts of {} packets, wait {}",
        results.place,
        settings.paths,
        settings.burst,
        settings.wait.name()
    ));
    line(format!(
        "{:>5} {:>11} {:>11} {:>11} {:>9} {:>11} {:>11} {:>11} {:>11}",
        "round",
        "weft Gb/s",
        "blast Gb/s",
        "TCP Gb/s",
        "resent",
        "weft p50us",
        "bare p50us",
        "weft p99us",
        "bare p99us"
    ));
    for (number, round) in results.rounds.iter().enumerate() {
        line(format!(
            "{:>5} {:>11.2} {:>11.2} {:>11} {:>9} {:>11.1} {:>11.1} {:>11.1} {:>11.1}",
            number + 1,
            round.weft_gbps,
            round.blast_gbps,
            optional(round.iperf3_gbps),
            round.retransmits,
            round.weft_p50_us,
            round.bare_p50_us,
            round.weft_p99_us,
            round.bare_p99_us
        ));
    }
    line(format!(
        "throughput: {} of iperf3 TCP (at least 0.8 wanted), {:.2} of a bare blast (at least 0.7)",
        optional(results.throughput_to_iperf3),
        results.throughput_to_blast
    ));
    line(format!(
        "64-byte ping-pong p50: {:.2} of a bare one (at most 1.5 wanted)",
        results.latency_to_bare
    ));
    out
}
