//! Another process's memory, read as the kernel lets those read who may trace it (process_vm_readv(2)).

use std::sync::LazyLock;

use super::super::random;
use super::record::{MOST_PLACES, Remote};

/// Copies bytes from `from` of another process's places on to this process's memory at `to`; the last of them
/// goes to `last`. Whether all of them could be read.
///
/// # Safety
/// `to` has room for `len - 1` bytes, that nothing of Rust's refers to.
pub(super) unsafe fn read(
    pid: i32,
    places: &[Remote],
    from: usize,
    to: *mut u8,
    len: usize,
    last: &mut u8,
) -> bool {
    let own = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
    let own = [own(to, len - 1), own(last, 1)];
    let mut theirs = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MOST_PLACES];
    let (mut skip, mut wanted, mut count) = (from, len, 0);
    for (&(address, place_len), theirs) in places.iter().zip(&mut theirs) {
        let place_len = place_len as usize;
        let skipped = skip.min(place_len);
        let taken = (place_len - skipped).min(wanted);
        let at = usize::try_from(address).unwrap_or(usize::MAX).wrapping_add(skipped);
        // An address of another process: it is never followed here.
        *theirs = libc::iovec { iov_base: core::ptr::without_provenance_mut(at), iov_len: taken };
        (skip, wanted, count) = (skip - skipped, wanted - taken, count + 1);
    }
    // SAFETY: the caller's promise, and `last` is a byte; what is read there the kernel checks.
    let got = unsafe { libc::process_vm_readv(pid, own.as_ptr(), 2, theirs.as_ptr(), count, 0) };
    usize::try_from(got) == Ok(len)
}

/// Bytes that who reads this process's memory finds, and nobody else knows.
pub(super) const PROOF_BYTES: usize = 16;

static PROOF: LazyLock<Option<[u8; PROOF_BYTES]>> = LazyLock::new(|| random().ok());

/// Where they are, and what they are.
pub(super) fn proof() -> Option<(u64, [u8; PROOF_BYTES])> {
    let proof = PROOF.as_ref()?;
    Some((proof.as_ptr().expose_provenance() as u64, *proof))
}

/// Whether a process is the one that has these bytes there, and may be read.
pub(super) fn proves(pid: i32, address: u64, expected: &[u8; PROOF_BYTES]) -> bool {
    let mut found = [0; PROOF_BYTES];
    let (first, last) = found.split_at_mut(PROOF_BYTES - 1);
    let places = [(address, u32::try_from(PROOF_BYTES).expect("a few bytes"))];
    // SAFETY: `first` is as long as that.
    let read = unsafe { read(pid, &places, 0, first.as_mut_ptr(), PROOF_BYTES, &mut last[0]) };
    read && found == *expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_proves_itself_and_no_other() {
        let (address, proof) = proof().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(proves(own, address, &proof));
        assert!(!proves(own, address + 1, &proof));
        assert!(!proves(own, 8, &proof), "nothing is mapped there");
        let nobody = i32::MAX;
        assert!(!proves(nobody, address, &proof));
    }

    #[test]
    fn bytes_come_from_where_they_are_in_all_the_places() {
        let there: Vec<u8> = (0..100).collect();
        let own = i32::try_from(std::process::id()).unwrap();
        let at = |from: usize| there[from..].as_ptr().expose_provenance() as u64;
        let places = [(at(10), 5), (at(50), 1), (at(80), 20)];
        let gathered: Vec<u8> = (10..15).chain(50..51).chain(80..100).collect();
        for from in 0..gathered.len() {
            for len in 1..=gathered.len() - from {
                let (mut to, mut last) = (vec![0; len - 1], 0);
                // SAFETY: it is as long as that.
                let read = unsafe { read(own, &places, from, to.as_mut_ptr(), len, &mut last) };
                to.push(last);
                assert!(read && to == gathered[from..from + len]);
            }
        }
        let mut to = [0; 40];
        // SAFETY: it is longer than that.
        assert!(!unsafe { read(own, &places, 0, to.as_mut_ptr(), 30, &mut 0) }, "there are 26");
    }
}
