//! A child of `fork` has none of its parent's threads, and the parent continues to use the queues they both see. So a
//! child cannot use the parent's engine: verbs on inherited objects fail with EIO, and a device that the child opens
//! gets its own engine and port.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::current;

/// Maximum number of descriptors that a child closes. A child that kept them open would occupy the parent's port for as
/// long as it lives, and hide the parent's end from its peers.
const MAX_HELD: usize = 320;

const NONE: i32 = -1;

static FORKS: AtomicU32 = AtomicU32::new(0);
static HELD: [AtomicI32; MAX_HELD] = [const { AtomicI32::new(NONE) }; MAX_HELD];
static REGISTER: Once = Once::new();

/// Returns the number of forks between the first process and this one.
pub(super) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Makes children close these descriptors and abandon the engine.
pub(super) fn watch(descriptors: &[RawFd]) {
    for &descriptor in descriptors {
        let _ = change(NONE, descriptor);
    }
    // SAFETY: the handler uses atomics and closes descriptors, which is allowed after a fork.
    REGISTER.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Has children keep these descriptors, which are about to be closed: their numbers will be other files'.
pub(super) fn forget(descriptors: &[RawFd]) {
    for &descriptor in descriptors {
        let _ = change(descriptor, NONE);
    }
}

/// Adds a descriptor that children close.
pub(crate) fn hold(descriptor: BorrowedFd<'_>) {
    let _ = change(NONE, descriptor.as_raw_fd());
}

/// Removes a descriptor that is about to be closed: its number will be another file's, which children keep.
pub(crate) fn release(descriptor: BorrowedFd<'_>) {
    let _ = change(descriptor.as_raw_fd(), NONE);
}

/// A descriptor that children close.
#[derive(Debug)]
pub(crate) struct Held(OwnedFd);

impl Held {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        hold(descriptor.as_fd());
        Self(descriptor)
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        release(self.0.as_fd());
    }
}

/// Returns `true` if children close the descriptor with this number.
#[cfg(test)]
pub(crate) fn is_held(descriptor: RawFd) -> bool {
    HELD.iter().any(|slot| slot.load(Ordering::Relaxed) == descriptor)
}

fn change(from: i32, to: i32) -> Option<i32> {
    let set = |slot: &AtomicI32| {
        slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).ok()
    };
    HELD.iter().find_map(set)
}

/// Runs in the child before `fork` returns there.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    current::abandon();
    for slot in &HELD {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            // SAFETY: a descriptor of the parent's engine, which nothing uses here.
            unsafe { libc::close(fd) };
        }
    }
}
