//! Real packets: one connection over four paths, encrypted as by default and in the clear, beside iperf3's TCP,
//! iperf3's TCP through WireGuard in user space, and a bare UDP blast; and a ping-pong of 8 bytes beside a bare one.
//! Each round measures all of them one after the other.
//!
//! As root it measures between two network namespaces joined by one veth pair (MTU 1500), else over loopback.
//! `cargo bench -p weft-perf --bench udp -- [--rounds N] [--seconds S] [--burst PACKETS]
//! [--paths N] [--wait block|poll|hybrid]` prints a table, then one line of JSON.

use std::fmt::Write as _;

use serde::Serialize;
use weft_testkit::{figure_row, json};

mod namespaces;
mod roles;
mod wireguard;

use namespaces::Place;
use roles::Settings;

/// The results of one round, which measures everything once.
#[derive(Debug, Serialize)]
struct Round {
    weft_gbps: f64,
    clear_gbps: f64,
    blast_gbps: f64,
    iperf3_gbps: Option<f64>,
    wireguard_gbps: Option<f64>,
    wireguard: Option<&'static str>,
    weft_p50_us: f64,
    weft_p99_us: f64,
    clear_p50_us: f64,
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
    encrypted_to_clear: f64,
    encrypted_to_wireguard: Option<f64>,
    encrypted_latency_to_clear: f64,
    clear_to_iperf3: Option<f64>,
    clear_to_blast: f64,
    clear_latency_to_bare: f64,
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
    rounds.iter().for_each(rows);
    let results = summarize(rounds, settings, place.name());
    print!("{}", table(&results));
    println!("{}", serde_json::to_string(&results).expect("numbers and names"));
}

fn round(place: &Place, settings: &Settings) -> Round {
    let in_the_clear = settings.in_the_clear();
    let iperf3_gbps = place.iperf3(settings.seconds);
    let wireguard = wireguard::measure(place, settings.seconds);
    let blast_gbps = roles::blast(place, settings);
    let weft = roles::throughput(place, settings);
    let clear = roles::throughput(place, &in_the_clear);
    let bare = roles::bare_latency(place, settings);
    let ping = roles::latency(place, settings);
    let clear_ping = roles::latency(place, &in_the_clear);
    Round {
        weft_gbps: weft.goodput_bps / 1e9,
        clear_gbps: clear.goodput_bps / 1e9,
        blast_gbps,
        iperf3_gbps,
        wireguard_gbps: wireguard.as_ref().map(|it| it.gbps),
        wireguard: wireguard.map(|it| it.program),
        clear_p50_us: clear_ping.latency_us.p50,
        weft_p50_us: ping.latency_us.p50,
        weft_p99_us: ping.latency_us.p99,
        bare_p50_us: bare.p50,
        bare_p99_us: bare.p99,
        retransmits: weft.client.engine.retransmissions(),
        spurious_retransmits: weft.client.engine.spurious_retransmits,
    }
}

/// Writes a round's figure rows for `docs/performance/transport.md` and `encryption.md`.
fn rows(round: &Round) {
    for (way, rate, round_trip) in [
        ("Weft, encrypted", Some(round.weft_gbps), Some(round.weft_p50_us)),
        ("Weft, in the clear", Some(round.clear_gbps), Some(round.clear_p50_us)),
        ("bare UDP", Some(round.blast_gbps), Some(round.bare_p50_us)),
        ("kernel TCP", round.iperf3_gbps, None),
        ("kernel TCP through WireGuard", round.wireguard_gbps, None),
    ] {
        if let Some(rate) = rate {
            let row = json!({ "way": way, "rate": rate, "round_trip": round_trip });
            figure_row("perf-transport", &row);
        }
    }
}

fn summarize(rounds: Vec<Round>, settings: Settings, place: &'static str) -> Results {
    let median_of = |ratio: &dyn Fn(&Round) -> f64| median(rounds.iter().map(ratio).collect());
    let median_to = |rate: &dyn Fn(&Round) -> f64, other: &dyn Fn(&Round) -> Option<f64>| {
        let ratios = rounds.iter().map(|round| Some(rate(round) / other(round)?));
        ratios.collect::<Option<Vec<f64>>>().map(median)
    };
    Results {
        bench: "udp",
        place,
        settings,
        encrypted_to_clear: median_of(&|round| round.weft_gbps / round.clear_gbps),
        encrypted_to_wireguard: median_to(&|round| round.weft_gbps, &|round| round.wireguard_gbps),
        encrypted_latency_to_clear: median_of(&|round| round.weft_p50_us / round.clear_p50_us),
        clear_to_iperf3: median_to(&|round| round.clear_gbps, &|round| round.iperf3_gbps),
        clear_to_blast: median_of(&|round| round.clear_gbps / round.blast_gbps),
        clear_latency_to_bare: median_of(&|round| round.clear_p50_us / round.bare_p50_us),
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
    line("        Gb/s of payload                                        p50 of 8 bytes there and back, us".into());
    line(format!(
        "{:>5} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {:>9} {:>7} {:>7}",
        "round",
        "encrypted",
        "clear",
        "blast",
        "TCP",
        "WireGuard",
        "resent",
        "encrypted",
        "clear",
        "bare"
    ));
    for (number, round) in results.rounds.iter().enumerate() {
        line(format!(
            "{:>5} {:>9.2} {:>9.2} {:>9.2} {:>9} {:>11} {:>7} {:>9.1} {:>7.1} {:>7.1}",
            number + 1,
            round.weft_gbps,
            round.clear_gbps,
            round.blast_gbps,
            optional(round.iperf3_gbps),
            optional(round.wireguard_gbps),
            round.retransmits,
            round.weft_p50_us,
            round.clear_p50_us,
            round.bare_p50_us
        ));
    }
    let wireguard =
        results.rounds.iter().find_map(|round| round.wireguard).unwrap_or("none installed");
    line(format!(
        "encrypted: {:.2} of clear (at least 0.6 wanted), {} of TCP through WireGuard ({wireguard}; at least 2)",
        results.encrypted_to_clear,
        optional(results.encrypted_to_wireguard)
    ));
    line(format!(
        "clear: {} of iperf3 TCP (at least 0.8 wanted), {:.2} of a bare blast (at least 0.7)",
        optional(results.clear_to_iperf3),
        results.clear_to_blast
    ));
    line(format!(
        "8-byte ping-pong p50: encrypted {:.2} of clear (at most 1.15 wanted), clear {:.2} of a bare one (at most 1.5)",
        results.encrypted_latency_to_clear, results.clear_latency_to_bare
    ));
    out
}
