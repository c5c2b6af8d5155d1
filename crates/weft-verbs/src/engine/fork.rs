//! A child of `fork` has none of its parent's threads, and the parent goes on using the queues they both see.
//! So the parent's engine is not the child's: verbs on what it inherited fail with EIO, and a device that
//! the child opens gets an engine, and a port, of its own.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::{ptr, sync::Once};

use super::CURRENT;

/// Descriptors that a child lets go of: a port that it held would be the parent's for as long as it lives, and
/// who speaks to the parent would not notice its end.
const MOST: usize = 320;

const NONE: i32 = -1;

static FORKS: AtomicU32 = AtomicU32::new(0);
static HELD: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];
static REGISTER: Once = Once::new();

/// In which process this is: how many forks led here.
pub(super) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Sees to it that children leave the engine with these descriptors alone.
pub(super) fn watch(descriptors: &[RawFd]) {
    for &descriptor in descriptors {
        let _ = change(NONE, descriptor);
    }
    // SAFETY: the handler touches atomics and closes descriptors, which is allowed after a fork.
    REGISTER.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Children let go of this socket.
pub(super) fn hold(socket: BorrowedFd<'_>) {
    let _ = change(NONE, socket.as_raw_fd());
}

/// A socket that they let go of is to be closed.
pub(super) fn release(socket: BorrowedFd<'_>) {
    let _ = change(socket.as_raw_fd(), NONE);
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
    CURRENT.store(ptr::null_mut(), Ordering::Release);
    for slot in &HELD {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            // SAFETY: a descriptor of the parent's engine, which nobody uses here.
            unsafe { libc::close(fd) };
        }
    }
}
