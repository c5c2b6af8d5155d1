//! Events that programs wait for: a queue, and a descriptor that is readable while the queue is not empty.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl};

/// Events in order. The descriptor counts them, so programs may wait with `poll(2)`, and make it
/// non-blocking with `fcntl(2)`.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    entries: Mutex<VecDeque<T>>,
    count: OwnedFd,
}

impl<T> EventQueue<T> {
    /// Opens a queue.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn open() -> io::Result<Self> {
        let count = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Self { entries: Mutex::default(), count })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.count.as_raw_fd()
    }

    /// Locks the entries. No operation under this lock can fail half-way.
    fn entries(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: T) {
        let mut entries = self.entries();
        // An event that the descriptor does not count would never be read.
        if rustix::io::write(&self.count, &1_u64.to_ne_bytes()).is_ok() {
            entries.push_back(event);
        }
    }

    /// Subtracts an event from the count, which is not zero, so this never blocks.
    fn discount(&self) {
        let _ = rustix::io::read(&self.count, &mut [0; 8]);
    }

    /// Returns the next event; waits for it unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// `EAGAIN` if the queue is empty and the descriptor non-blocking; `EINTR`.
    pub(crate) fn wait(&self) -> io::Result<T> {
        loop {
            let mut entries = self.entries();
            if let Some(event) = entries.pop_front() {
                self.discount();
                return Ok(event);
            }
            drop(entries);
            if fcntl_getfl(&self.count)?.contains(OFlags::NONBLOCK) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            poll(&mut [PollFd::new(&self.count, PollFlags::IN)], None)?;
        }
    }

    /// Removes and returns the events for which `matches` returns `true`, in order. The callers are objects that are
    /// destroyed or move to another queue.
    pub(crate) fn take(&self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let mut entries = self.entries();
        let (taken, kept): (Vec<_>, Vec<_>) = entries.drain(..).partition(matches);
        entries.extend(kept);
        taken.iter().for_each(|_| self.discount());
        taken
    }
}

/// Number of an object's events that the program has not acknowledged. The object is not destroyed before it is zero
/// (`ibv_ack_cq_events(3)`, `rdma_ack_cm_event(3)`).
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

    pub(crate) fn close(&self, count: u32) {
        let mut events = self.events();
        *events = events.saturating_sub(count.into());
        // Under the lock: the waiting thread may destroy this as soon as the lock is released.
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

    #[test]
    fn the_descriptor_counts_the_queued_events() {
        let queue = EventQueue::open().unwrap();
        fcntl_setfl(&queue.count, OFlags::NONBLOCK).unwrap();
        let nothing = |queue: &EventQueue<u32>| {
            queue.wait().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(nothing(&queue));
        (0..4).for_each(|event| queue.push(event));
        assert_eq!(queue.take(|&event| event < 2), [0, 1]);
        assert_eq!((queue.wait().unwrap(), queue.wait().unwrap()), (2, 3));
        assert!(nothing(&queue));
        let mut watched = [PollFd::new(&queue.count, PollFlags::IN)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut watched, Some(&at_once)), Ok(0));
    }

    #[test]
    fn a_thread_that_waits_gets_its_event() {
        let queue = Arc::new(EventQueue::open().unwrap());
        let waiter = std::thread::spawn({
            let queue = queue.clone();
            move || queue.wait().unwrap()
        });
        queue.push(7);
        assert_eq!(waiter.join().unwrap(), 7);
    }

    #[test]
    fn destruction_waits_for_acknowledgements() {
        let open = Arc::new(Open::default());
        (0..3).for_each(|_| open.add());
        let other = std::thread::spawn({
            let open = open.clone();
            move || (0..3).for_each(|_| open.close(1))
        });
        open.wait_for_none();
        assert_eq!(*open.events(), 0);
        other.join().unwrap();
    }
}
