//! Compares messages with bare verbs and with other middleware, all on our device.
//!
//! `cargo bench -p weft-xrdma --bench ping_pong -- [ROUNDS] [one-host] [two-hosts] [count-instructions] [SIZE...B]`
//!
//! Contenders alternate, ROUNDS (5) times for each size. A run's result is half of its median round trip; libfabric's
//! program prints only a mean, so the minimum of five runs is used. The output has the median of the rounds and of
//! their ratios to bare verbs. `two-hosts` needs root for network namespaces.
//! `count-instructions`, which runs only when it is named, needs valgrind.

#[path = "../../../weft-verbs/tests/programs/pair.rs"]
#[expect(dead_code, reason = "it is the tests' of weft-verbs")]
mod pair;
#[path = "../../../weft-verbs/benches/speed/stage.rs"]
mod stage;

mod contenders;
mod end;
mod instructions;
mod library;
mod table;

use contenders::{Contender, contenders};
use pair::{OneHost, Stage};
use stage::Two;

/// Lengths of the messages in bytes: the paper's, and three for messages that the receiver READs.
const SIZES: [u32; 11] = [8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 65_536, 1 << 20];

const SECTIONS: [&str; 3] = ["one-host", "two-hosts", "count-instructions"];

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "end"
    {
        if let Err(error) = end::run(rest) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        return;
    }
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(5);
    let size = |word: &String| word.strip_suffix('B').and_then(|size| size.parse().ok());
    let sizes: Vec<u32> = words.iter().filter_map(size).collect();
    let sizes = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    let named: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| word.contains('-')).collect();
    if rounds == 0 || named.iter().any(|word| !SECTIONS.contains(word)) {
        eprintln!("usage: ping_pong [ROUNDS] [{}] [SIZE]B", SECTIONS.join("] ["));
        std::process::exit(2);
    }
    let wanted = |section| named.is_empty() || named.contains(&section);
    if wanted("one-host") {
        compare("one host", &OneHost, &sizes, rounds);
    }
    if wanted("two-hosts")
        && let Some(two) = Two::up()
    {
        compare("two hosts", &two, &sizes, rounds);
    }
    if named.contains(&"count-instructions") {
        instructions::measure(&sizes);
    }
}

fn compare(place: &str, stage: &impl Stage, sizes: &[u32], rounds: usize) {
    let contenders = contenders();
    for &size in sizes {
        let mut figures = vec![Vec::new(); contenders.len()];
        for round in 0..rounds {
            // The first contender changes, so that other load of the machine affects all equally.
            for turn in 0..contenders.len() {
                let index = (round + turn) % contenders.len();
                figures[index].push(contenders[index].run(stage, size));
            }
        }
        let names: Vec<&str> = contenders.iter().map(Contender::name).collect();
        if place == "one host" {
            table::rows(size, &names, &figures);
        }
        table::print(&format!("{place}, {size} bytes"), &names, &figures);
    }
}
