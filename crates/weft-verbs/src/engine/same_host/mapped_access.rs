//! Executes a request in mapped memory of a neighbour, without a system call.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use weft_rnic::{LeasedAccess, Source};

/// Maximum length of a copy by words, bytes: the call of another function takes longer than the copy.
const MAX_BY_WORDS: usize = 256;

/// Copies a request's bytes to or from `there`. Aligned words of eight bytes are stored whole, and the last word of a
/// WRITE last, because programs wait for it. Returns `false` if the request has no bytes of its own.
///
/// # Safety
/// The request's length is accessible from `there`, and its own memory is registered memory of this process.
#[inline]
pub(super) unsafe fn execute(there: *mut u8, request: &LeasedAccess<'_>) -> bool {
    let len = request.length as usize;
    let piece = |address: u64, len: u32| {
        let address = usize::try_from(address).expect("64-bit addresses");
        (core::ptr::with_exposed_provenance_mut::<u8>(address), len as usize)
    };
    // SAFETY: guaranteed by the caller; the pieces are the request's.
    unsafe {
        match request.local {
            Source::Memory([only]) if request.writes => {
                write(there, len, [piece(only.address, only.len)]);
            }
            Source::Memory(places) if request.writes => {
                write(there, len, places.iter().map(|place| piece(place.address, place.len)));
            }
            Source::Memory(places) => {
                read(there, len, places.iter().map(|place| piece(place.address, place.len)));
            }
            Source::Inline(bytes) if request.writes => {
                write(there, len, [(bytes.as_ptr().cast_mut(), bytes.len())]);
            }
            Source::Inline(_) | Source::Anything => return false,
        }
    }
    true
}

/// Copies pieces to `to`, `len` bytes in all, with the last word last.
#[inline]
unsafe fn write(to: *mut u8, len: usize, pieces: impl IntoIterator<Item = (*mut u8, usize)>) {
    let width = last_width(to.addr() + len, len);
    let front = len - width;
    let (mut at, mut last) = (0, [0_u8; 8]);
    for (from, size) in pieces {
        let size = size.min(len - at);
        let before = size.min(front.saturating_sub(at));
        // SAFETY: the piece has `size` bytes, `at + size` is at most `len`, and at most `width` bytes are behind `front`.
        unsafe {
            copy(from, to.add(at), before);
            let behind = last.as_mut_ptr().add((at + before).saturating_sub(front));
            (before..size).for_each(|index| {
                behind.add(index - before).write(from.add(index).read());
            });
        }
        at += size;
    }
    // SAFETY: `width` bytes from there are accessible, and aligned by the choice of `width`.
    unsafe {
        let end = to.add(front);
        let [a, b, c, d, ..] = last;
        match width {
            8 => AtomicU64::from_ptr(end.cast()).store(u64::from_ne_bytes(last), Ordering::Release),
            4 => AtomicU32::from_ptr(end.cast())
                .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release),
            2 => {
                AtomicU16::from_ptr(end.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Release)
            }
            1 => AtomicU8::from_ptr(end).store(a, Ordering::Release),
            _ => {}
        }
    }
}

/// Returns the bytes of the last store: of the longest word that ends at `end` and has at most `len` bytes.
#[inline]
const fn last_width(end: usize, len: usize) -> usize {
    let aligned = 1 << if end.trailing_zeros() < 3 { end.trailing_zeros() } else { 3 };
    match len {
        0 => 0,
        8.. => aligned,
        len => {
            let longest = 1 << len.ilog2();
            if aligned < longest { aligned } else { longest }
        }
    }
}

/// Copies `len` bytes from `from` to pieces.
#[inline]
unsafe fn read(from: *mut u8, len: usize, pieces: impl IntoIterator<Item = (*mut u8, usize)>) {
    let mut at = 0;
    for (to, size) in pieces {
        let size = size.min(len - at);
        // SAFETY: the piece has `size` bytes, and `at + size` is at most `len`.
        unsafe { copy(from.add(at), to, size) };
        at += size;
    }
}

/// Copies bytes, aligned words whole.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len > MAX_BY_WORDS || !to.cast::<u64>().is_aligned() {
        // SAFETY: guaranteed by the caller; one of both is a mapping that only this library has. The copy is made of
        // vectors, which store an aligned word whole.
        return unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
    }
    let words = len & !7;
    for at in (0..words).step_by(8) {
        // SAFETY: `at + 8` is at most `len`, and `to` is aligned.
        unsafe {
            let word = from.add(at).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(to.add(at).cast()).store(word, Ordering::Relaxed);
        }
    }
    for at in words..len {
        // SAFETY: `at` is less than `len`.
        unsafe { to.add(at).write(from.add(at).read()) };
    }
}

