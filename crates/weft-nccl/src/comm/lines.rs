//! The copy of a message whose buffer a GPU reads while it arrives. Under NCCL's protocol LL the reader waits for a flag in each 8
//! bytes, under LL128 for one in the last 8 bytes of each 128; a flag must not be visible before the data that it covers.

use core::sync::atomic::{AtomicU64, Ordering};

/// Size of a line of LL128, bytes. A line of LL, 16 bytes, is a part of it.
const LINE: usize = 128;
/// The words of a line.
const WORDS: usize = LINE / 8;

/// Copies a message of `len` bytes word by word, the last word of each line after all others of it.
///
/// # Safety
/// `to` and `from` have `len` bytes and do not overlap, and nothing writes to either meanwhile.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if !(from as usize).is_multiple_of(8) || !(to as usize).is_multiple_of(8) {
        // Not a buffer of either protocol, whose lines are aligned.
        // SAFETY: guaranteed by the caller.
        return unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
    }
    let words = len / 8;
    for word in 0..words {
        // A flag's store is ordered after the stores before it.
        let order = if word % WORDS == WORDS - 1 { Ordering::Release } else { Ordering::Relaxed };
        // SAFETY: the word lies in both ranges, which are aligned.
        unsafe {
            let value = from.cast::<u64>().add(word).read();
            AtomicU64::from_ptr(to.cast::<u64>().add(word)).store(value, order);
        }
    }
    // SAFETY: the rest lies in both ranges.
    unsafe { core::ptr::copy_nonoverlapping(from.add(words * 8), to.add(words * 8), len % 8) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let from: Vec<u8> = (0..=255_u8).cycle().take(1_000).collect();
        for start in 0..9 {
            for len in [0, 1, 7, 8, 9, 127, 128, 129, 640, 700] {
                let mut to = vec![0xee; 1_000];
                // SAFETY: both have room, and are different.
                unsafe { copy(from.as_ptr().add(start), to.as_mut_ptr().add(start), len) };
                assert_eq!(to[start..start + len], from[start..start + len], "{start}, {len}");
                assert!(
                    to[..start].iter().chain(&to[start + len..]).all(|&byte| byte == 0xee),
                    "{start}, {len}"
                );
            }
        }
    }
}
