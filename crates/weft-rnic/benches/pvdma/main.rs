//! The start time of a guest with all its memory pinned and with PVDMA (STELLAR, section 5 and figure 6), and the cost of
//! virtual devices (section 4).
//!
//! `cargo bench -p weft-rnic --bench pvdma -- [GIB]` pins 1 GiB, 2 GiB and so on up to GIB (default 4), but at most half of
//! the free memory. It locks memory, so it needs root or `ulimit -l unlimited`.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::time::{Duration, Instant};

use weft_rnic::{BLOCK_BYTES, DmaUser, Pvdma};
use weft_testkit::{figure_row, json};

mod devices;
mod fit;
mod heap;
mod memory;

use fit::Line;
use memory::{GuestMemory, PageSize};

const GIB: u64 = 1 << 30;
const ROUNDS: usize = 3;
/// Bytes that devices use after the start of a guest: regions and queues.
const FIRST_USED: u64 = 256 << 20;
/// Bytes of STELLAR's largest container.
const LARGEST: u64 = 1_600_000_000_000;
/// Its start time in the paper, pinned and with PVDMA, seconds (section 3.1, figure 6).
const PAPER: [f64; 2] = [390.0, 20.0];

fn main() {
    let max_gib = std::env::args().skip(1).find(|argument| argument != "--bench");
    let Ok(max_gib) = max_gib.map_or(Ok(4), |gib| gib.parse::<u64>()) else {
        eprintln!("usage: pvdma [GIB]");
        std::process::exit(2);
    };
    // A line needs two points.
    if let Err(error) = starts(max_gib.max(2) * GIB) {
        eprintln!("cannot lock memory: {error}; as root, or with ulimit -l unlimited, it can");
        std::process::exit(1);
    }
    map_cache();
    devices::measure();
}

/// Measures the start of a guest of each size with all memory pinned, and with PVDMA.
fn starts(max_bytes: u64) -> std::io::Result<()> {
    let max_bytes = max_bytes.min(memory::available()? / 2);
    println!("start of a guest, seconds (quickest of {ROUNDS}; of the processor in brackets)");
    println!("{:>8} {:>20} {:>20} {:>20}", "GiB", "pinned, 4 KiB pages", "2 MiB pages", "PVDMA");
    let mut lines = [Line::default(), Line::default()];
    let mut on_demand = Duration::ZERO;
    for size in (GIB..=max_bytes).step_by(usize::try_from(GIB).expect("64-bit addresses")) {
        let small = quickest(|| start_pinned(size, PageSize::Small))?;
        let huge = quickest(|| start_pinned(size, PageSize::Huge))?;
        let used = quickest(|| start_on_demand(size))?;
        lines[0].add(size, small.processor);
        lines[1].add(size, huge.processor);
        on_demand = on_demand.max(used.processor);
        let gib = size / GIB;
        let took = [small, huge, used].map(|took| took.processor.as_secs_f64());
        rows(&format!("{gib} GiB"), took);
        println!("{gib:>8} {small:>20} {huge:>20} {used:>20}");
    }
    let ([small, huge], on_demand) = (lines.map(|line| line.at(LARGEST)), on_demand.as_secs_f64());
    println!("{:>8} {small:>20.0} {huge:>20.0} {on_demand:>20.3}", "1.6 TB");
    rows("1.6 TB", [small, huge, on_demand]);
    let [pinned, boot] = PAPER;
    println!(
        "  pinned by a straight line through the processor's time, PVDMA as the slowest above:"
    );
    println!(
        "  it is the 256 MiB that are used. The paper: {pinned} s pinned, below {boot} s with PVDMA"
    );
    println!(
        "  with {boot} s for all else PVDMA starts 1.6 TB {:.1} and {:.1} times as fast (paper: 15)",
        (boot + small) / (boot + on_demand),
        (boot + huge) / (boot + on_demand),
    );
    Ok(())
}

/// Reports the rows of the paper's figure for a guest: seconds pinned in pages of 4 KiB and 2 MiB, and with PVDMA; and the
/// speed-up of PVDMA with the paper's time for the rest of the start.
fn rows(guest: &str, took: [f64; 3]) {
    let ways = ["pinned in small pages", "pinned in huge pages", "PVDMA"];
    for (way, seconds) in ways.into_iter().zip(took) {
        let times = (PAPER[1] + seconds) / (PAPER[1] + took[2]);
        let row = json!({ "guest": guest, "way": way, "seconds": seconds, "times": times });
        figure_row("stellar-fig6", &row);
    }
}

/// The duration of a start.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    processor: Duration,
}

impl std::fmt::Display for Took {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.4} ({:.4})", self.wall.as_secs_f64(), self.processor.as_secs_f64());
        out.pad(&text)
    }
}

/// Returns the fastest of several starts, by processor time. Neither the end of the guest nor a first round is
/// measured: on a machine that is a guest itself, the host allocates memory in the first round, which takes three times
/// as long.
fn quickest(start: impl Fn() -> std::io::Result<GuestMemory>) -> std::io::Result<Took> {
    drop(start()?);
    let mut best: Option<Took> = None;
    for _ in 0..ROUNDS {
        let (begun, processor) = (Instant::now(), memory::processor_time());
        let started = start()?;
        let (wall, processor) = (begun.elapsed(), memory::processor_time() - processor);
        drop(started);
        if best.is_none_or(|best| processor < best.processor) {
            best = Some(Took { wall, processor });
        }
    }
    Ok(best.expect("there are rounds"))
}

fn start_pinned(size: u64, pages: PageSize) -> std::io::Result<GuestMemory> {
    let memory = GuestMemory::new(size, pages)?;
    memory.lock(0, size)?;
    Ok(memory)
}

/// Starts with nothing pinned, then pins regions of 8 MiB distributed over the memory, as devices use them.
fn start_on_demand(size: u64) -> std::io::Result<GuestMemory> {
    const REGION: u64 = 8 << 20;
    let mut memory = GuestMemory::new(size, PageSize::Small)?;
    let mut pvdma = Pvdma::new();
    let regions = FIRST_USED / REGION;
    for region in 0..regions {
        let address = size / regions * region / BLOCK_BYTES * BLOCK_BYTES;
        let used = pvdma.dma(DmaUser(region), address, REGION, &mut memory);
        used.map_err(std::io::Error::other)?;
    }
    assert_eq!(pvdma.pinned_bytes(), FIRST_USED);
    Ok(memory)
}

/// Measures a lookup that hits, in a map cache with the blocks of 1 GiB and of 1.6 TB.
fn map_cache() {
    const LOOKUPS: u64 = 1_000_000;
    println!("\nmap cache, nanoseconds a hit");
    for bytes in [GIB, LARGEST / BLOCK_BYTES * BLOCK_BYTES] {
        let mut pvdma = Pvdma::new();
        pvdma.dma(DmaUser(0), 0, bytes, &mut memory::NoPinning).expect("nothing is refused");
        let blocks = bytes / BLOCK_BYTES;
        let begun = Instant::now();
        for lookup in 0..LOOKUPS {
            let block = lookup.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
            let mapped = pvdma.dma(DmaUser(0), block * BLOCK_BYTES, 4096, &mut memory::NoPinning);
            assert_eq!(mapped.map(|mapped| mapped.hits), Ok(1));
        }
        let nanos = begun.elapsed().as_nanos() / u128::from(LOOKUPS);
        println!("{:>12} blocks {nanos:>8}", blocks);
    }
}