#[cfg(test)]
mod tests {
    use weft_rnic::{LeaseId, Place};
    use weft_transport::LinkId;

    use super::*;
    use crate::engine::OWNER;

    fn place(bytes: &mut [u8]) -> Place {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        Place { owner: OWNER, address, len: u32::try_from(bytes.len()).unwrap() }
    }

    /// Executes a request of this length in `there`.
    fn execute_in(there: &mut [u8], writes: bool, length: usize, local: Source<'_>) -> bool {
        let lease = LeaseId { link: LinkId(0), number: 0 };
        let length = u32::try_from(length).unwrap();
        let request = LeasedAccess { lease, address: 0, length, writes, local };
        // SAFETY: both are memory of this test.
        unsafe { execute(there.as_mut_ptr(), &request) }
    }

    /// Every length and alignment, in one piece and in several.
    #[test]
    fn bytes_are_copied_in_both_directions_at_every_alignment() {
        let source: Vec<u8> = (0..700).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
        let lengths = (1..40).chain([255, 256, 257, 264, 265, 300, 600]);
        for (length, skip) in lengths.flat_map(|length| (0..9).map(move |skip| (length, skip))) {
            for cuts in [vec![length], vec![1, length], vec![3, 7, length]] {
                let (mut local, mut there) = (source.clone(), vec![0; 720]);
                let (mut places, mut from) = (Vec::new(), 5);
                for end in cuts.iter().map(|&cut| cut.min(length) + 5) {
                    places.push(place(&mut local[from..end]));
                    from = end;
                }
                let memory = Source::Memory(&places);
                assert!(execute_in(&mut there[skip..], true, length, memory));
                assert_eq!(there[skip..skip + length], source[5..length + 5], "{length} {cuts:?}");
                let outside = there[..skip].iter().chain(&there[skip + length..]);
                assert!(outside.copied().all(|byte| byte == 0), "{length} at {skip} {cuts:?}");
                there[skip..skip + length].fill(9);
                assert!(execute_in(&mut there[skip..], false, length, memory));
                assert!(local[5..length + 5].iter().all(|&byte| byte == 9));
                assert_eq!(local[..5], source[..5]);
                assert_eq!(local[length + 5..], source[length + 5..]);
            }
        }
        let mut there = [0; 16];
        assert!(execute_in(&mut there[4..], true, 6, Source::Inline(b"inline")));
        assert_eq!(&there[4..10], b"inline");
        assert!(!execute_in(&mut there, false, 6, Source::Inline(b"inline")));
        assert!(!execute_in(&mut there, true, 6, Source::Anything));
    }

    #[test]
    fn the_last_store_is_the_longest_aligned_word() {
        let cases = [
            ((64, 8), 8),
            ((64, 1000), 8),
            ((64, 7), 4),
            ((64, 3), 2),
            ((64, 1), 1),
            ((68, 8), 4),
            ((66, 8), 2),
            ((67, 8), 1),
            ((64, 0), 0),
        ];
        for ((end, len), width) in cases {
            assert_eq!(last_width(end, len), width, "{len} bytes before {end}");
        }
    }

    /// A reader never finds a part of a word that is written, nor a last word before the others.
    #[test]
    fn aligned_words_are_written_whole_and_the_last_one_last() {
        const WORDS: usize = 9;
        let there: [AtomicU64; WORDS] = Default::default();
        let end = there.as_ptr().expose_provenance();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..20_000_u64 {
                    let word = round.wrapping_mul(0x0101_0101_0101_0101);
                    let mut bytes = [word; WORDS].map(u64::to_ne_bytes).concat();
                    let places = [place(&mut bytes)];
                    let lease = LeaseId { link: LinkId(0), number: 0 };
                    let length = u32::try_from(bytes.len()).unwrap();
                    let local = Source::Memory(&places);
                    let request = LeasedAccess { lease, address: 0, length, writes: true, local };
                    let to = core::ptr::with_exposed_provenance_mut(end);
                    // SAFETY: the words outlive the thread.
                    assert!(unsafe { execute(to, &request) });
                }
            });
            let last = 19_999_u64.wrapping_mul(0x0101_0101_0101_0101);
            loop {
                let found = there[WORDS - 1].load(Ordering::Acquire);
                let round_of = |word: u64| {
                    let round = (1..20_000)
                        .find(|round: &u64| round.wrapping_mul(0x0101_0101_0101_0101) == word);
                    round.or_else(|| (word == 0).then_some(0)).expect("the word is whole")
                };
                let before = round_of(found);
                let first = there[0].load(Ordering::Relaxed);
                assert!(round_of(first) >= before, "the last word precedes the first");
                if found == last {
                    return;
                }
            }
        });
    }
}
