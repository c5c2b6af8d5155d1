//! What a process with an engine inside does last. Hardware goes on acknowledging when a program has ended; an engine inside of it
//! does not, so the program's end waits until peers have had their chance to hear.

use std::sync::Once;
use std::sync::atomic::Ordering;

use weft_units::Duration;

use super::{CURRENT, Engine};

/// How long peers have at most: a lost packet is repeated several times in it.
const LINGER: Duration = Duration::from_millis(50);

static REGISTER: Once = Once::new();

/// Sees to it that the process ends so.
pub(super) fn watch() {
    // SAFETY: a function of this library, which is never unloaded.
    REGISTER.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

/// Runs when the program has returned from `main` or called `exit`.
extern "C" fn at_exit() {
    // SAFETY: null, or an engine that is never freed.
    let current = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    let Some(Engine::Embedded(engine)) = current else { return };
    let _ = std::panic::catch_unwind(|| {
        // Another thread of the program may be ended in the middle of a verb: nothing waits for it.
        let Ok(mut host) = engine.host.try_lock() else { return };
        host.end(LINGER);
    });
}
