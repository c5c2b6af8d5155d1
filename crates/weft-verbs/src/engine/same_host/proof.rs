//! How a process proves that it may be seen, and that it is the one with this number: bytes of its memory that
//! nobody else knows, read as the kernel lets those read who may trace it (`process_vm_readv(2)`).

use std::sync::LazyLock;

use super::super::random;

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 16;

static PROOF: LazyLock<Option<[u8; PROOF_BYTES]>> = LazyLock::new(|| random().ok());

/// Where this process's proof is, and what it is.
pub(super) fn own() -> Option<(u64, [u8; PROOF_BYTES])> {
    let proof = PROOF.as_ref()?;
    Some((proof.as_ptr().expose_provenance() as u64, *proof))
}

/// Whether a process is the one that has these bytes there, and may be read.
pub(super) fn proves(pid: i32, address: u64, expected: &[u8; PROOF_BYTES]) -> bool {
    let mut found = [0_u8; PROOF_BYTES];
    let Ok(address) = usize::try_from(address) else { return false };
    let here = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: PROOF_BYTES };
    // An address of another process: it is never followed here.
    let there = core::ptr::without_provenance_mut(address);
    let there = libc::iovec { iov_base: there, iov_len: PROOF_BYTES };
    // SAFETY: `found` has as many bytes; what is read there the kernel checks.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(read) == Ok(PROOF_BYTES) && found == *expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_proves_itself_and_no_other() {
        let (address, proof) = own().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(proves(pid, address, &proof));
        assert!(!proves(pid, address + 1, &proof));
        assert!(!proves(pid, 8, &proof), "nothing is mapped there");
        assert!(!proves(i32::MAX, address, &proof), "nobody has that number");
    }
}
