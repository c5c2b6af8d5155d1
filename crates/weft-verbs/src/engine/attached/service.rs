//! The thread that waits for the daemon while the program waits for events, and detects the daemon's end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, poll};

use weft_units::Duration;

use super::{Attached, State};
use crate::attach::Page;
use crate::engine::{Asynchronous, Engine, fork, timespec};
use crate::errno::{Errno, Outcome};
use crate::thread;
use weft_verbs_abi::event_type;

/// The events of a closed end.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::RDHUP).union(PollFlags::ERR);

/// Returns `true` if an end is closed. A daemon that was kept from closing the socket has closed the signal.
fn is_end(watched: &[PollFd<'_>]) -> bool {
    watched.iter().any(|end| end.revents().intersects(GONE))
}

impl Attached {
    /// Starts the thread of an attached engine. It ends when the daemon does.
    pub(in crate::engine) fn start(engine: Arc<Engine>) -> Outcome<()> {
        let started = thread::spawn(move || {
            let Engine::Attached(attached) = &*engine else { return };
            // A panic poisons the lock: from then on each verb fails with EIO.
            let _ = catch_unwind(AssertUnwindSafe(|| attached.service()));
        });
        started.map_err(|error| Errno::from_io(&error))
    }

    /// Returns `true` if the daemon has ended, whether or not the thread knows it.
    pub(in crate::engine) fn has_ended(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || {
            let mut watched = self.watched();
            // An interrupted call is one without an end.
            let found = poll(&mut watched, Some(&timespec(Duration::ZERO)));
            found.is_ok_and(|found| found > 0) && is_end(&watched)
        }
    }

    /// Returns the descriptors that show a signal or the daemon's end.
    fn watched(&self) -> [PollFd<'_>; 2] {
        [PollFd::new(&self.signal, PollFlags::IN), PollFd::new(&self.socket, GONE)]
    }

    fn service(&self) {
        while self.wait() {
            self.signal.take();
            let Ok(mut state) = self.state.lock() else { return };
            if self.ingest_and_arm(&mut state).is_err() {
                break;
            }
        }
        if let Ok(mut state) = self.state.lock() {
            self.die(&mut state);
        }
        // The daemon has nothing of this process any more. Programs may keep the engine for as long as they live.
        fork::forget(&self.descriptors);
    }

    /// Waits for a signal; returns `false` when the daemon has ended.
    fn wait(&self) -> bool {
        let mut watched = self.watched();
        match poll(&mut watched, None) {
            Ok(_) => !is_end(&watched),
            Err(errno) => errno == rustix::io::Errno::INTR,
        }
    }

    /// Handles all records of the daemon, and sets the signal flag again while the program waits for any event.
    fn ingest_and_arm(&self, state: &mut State) -> Outcome<()> {
        self.ingest_all(state)?;
        if state.queues.any_armed() {
            self.page.ask_for_signal(Page::PROCESS_WAITS);
            self.ingest_all(state)?;
        }
        Ok(())
    }

    /// Handles the daemon's end: its last records still count, all other requests are flushed, and the program gets a
    /// fatal device event.
    fn die(&self, state: &mut State) {
        let _ = self.ingest_all(state);
        self.dead.store(true, Ordering::Relaxed);
        let State { queues, watchers, .. } = state;
        queues.flush().into_iter().for_each(|event| watchers.notify(event));
        for events in watchers.contexts.values() {
            events.push(Asynchronous { kind: event_type::DEVICE_FATAL, object: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::DeviceLimits;
    use crate::{Admin, Daemon, DaemonSettings};

    /// A program may be attached hundreds of times, and children close a limited number of descriptors.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "it waits for a daemon in real time")]
    fn children_keep_the_descriptors_of_an_engine_whose_daemon_has_ended() {
        let path = std::env::temp_dir().join(format!("weft-service-{}.sock", std::process::id()));
        let daemon = Daemon::open(&path, DaemonSettings::default()).unwrap();
        let stopper = daemon.stopper();
        let running = std::thread::spawn(|| daemon.run(|| ()));
        let mut admin = Admin::connect(Some(&path)).unwrap();
        admin.create("a", None, DeviceLimits::default()).unwrap();
        let engine = Arc::new(Engine::Attached(Attached::attach_at(&path, "a").unwrap()));
        let descriptors = engine.descriptors();
        fork::watch(&descriptors);
        Attached::start(engine.clone()).unwrap();
        let held = || descriptors.iter().filter(|&&number| fork::is_held(number)).count();
        assert_eq!(held(), 3);
        stopper.stop();
        running.join().unwrap().unwrap();
        let began = std::time::Instant::now();
        while held() > 0 {
            assert!(began.elapsed().as_secs() < 20, "{} are held", held());
            std::thread::yield_now();
        }
        // The program had objects of it until now.
        drop(engine);
    }
}
