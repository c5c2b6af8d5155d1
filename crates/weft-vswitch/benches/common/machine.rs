//! The processor time of the machine, and counters of a namespace's kernel.

use std::time::{Duration, Instant};
use std::{fs, thread};

/// Returns the seconds that all processors were busy since the machine started.
pub(crate) fn busy_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").expect("Linux");
    let line = text.lines().next().expect("the sum of all processors");
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let idle = ticks[3] + ticks[4];
    (ticks[..8].iter().sum::<f64>() - idle) / 100.0
}

/// Returns the number of TCP segments that the kernel of a namespace retransmitted.
pub(crate) fn retransmitted(namespace: &str) -> u64 {
    let text = weft_lab::enter(namespace, || fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.expect("a namespace of the trial").expect("Linux");
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = rows.next().expect("a heading").split_whitespace();
    let values = rows.next().expect("its values").split_whitespace();
    let found = names.zip(values).find(|(name, _)| *name == "RetransSegs").expect("counted");
    found.1.parse().expect("a number")
}

/// Returns the share of time, in percent, that programs which only read the clock, one per processor, spend in
/// pauses longer than each of `longer`: the time that the machine takes from every program.
pub(crate) fn pauses<const N: usize>(span: Duration, longer: [Duration; N]) -> [f64; N] {
    let processors = thread::available_parallelism().expect("Linux").get();
    let watch = move || {
        let (began, mut last, mut lost) = (Instant::now(), Instant::now(), [Duration::ZERO; N]);
        while last.duration_since(began) < span {
            let pause = last.elapsed();
            last += pause;
            for (lost, longer) in lost.iter_mut().zip(longer) {
                *lost += if pause > longer { pause } else { Duration::ZERO };
            }
        }
        lost
    };
    let watching: Vec<_> = (0..processors).map(|_| thread::spawn(watch)).collect();
    let mut shares = [0.0; N];
    for thread in watching {
        for (share, lost) in shares.iter_mut().zip(thread.join().expect("it does not panic")) {
            *share += lost.as_secs_f64() * 100.0 / span.as_secs_f64() / processors as f64;
        }
    }
    shares
}
