//! Thousands of pairs of interfaces through two daemons, over their real sockets and TAP interfaces: every port of
//! one host sends to every port of the other (BIFROST, section 6.3). It measures their memory, set up and idle,
//! while all have frames in flight, and after a rest; the time of set-up, of a round of frames and of a status; and
//! the share that each thread carried. Needs root.
//!
//! `cargo bench -p weft-vswitch --bench connections -- [ports a host] [threads]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

#[path = "common/many_ports.rs"]
mod many_ports;
#[path = "common/name.rs"]
mod name;
#[path = "common/packet.rs"]
mod packet;

use std::fs;
use std::time::{Duration, Instant};

use many_ports::{Tenants, status, trial};

/// Number of pairs that are set up at a time.
const AT_ONCE: usize = 64;

/// Number of frames of each pair in a run.
const ROUNDS: usize = 8;

/// The time without arrivals after which missing frames count as lost.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the resident memory of this process, bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("always there");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

fn print(label: &str, bytes: usize, ends: usize) {
    println!("{label:36} {:9.1} {:9}", bytes as f64 / f64::from(1 << 20), bytes / ends);
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let (ports, threads) = (numbers.next().unwrap_or(60), numbers.next().unwrap_or(1));
    let trial = trial(&name::own(), ports, u8::try_from(threads).expect("at most 64 threads"));
    let (pairs, mut tenants) = (ports * ports, Tenants::new(&trial, ports));
    println!(
        "{pairs} pairs, {ports} ports a host, {threads} threads a host, both hosts in this process"
    );
    println!("{:36} {:>9} {:>9}", "", "MiB", "bytes an end");
    let before = resident();
    print("daemons with ports, nobody speaks", before, 2 * pairs);
    let began = Instant::now();
    for first in (0..pairs).step_by(AT_ONCE) {
        let last = (first + AT_ONCE).min(pairs);
        (first..last).for_each(|pair| tenants.send(pair / ports, pair % ports, 100));
        tenants.wait_for(0, TIMEOUT);
    }
    let set_up = began.elapsed();
    std::thread::sleep(Duration::from_secs(2));
    print("more, set up and idle", resident() - before, 2 * pairs);
    let (began, mut max_resident) = (Instant::now(), 0);
    for _ in 0..ROUNDS {
        for from in 0..ports {
            (0..ports).for_each(|to| tenants.send(from, to, 1400));
        }
        max_resident = max_resident.max(resident());
        // The queue of an interface holds 1,000 frames; the tenants' kernel drops the rest.
        tenants.wait_for(pairs as u64, TIMEOUT);
    }
    let lost = tenants.wait_for(0, TIMEOUT);
    let carried = began.elapsed();
    print("more, all of them active", max_resident.max(resident()) - before, 2 * pairs);
    std::thread::sleep(Duration::from_secs(5));
    print("more, after a rest", resident() - before, 2 * pairs);
    println!("\nset up: {:.1} us a pair", set_up.as_secs_f64() * 1e6 / pairs as f64);
    let frames = (pairs * ROUNDS) as f64;
    println!(
        "{ROUNDS} frames of each, 1,400 bytes: {:.0} a second",
        frames / carried.as_secs_f64()
    );
    println!("frames that did not arrive: {lost}");
    for host in 0..2 {
        let began = Instant::now();
        let status = status(&trial, host);
        println!("host {host}: status in {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
        let plain: u64 = status.ports.iter().map(|port| port.carried.1).sum();
        println!("    frames in plain VXLAN: {plain}");
        for (number, thread) in status.threads.iter().enumerate() {
            println!("    thread {number}: {thread:?}");
        }
        let counted = status.transport.iter().filter(|row| *row.1 > 0);
        println!("    {:?}", counted.collect::<Vec<_>>());
    }
}
