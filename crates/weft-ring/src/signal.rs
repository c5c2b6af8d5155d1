//! A flag by which a sleeper asks to be woken. Who falls asleep sets it, then looks a last time for what there is to do; who
//! brings something looks at the flag afterwards. One of them sees the other: each has a fence between its store and its
//! load (Dekker's pattern).

use core::sync::atomic::Ordering;

use crate::memory::{Memory, Word};

/// Asks for a signal. What was brought before comes without one: look for it now.
#[inline]
pub fn ask<M: Memory>(flag: &M::Word) {
    flag.store(1, Ordering::Relaxed);
    // The flag is seen before what is looked for now is.
    M::fence(Ordering::SeqCst);
}

/// Returns whether a signal is asked for, for what was brought before this call. The flag is clear afterwards, so that one
/// signal is given.
#[inline]
pub fn is_asked<M: Memory>(flag: &M::Word) -> bool {
    // What was brought is seen before the flag is looked at.
    M::fence(Ordering::SeqCst);
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0
}

/// Withdraws the question. Returns whether nobody has answered it: otherwise a signal was given, or will be.
#[inline]
pub fn withdraw<M: Memory>(flag: &M::Word) -> bool {
    flag.swap(0, Ordering::SeqCst) != 0
}
