//! What programs wait for: events in a queue, and a descriptor that is readable while there are any.

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
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn open() -> io::Result<Self> {
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

    /// Drops the events that nobody may hear of any more.
    pub(crate) fn forget(&self, about: impl Fn(&T) -> bool) {
        let mut entries = self.entries();
        let before = entries.len();
        entries.retain(|event| !about(event));
        (entries.len()..before).for_each(|_| self.discount());
    }
}

/// Events of one object that a program has taken, and those it says it is done with. The object is not
/// destroyed before they are as many (`ibv_ack_cq_events(3)`).
#[derive(Debug, Default)]
pub(crate) struct Taken {
    open: Mutex<u64>,
    done: Condvar,
}

impl Taken {
    fn open(&self) -> MutexGuard<'_, u64> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self) {
        *self.open() += 1;
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let mut open = self.open();
        *open = open.saturating_sub(events.into());
        self.done.notify_all();
    }

    pub(crate) fn wait_until_done(&self) {
        let open = self.open();
        let _done = self.done.wait_while(open, |open| *open > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::fs::fcntl_setfl;

    use super::*;

    #[test]
    fn the_descriptor_counts_what_waits() {
        let queue = EventQueue::open().unwrap();
        fcntl_setfl(&queue.count, OFlags::NONBLOCK).unwrap();
        let nothing = |queue: &EventQueue<u32>| {
            queue.wait().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(nothing(&queue));
        (0..4).for_each(|event| queue.push(event));
        queue.forget(|&event| event < 2);
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
        let taken = Arc::new(Taken::default());
        (0..3).for_each(|_| taken.take());
        let other = std::thread::spawn({
            let taken = taken.clone();
            move || (0..3).for_each(|_| taken.acknowledge(1))
        });
        taken.wait_until_done();
        assert_eq!(*taken.open(), 0);
        other.join().unwrap();
    }
}
