//! Measures the limits: thousands of connections, memory, receivers that stop polling, and the cost of streams.
//!
//! `cargo bench -p weft-xrdma --bench limits -- [ROUNDS] [connections] [memory] [rnr] [streams]`
//!
//! Both ends are processes of this host. The ways to set up connections alternate, ROUNDS (5) times; the output has
//! medians, minima and maxima.

#[path = "../../tests/limits/end.rs"]
mod end;

mod connections;
mod figures;
mod memory;
mod rnr;
mod streams;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

// The archives are made with the bench.
use weft_rdmacm as _;
use weft_verbs as _;

const SECTIONS: [&str; 4] = ["connections", "memory", "rnr", "streams"];

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits"), true)
});

fn main() {
    if let Ok(parameters) = std::env::var(end::ROLE) {
        return end::serve(&parameters);
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(5);
    let named: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| word.parse::<usize>().is_err()).collect();
    if rounds == 0 || named.iter().any(|word| !SECTIONS.contains(word)) {
        eprintln!("usage: limits [ROUNDS] [{}]", SECTIONS.join("] ["));
        std::process::exit(2);
    }
    weft_testkit::load_verbs(&LIBRARY);
    let wanted = |section| named.is_empty() || named.contains(&section);
    if wanted("connections") {
        connections::measure(rounds);
    }
    if wanted("memory") {
        memory::measure();
    }
    if wanted("rnr") {
        rnr::measure();
    }
    if wanted("streams") {
        streams::measure(rounds);
    }
}
