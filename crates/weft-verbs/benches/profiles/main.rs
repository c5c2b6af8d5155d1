//! A comparison of device settings: RDMA programs on the shipped library, over four paths without faults, with one that
//! loses a packet in a hundred, or with one that fails; and several senders to one host.
//!
//! `cargo bench -p weft-verbs --bench profiles -- [ROUNDS] [SETTINGS]...`, as root
//!
//! SETTINGS are keys and values of a device's settings, `profile=ethernet,congestion=dctcp`; the default is
//! [`CONTENDERS`]. Contenders take turns, ROUNDS (1) times; the output is the median, as rows of Markdown.
#![allow(clippy::disallowed_methods, reason = "a path dies while a program runs in real time")]

#[path = "../../tests/programs/library.rs"]
mod library;
#[path = "../../tests/programs/pair.rs"]
#[expect(dead_code, reason = "it is the tests'")]
mod pair;

mod fabric;

use fabric::{Fabric, LINE_MBPS};
use weft_udp::{EncryptionSettings, TransportSettings};

/// The settings that are compared by default.
const CONTENDERS: [&str; 7] = [
    "profile=ethernet",
    "profile=ethernet,encryption=off",
    "profile=ethernet,congestion=fixed-window",
    "profile=ethernet,policy=oblivious",
    "profile=stellar",
    "profile=bifrost",
    "profile=single",
];

/// Bytes of a WRITE.
const SIZE: u64 = 65_536;
/// WRITEs of a bulk measurement of one sender: one second at line rate.
const WRITES: u64 = LINE_MBPS * 1_000_000 / 8 / SIZE;
/// SENDs of 64 bytes in a latency measurement.
const SENDS: u64 = 2_000;

/// A column of the table: one measurement.
struct Column {
    heading: &'static str,
    measure: fn(&mut Fabric, &Contender) -> Option<f64>,
}

const COLUMNS: [Column; 8] = [
    Column { heading: "healthy, Gb/s", measure: |fabric, of| fabric.bandwidth(of, WRITES) },
    Column { heading: "p50, us", measure: |fabric, of| Some(fabric.latency(of, SENDS)?.typical) },
    Column { heading: "p99, us", measure: |fabric, of| Some(fabric.latency(of, SENDS)?.p99) },
    Column {
        heading: "1 % lost on one path, Gb/s",
        measure: |fabric, of| fabric.lossy("1%", |fabric| fabric.bandwidth(of, WRITES)),
    },
    Column {
        heading: "p99, us",
        measure: |fabric, of| fabric.lossy("1%", |fabric| Some(fabric.latency(of, SENDS)?.p99)),
    },
    Column {
        heading: "one path dies, Gb/s",
        measure: |fabric, of| fabric.dying(|fabric| fabric.bandwidth(of, 2 * WRITES)),
    },
    Column { heading: "2 to 1, worst share", measure: |fabric, of| fabric.incast(of, 2, WRITES) },
    Column { heading: "7 to 1, worst share", measure: |fabric, of| fabric.incast(of, 7, WRITES) },
];

/// Settings, and the environment variables that pass them to a program.
struct Contender {
    name: String,
    variables: Vec<(String, String)>,
}

impl Contender {
    /// Reads `KEY=VALUE,…`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut transport = TransportSettings::default();
        let mut encryption = EncryptionSettings::default();
        let mut variables = vec![];
        for pair in text.split(',') {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| format!("{pair}: expected KEY=VALUE"))?;
            let set = match EncryptionSettings::KEYS.contains(&key) {
                true => encryption.set(key, value),
                false => transport.set(key, value),
            };
            set.map_err(|error| error.to_string())?;
            variables.push((TransportSettings::variable(key), value.to_owned()));
        }
        let name = text.replace("profile=", "").replace(',', ", ");
        Ok(Self { name, variables })
    }
}

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(1_usize).max(1);
    let named: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| word.contains('=')).collect();
    let named = if named.is_empty() { CONTENDERS.to_vec() } else { named };
    let contenders: Result<Vec<_>, _> = named.into_iter().map(Contender::parse).collect();
    let contenders = contenders.unwrap_or_else(|error| {
        eprintln!("{error}\nusage: profiles [ROUNDS] [KEY=VALUE,...]...");
        std::process::exit(2);
    });
    let Some(mut fabric) = Fabric::up() else { return };
    let mut figures = vec![vec![vec![]; COLUMNS.len()]; contenders.len()];
    for _ in 0..rounds {
        for (column, Column { measure, .. }) in COLUMNS.iter().enumerate() {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                figures[column].extend(measure(&mut fabric, contender));
            }
        }
    }
    println!("| settings | {} |", COLUMNS.map(|column| column.heading).join(" | "));
    println!("| --- |{}", " ---: |".repeat(COLUMNS.len()));
    for (contender, figures) in contenders.iter().zip(&figures) {
        let cells: Vec<_> = figures.iter().map(|of| median(of, rounds)).collect();
        println!("| {} | {} |", contender.name, cells.join(" | "));
    }
}

/// Returns the median in three digits, and the number of failed rounds.
fn median(of: &[f64], rounds: usize) -> String {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let failed = match rounds - of.len() {
        0 => String::new(),
        count => format!(" ({count} failed)"),
    };
    let Some(median) = sorted.get(sorted.len() / 2) else { return "failed".into() };
    let digits = if *median < 10.0 { 3 } else { 0 };
    format!("{median:.digits$}{failed}")
}
