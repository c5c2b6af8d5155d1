//! A child of `fork` has none of its parent's threads, and the parent goes on using the queues they both see.
//! So the parent's engine is not the child's: verbs on what it inherited fail with EIO, and a device that
//! the child opens gets an engine, and a port, of its own.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::{ptr, sync::Once};

use super::CURRENT;

/// Descriptors that a child lets go of.
const MOST: usize = 64;

static FORKS: AtomicU32 = AtomicU32::new(0);
static DESCRIPTORS: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REGISTER: Once = Once::new();

/// In which process this is: how many forks led here.
pub(super) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Sees to it that children leave the engine with these descriptors alone.
pub(super) fn watch(descriptors: &[RawFd]) {
    let count = descriptors.len().min(MOST);
    descriptors.iter().zip(&DESCRIPTORS).for_each(|(&fd, slot)| slot.store(fd, Ordering::Relaxed));
    COUNT.store(count, Ordering::Release);
    // SAFETY: the handler touches atomics and closes descriptors, which is allowed after a fork.
    REGISTER.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Runs in the child before `fork` returns there.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    CURRENT.store(ptr::null_mut(), Ordering::Release);
    for slot in &DESCRIPTORS[..COUNT.swap(0, Ordering::Acquire)] {
        // SAFETY: a descriptor of the parent's engine, which nobody uses here.
        unsafe { libc::close(slot.load(Ordering::Relaxed)) };
    }
}
