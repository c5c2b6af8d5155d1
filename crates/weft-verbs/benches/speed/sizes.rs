//! A sweep of message sizes: the device's cost over the bare engine (STELLAR, figure 13).

use weft_testkit::{figure_row, json};

use crate::engine::Engine;
use crate::pair::OneHost;
use crate::programs::Perftest;
use crate::table::median;

const SIZES: [u32; 9] = [2, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20];

/// The approximate number of bytes that one measurement moves.
const MOVED: u32 = 1 << 29;

pub(crate) fn sweep(rounds: usize) {
    println!("\none host: programs on the device beside the bare engine, {rounds} rounds, medians");
    println!(
        "{:>9} {:>24} {:>8} {:>25} {:>8}",
        "bytes", "SEND, us: device, engine", "ratio", "WRITE, GB/s: dev., engine", "ratio"
    );
    let mut engine = Engine::new(SIZES[SIZES.len() - 1]);
    for size in SIZES {
        let limit = if size <= 4096 { 10_000 } else { MOVED / size };
        let messages = limit.clamp(50, 10_000);
        let latency = Perftest::latency("ib_send_lat", size.into(), (messages / 4).max(50).into());
        let bandwidth = Perftest::bandwidth("ib_write_bw", size.into(), messages.into());
        let mut rows: [Vec<f64>; 4] = Default::default();
        for _ in 0..rounds {
            rows[0].extend(latency.run(&OneHost));
            rows[1].push(engine.latency(size, messages.min(2_000)) / 1000.0);
            rows[2].extend(bandwidth.run(&OneHost));
            rows[3].push(engine.bandwidth(size, messages) / 1e9);
        }
        let [device, bare, rate, bare_rate] = rows.map(median);
        for (way, latency, bandwidth) in [("device", device, rate), ("engine", bare, bare_rate)] {
            if let (Some(latency), Some(bandwidth)) = (latency, bandwidth) {
                let row = json!({ "bytes": size, "way": way, "latency": latency, "bandwidth": bandwidth });
                figure_row("stellar-fig13", &row);
            }
        }
        let show = |figure: Option<f64>| {
            figure.map_or_else(|| String::from("failed"), |it| format!("{it:.3}"))
        };
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        println!(
            "{size:>9} {:>12}{:>12} {:>8} {:>12}{:>13} {:>8}",
            show(device),
            show(bare),
            show(ratio(device, bare)),
            show(rate),
            show(bare_rate),
            show(ratio(rate, bare_rate)),
        );
    }
}
