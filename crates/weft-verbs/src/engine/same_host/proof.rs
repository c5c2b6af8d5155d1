//! The proof that a process may be read, and that it is the one with this ID: secret bytes of its memory, read with the
//! permission that the kernel gives to tracers (`process_vm_readv(2)`).

use std::io;
use std::sync::LazyLock;

use super::super::random;

/// Size of a proof, bytes.
pub(super) const PROOF_BYTES: usize = 16;

static PROOF: LazyLock<Option<[u8; PROOF_BYTES]>> = LazyLock::new(|| random().ok());

/// Returns the address and the bytes of this process's proof.
pub(super) fn own() -> Option<(u64, [u8; PROOF_BYTES])> {
    let proof = PROOF.as_ref()?;
    Some((proof.as_ptr().expose_provenance() as u64, *proof))
}

/// Returns `true` if a process has these bytes at this address, and may be read.
pub(super) fn proves(pid: i32, address: u64, expected: &[u8; PROOF_BYTES]) -> bool {
    let mut found = [0; PROOF_BYTES];
    let Ok(address) = usize::try_from(address) else { return false };
    read(pid, address, &mut found).is_ok_and(|read| read == PROOF_BYTES) && found == *expected
}

/// Returns `true` if a process may be read: the kernel checks that before it checks the address, at which a process has
/// no memory.
pub(super) fn may_read(pid: i32) -> bool {
    const NOWHERE: usize = 8;
    let read = read(pid, NOWHERE, &mut [0]);
    read.map_or_else(|error| error.raw_os_error() == Some(libc::EFAULT), |_| true)
}

/// Reads bytes at an address of a process. Returns their number.
fn read(pid: i32, address: usize, found: &mut [u8]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
    // This address of another process is never dereferenced here.
    let there = core::ptr::without_provenance_mut(address);
    let there = libc::iovec { iov_base: there, iov_len: found.len() };
    // SAFETY: `found` has that many bytes; the kernel checks the remote range.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
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
        assert!(!proves(i32::MAX, address, &proof), "no process has that ID");
        assert!(may_read(pid) && !may_read(i32::MAX));
    }
}
