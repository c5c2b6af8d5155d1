//! The thread that waits for the daemon while the program waits for events, and detects the daemon's end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, poll};

use super::{Attached, State};
use crate::attach::Page;
use crate::engine::Asynchronous;
use crate::errno::{Errno, Outcome};
use crate::thread;
use weft_verbs_abi::event_type;

impl Attached {
    /// Starts the thread. It ends when the daemon does.
    pub(in crate::engine) fn start(&'static self) -> Outcome<()> {
        let started = thread::spawn(move || {
            // A panic poisons the lock: from then on each verb fails with EIO.
            let _ = catch_unwind(AssertUnwindSafe(|| self.service()));
        });
        started.map_err(|error| Errno::from_io(&error))
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
    }

    /// Waits for a signal; returns `false` when the daemon has ended.
    fn wait(&self) -> bool {
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        let mut watched =
            [PollFd::new(&self.signal, PollFlags::IN), PollFd::new(&self.socket, gone)];
        match poll(&mut watched, None) {
            Ok(_) => !watched[1].revents().intersects(gone),
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
