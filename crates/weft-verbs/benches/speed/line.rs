//! The time a cache line takes from one processor to another: programs that communicate through memory wait at least
//! that long, and on a virtual machine it varies over the day.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use weft_udp::Clock;
use weft_units::Duration;

use crate::table::median;

/// A number on its own cache line, whose adjacent line is unused too because processors prefetch pairs.
#[repr(align(128))]
struct Line(AtomicU64);

/// The time of a measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(200);

/// Number of answers between two readings of the clock.
const ANSWERS: u32 = 8;

/// Returns half of the time in which threads on two processors answer each other, nanoseconds, the median of many;
/// `None` on a single processor.
pub(crate) fn one_way_time() -> Option<f64> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
    let [here, there] = [processors.next()?, processors.next()?];
    let [asked, answered] = [const { Line(AtomicU64::new(0)) }; 2];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(there);
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                let number = asked.0.load(Ordering::Acquire);
                if number != last {
                    last = number;
                    answered.0.store(number, Ordering::Release);
                }
            }
        });
        let asking = scope.spawn(|| {
            stay_on(here);
            let (begun, mut number, mut ways) = (Clock.now(), 0, Vec::new());
            while Clock.now().since(begun) < MEASUREMENT_TIME {
                let since = Clock.now();
                for _ in 0..ANSWERS {
                    number += 1;
                    asked.0.store(number, Ordering::Release);
                    while answered.0.load(Ordering::Acquire) != number {
                        std::hint::spin_loop();
                    }
                }
                ways.push(Clock.now().since(since).as_nanos() as f64 / f64::from(2 * ANSWERS));
            }
            over.store(true, Ordering::Relaxed);
            median(ways)
        });
        asking.join().expect("it only counts")
    })
}

/// Pins this thread to one processor.
fn stay_on(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).expect("it was allowed");
}
