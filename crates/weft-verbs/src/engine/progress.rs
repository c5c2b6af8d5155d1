//! The thread that runs the engine when no call of the program does: it answers peers, retransmits lost packets and
//! detects dead peers while the program computes, sleeps or waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use weft_udp::wait::{sharpen_timers, timespec};
use weft_udp::{Clock, SocketSet as _};
use weft_units::{Duration, Instant};

use super::pace::Evaluator;
use super::{Embedded, Engine, NEVER};
use crate::errno::{Errno, Outcome};
use crate::thread;

/// The maximum sleep of the thread.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// The interval at which full sockets are retried.
const UNTIL_ROOM: Duration = Duration::from_micros(200);

/// The maximum time between checks of the device while the thread naps.
const MAX_NAPS: Duration = Duration::from_millis(10);

/// The time for which the thread yields to a thread of the program that waits for the device.
const YIELD_TIME: Duration = Duration::from_micros(50);

/// Starts the thread. It never ends.
pub(super) fn start(engine: Arc<Engine>) -> Outcome<()> {
    let run = move || {
        if let Engine::Embedded(embedded) = &*engine {
            run(embedded);
        }
    };
    thread::spawn(run).map_err(|error| Errno::from_io(&error))
}

fn run(engine: &Embedded) {
    sharpen_timers();
    ask_for_short_slices();
    // A panic poisons the engine's lock: from then on each verb fails with EIO.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let mut evaluator = Evaluator::default();
        while let Some(mut sleep) = turn(engine, &mut evaluator) {
            let evaluate_by = Clock.now() + MAX_NAPS;
            let mut called = rest(engine, &sleep);
            while sleep.nap && !called && nap_on(engine, &mut evaluator, evaluate_by, &mut sleep) {
                called = rest(engine, &sleep);
            }
            if called && sleep.ignores_packets {
                // The program is about to wait.
                evaluator.forget();
            }
        }
    }));
}

/// Returns `true` if the program still does the work, so that the thread continues to nap. It does not lock the device
/// for this: the program holds it most of the time, and would have to release it.
fn nap_on(
    engine: &Embedded,
    evaluator: &mut Evaluator,
    evaluate_by: Instant,
    sleep: &mut Sleep,
) -> bool {
    let now = Clock.now();
    let nap = evaluator.nap(&engine.pace, now, work_of_others).filter(|_| now < evaluate_by);
    if let Some(nap) = nap {
        sleep.until = now + nap;
        engine.pace.sleep(sleep.until, sleep.ignores_packets);
    }
    nap.is_some()
}

/// The next sleep of the thread.
struct Sleep {
    until: Instant,
    /// `true` if packets do not wake it: the program handles them.
    ignores_packets: bool,
    /// `true` if the program does the work.
    nap: bool,
}

/// Runs turns until there is no work; returns `None` when the engine panicked.
fn turn(engine: &Embedded, evaluator: &mut Evaluator) -> Option<Sleep> {
    let mut worked = false;
    loop {
        let mut host = engine.host.lock().ok()?;
        host.neighbours.wake_up();
        let now = host.now();
        host.show(now);
        let nap = evaluator.nap(&engine.pace, now, work_of_others);
        let sleep = if let Some(nap) = nap {
            Sleep { until: now + nap, ignores_packets: true, nap: true }
        } else if !host.turn_and_deliver(now) {
            if !worked {
                evaluator.woke_without_work(&engine.pace, now);
            }
            let full = host.driver.sockets.waiting() > 0 || host.neighbours.is_full();
            let longest = if full { UNTIL_ROOM } else { MAX_SLEEP };
            let due = host.next_due().into_iter().chain(host.next_show()).min().unwrap_or(NEVER);
            let until = due.min(host.now() + longest);
            if !host.neighbours.fall_asleep() {
                continue;
            }
            Sleep { until, ignores_packets: false, nap: false }
        } else {
            evaluator.woke_with_work();
            worked = true;
            if engine.wanted.load(Ordering::Relaxed) == 0 {
                continue;
            }
            Sleep { until: host.now() + YIELD_TIME, ignores_packets: true, nap: false }
        };
        engine.pace.sleep(sleep.until, sleep.ignores_packets);
        return Some(sleep);
    }
}

/// Returns the processor time of this process without this thread.
fn work_of_others() -> Duration {
    let [all, own] = [ClockId::ProcessCPUTime, ClockId::ThreadCPUTime].map(|clock| {
        let spent = clock_gettime(clock);
        let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
        Duration::from_nanos(seconds * 1_000_000_000 + u64::try_from(spent.tv_nsec).unwrap_or(0))
    });
    Duration::from_nanos(all.as_nanos().saturating_sub(own.as_nanos()))
}

/// Sleeps until there may be work. Returns `true` if the program woke the thread.
fn rest(engine: &Embedded, sleep: &Sleep) -> bool {
    let mut watched = [&engine.kick, &engine.arrivals].map(|fd| PollFd::new(fd, PollFlags::IN));
    let polled = if sleep.ignores_packets { 1 } else { 2 };
    let span = sleep.until.since(Clock.now());
    // An interrupted or failed poll counts as a short one.
    let _ = poll(&mut watched[..polled], Some(&timespec(span)));
    engine.pace.awake();
    rustix::io::read(&engine.kick, &mut [0; 8]).is_ok()
}

/// Asks the scheduler to run this thread soon and briefly (Linux 6.12, sched_setattr(2)): otherwise the program,
/// computing or watching its memory on every processor, would keep its processor for milliseconds. Older kernels refuse
/// or ignore it.
pub(super) fn ask_for_short_slices() {
    /// `struct sched_attr`.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const MIN_SLICE: u64 = 100_000;
    let size = u32::try_from(size_of::<Attributes>()).expect("a small structure");
    // SAFETY: the kernel reads the number of bytes that the structure states.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        let (policy, flags, priority, deadline, period) = (0, 0, 0, 0, 0);
        let runtime = MIN_SLICE;
        let wanted = Attributes { size, policy, flags, nice, priority, runtime, deadline, period };
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0);
    }
}
