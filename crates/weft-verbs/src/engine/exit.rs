//! The last actions of a process with an embedded engine. Hardware continues to acknowledge after a program has ended;
//! an embedded engine does not, so the program's exit waits until peers have had time to receive the last messages.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, Once, TryLockError};
use std::thread;

use weft_udp::Clock;
use weft_units::{Duration, Instant};

use super::{Engine, Host, current};

/// The maximum time for peers: a lost packet is retransmitted several times in it.
const LINGER: Duration = Duration::from_millis(50);

static REGISTER: Once = Once::new();

/// Registers the exit handler.
pub(super) fn watch() {
    // SAFETY: this is a function of this library, which is never unloaded.
    REGISTER.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

/// Runs when the program has returned from `main` or called `exit`.
extern "C" fn at_exit() {
    let current = current::get();
    let Some(Engine::Embedded(engine)) = current.as_deref() else { return };
    let _ = std::panic::catch_unwind(|| {
        let until = Clock.now() + LINGER;
        // Threads that poll without a pause would take the lock again before this one is scheduled.
        engine.exits.store(true, Ordering::Relaxed);
        engine.wanted.fetch_add(1, Ordering::Relaxed);
        let host = lock(&engine.host, until);
        engine.wanted.fetch_sub(1, Ordering::Relaxed);
        engine.exits.store(false, Ordering::Relaxed);
        if let Some(mut host) = host {
            host.end(until.since(Clock.now()));
        }
    });
}

/// Locks the device, or returns `None` at `until`: a thread may have called `exit` or been ended in the middle of a verb.
fn lock(host: &Mutex<Host>, until: Instant) -> Option<MutexGuard<'_, Host>> {
    loop {
        match host.try_lock() {
            Ok(host) => return Some(host),
            Err(TryLockError::WouldBlock) if Clock.now() < until => thread::yield_now(),
            Err(_) => return None,
        }
    }
}
