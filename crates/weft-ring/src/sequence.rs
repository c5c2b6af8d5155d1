//! Words that one writer replaces while readers copy them, all or nothing (a sequence lock; H.-J.
//! Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012). A reader
//! that is overtaken retries; the writer never waits.

use core::sync::atomic::Ordering;

use crate::memory::{Memory, Word};

/// Replaces the long words from offset `first` on, little-endian. `sequence` is the offset of the
/// lock's long word and `last` its value, which is even. Returns the next value.
pub fn publish<M: Memory>(
    memory: &M,
    sequence: usize,
    last: u64,
    first: usize,
    words: &[u64],
) -> u64 {
    let lock = memory.long(sequence);
    lock.store((last + 1).to_le(), Ordering::Relaxed);
    // A reader that sees one of the words below also sees the odd sequence.
    M::fence(Ordering::Release);
    for (index, word) in words.iter().enumerate() {
        memory.long(first + 8 * index).store(word.to_le(), Ordering::Relaxed);
    }
    lock.store((last + 2).to_le(), Ordering::Release);
    last + 2
}

/// Returns the result of `copy`, or `None` if a write overlapped it. `sequence` returns the value of the lock's word.
///
/// # Errors
/// Those of `sequence` and `copy`.
pub fn read<M: Memory, T, E>(
    sequence: impl Fn() -> Result<u64, E>,
    copy: impl FnOnce() -> Result<T, E>,
) -> Result<Option<T>, E> {
    let before = sequence()?;
    M::fence(Ordering::Acquire);
    let copied = copy()?;
    M::fence(Ordering::Acquire);
    let whole = before.is_multiple_of(2) && sequence()? == before;
    Ok(whole.then_some(copied))
}
