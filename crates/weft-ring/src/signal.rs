//! A flag by which a sleeper requests a wake-up. The sleeper sets it, then checks a last time for
//! work; a producer adds work, then checks the flag. One of them sees the other: each has a fence
//! between its store and its load (Dekker's pattern).

use core::sync::atomic::Ordering;

use crate::memory::{Memory, Word};

/// Requests a signal for work that is added after this call. Work added before may come without a signal: the caller
/// must check for it after this call.
#[inline]
pub fn arm<M: Memory>(flag: &M::Word) {
    flag.store(1, Ordering::Relaxed);
    // The flag is visible before the check for work.
    M::fence(Ordering::SeqCst);
}

/// Returns `true` if a signal is requested for work added before this call. Clears the flag, so
/// that one signal is given.
#[inline]
pub fn is_armed<M: Memory>(flag: &M::Word) -> bool {
    // The work is visible before the flag is read.
    M::fence(Ordering::SeqCst);
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0
}

/// Withdraws the request. Returns `true` if no producer has answered it; otherwise a signal was
/// given, or will be.
#[inline]
pub fn withdraw<M: Memory>(flag: &M::Word) -> bool {
    flag.swap(0, Ordering::SeqCst) != 0
}
