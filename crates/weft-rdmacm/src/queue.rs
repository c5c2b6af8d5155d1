//! What programs wait for: events in a queue, and a descriptor that is readable while there are any.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::errno::Outcome;

/// Events in order. The descriptor counts them, so programs may wait with `poll(2)`, and make it
/// non-blocking with `fcntl(2)`.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: Mutex<VecDeque<T>>,
    count: OwnedFd,
}

impl<T> Queue<T> {
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn open() -> Outcome<Self> {
        let count = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Self { entries: Mutex::default(), count })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.count.as_raw_fd()
    }

    /// Nothing that is done under this lock can fail half-way.
    fn entries(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: T) {
        let mut entries = self.entries();
        // An event that cannot be counted would never be read.
        if rustix::io::write(&self.count, &1_u64.to_ne_bytes()).is_ok() {
            entries.push_back(event);
        }
    }

    /// Takes an event out of the count, which is not zero: this never waits.
    fn discount(&self) {
        let _ = rustix::io::read(&self.count, &mut [0; 8]);
    }

    /// The next event; waits for it unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// `EAGAIN` if there is none and it is non-blocking; `EINTR`.
    pub(crate) fn wait(&self) -> Outcome<T> {
        loop {
            let mut entries = self.entries();
            if let Some(event) = entries.pop_front() {
                self.discount();
                return Ok(event);
            }
            drop(entries);
            if fcntl_getfl(&self.count)?.contains(OFlags::NONBLOCK) {
                return Err(rustix::io::Errno::AGAIN.into());
            }
            poll(&mut [PollFd::new(&self.count, PollFlags::IN)], None)?;
        }
    }

    /// Takes out the events that fit, in order.
    pub(crate) fn take(&self, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let mut entries = self.entries();
        let (taken, kept): (Vec<_>, Vec<_>) = entries.drain(..).partition(fits);
        entries.extend(kept);
        taken.iter().for_each(|_| self.discount());
        taken
    }
}

/// Events about one object that are in a queue or with the program. The object is not destroyed before
/// there are none (`rdma_ack_cm_event(3)`).
#[derive(Debug, Default)]
pub(crate) struct Open {
    events: Mutex<u64>,
    none: Condvar,
}

impl Open {
    fn events(&self) -> MutexGuard<'_, u64> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self) {
        *self.events() += 1;
    }

    pub(crate) fn remove(&self) {
        let mut events = self.events();
        *events = events.saturating_sub(1);
        // Under the lock: who waits may destroy this as soon as it is let go.
        self.none.notify_all();
    }

    pub(crate) fn wait_for_none(&self) {
        let events = self.events();
        let _none = self.none.wait_while(events, |events| *events > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::fs::fcntl_setfl;

    use super::*;
    use crate::errno::Errno;

    #[test]
    fn the_descriptor_counts_what_waits() {
        let queue = Queue::open().unwrap();
        fcntl_setfl(&queue.count, OFlags::NONBLOCK).unwrap();
        assert_eq!(queue.wait(), Err::<u32, _>(Errno(libc::EAGAIN)));
        (0..4).for_each(|event| queue.push(event));
        assert_eq!(queue.take(|&event| event < 2), [0, 1]);
        assert_eq!((queue.wait().unwrap(), queue.wait().unwrap()), (2, 3));
        let mut watched = [PollFd::new(&queue.count, PollFlags::IN)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut watched, Some(&at_once)), Ok(0));
    }

    #[test]
    fn who_waits_is_woken() {
        let (queue, open) = (Arc::new(Queue::open().unwrap()), Arc::new(Open::default()));
        open.add();
        let waiter = std::thread::spawn({
            let (queue, open) = (queue.clone(), open.clone());
            move || {
                let event = queue.wait().unwrap();
                open.remove();
                event
            }
        });
        queue.push(7);
        open.wait_for_none();
        assert_eq!(waiter.join().unwrap(), 7);
    }
}
