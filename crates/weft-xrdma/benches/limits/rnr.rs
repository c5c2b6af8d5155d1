//! Measures a receiver that stops polling, with a thousand senders (X-RDMA, section VII.C), and bare verbs for
//! comparison.

use std::path::Path;
use std::process::Command;

use weft_testkit::{figure_row, json};
use weft_xrdma::{Event, Node, Payload};

use crate::LIBRARY;
use crate::end::{End, ask, connect, node};
use crate::figures::micros;

const SENDERS: usize = 1000;
/// Number of messages of each sender, three times its window.
const MESSAGES: usize = 100;
const STOPS_FOR_MS: u64 = 3000;

pub(crate) fn measure() {
    println!(
        "\n{SENDERS} senders of {MESSAGES} messages of 64 bytes each, a receiver with room for 32 of each that \
         looks away for {STOPS_FOR_MS} ms"
    );
    println!(
        "{:<34} {:>8} {:>10} {:>14} {:>12}",
        "", "broken", "delivered", "all after, ms", "senders' CPU"
    );
    channels();
    match compile() {
        Ok(program) => {
            for rnr_retry in [0, 3, 7] {
                bare(&program, rnr_retry);
            }
        }
        Err(error) => println!("bare verbs: {error} (apt-get install libibverbs-dev)"),
    }
}

fn print(who: &str, broken: u64, delivered: u64, took_ms: f64, cpu_s: f64) {
    // No comma, because the docs list these names in sentences.
    let way = who.replace(", rnr", " with rnr");
    let row = json!({ "way": way, "broken": broken, "delivered": delivered });
    figure_row("x-rdma-fig9", &row);
    println!("{who:<34} {broken:>8} {delivered:>10} {took_ms:>14.0} {cpu_s:>10.2} s");
}

/// Measures channels, whose `rnr_retry` is 0: each RNR breaks one.
fn channels() {
    let end = End::start(&[]);
    let mut node = node(&[""; 0]);
    let control = node.connect_and_wait(end.at).expect("it is taken");
    let all = connect(&mut node, &end, SENDERS);
    let before = ask(&mut node, control, &format!("stop={STOPS_FOR_MS}"));
    let (began, cpu) = (node.now(), own_cpu());
    for _ in 0..MESSAGES {
        for &channel in &all {
            let now = node.now();
            node.context().send(now, channel, Payload::Copy(&[7; 64])).expect("it is taken");
        }
        node.poll();
    }
    let mut vitals = ask(&mut node, control, "");
    let most = vitals.most;
    while vitals.came < (SENDERS * MESSAGES) as u64 && vitals.channels > SENDERS as u64 {
        vitals = ask(&mut node, control, "");
    }
    let took = micros(node.now().since(began)) / 1e3;
    print("X-RDMA", broken(&mut node), vitals.came, took, own_cpu() - cpu);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "  the receiver's registered memory: {:.1} MiB before, {:.1} the most after",
        mib(before.registered),
        mib(most)
    );
}

fn broken(node: &mut Node) -> u64 {
    let mut broken = 0;
    while let Some(event) = node.poll_event() {
        broken += u64::from(matches!(event, Event::Channel(weft_msg::Event::Closed { .. })));
    }
    broken
}

fn own_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn compile() -> Result<String, String> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("incast");
    let program = program.to_str().expect("a path of ours").to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limits/incast.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o", &program, source, "-libverbs"]);
    let output = cc.output().map_err(|error| format!("cc: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(program)
}

/// Measures bare queue pairs.
fn bare(program: &str, rnr_retry: u32) {
    let words = [SENDERS, MESSAGES, 32].map(|number| number.to_string());
    let mut command = Command::new("timeout");
    command.args(["60", program]).args(&words);
    command.args([&rnr_retry.to_string(), &STOPS_FOR_MS.to_string()]);
    command.env("LD_LIBRARY_PATH", &*LIBRARY);
    let output = command.output().expect("it runs");
    let [printed, why] =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).trim().to_owned());
    let numbers: Vec<f64> =
        printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [broken, delivered, took_ms, cpu_s] = numbers[..] else {
        return println!("bare verbs, rnr_retry {rnr_retry}: failed: {printed} {why}");
    };
    let who = match rnr_retry {
        7 => "bare verbs, rnr_retry 7 (for ever)".into(),
        _ => format!("bare verbs, rnr_retry {rnr_retry}"),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they are counts")]
    print(&who, broken as u64, delivered as u64, took_ms, cpu_s);
    if !why.is_empty() {
        println!("  {why}");
    }
}
