//! Executes a request in a neighbour's memory, with the permission that the kernel gives to tracers
//! (`process_vm_writev(2)`).

use weft_rnic::{LeasedAccess, Source};

/// Pieces of a request's own memory.
type Pieces = Vec<libc::iovec>;

/// Copies a request's bytes to or from the memory of the process with this ID. Returns `false` if not all of that
/// exists; a part may have been copied.
pub(super) fn execute(pid: i32, request: &LeasedAccess<'_>) -> bool {
    let Ok(address) = usize::try_from(request.address) else { return false };
    let Some(local) = pieces(request.local) else { return false };
    let len = request.length as usize;
    let there = |from: usize, len: usize| libc::iovec {
        // This address of another process is never dereferenced here.
        iov_base: core::ptr::without_provenance_mut(address.wrapping_add(from)),
        iov_len: len,
    };
    // Programs wait for the last byte to change: it is written after the others, which the kernel copies in any order.
    let last = len.saturating_sub(1);
    let both = [there(0, last), there(last, len - last)];
    let whole = [there(0, len)];
    let (pieces, count) = (local.as_ptr(), local.len() as libc::c_ulong);
    // SAFETY: the pieces are registered memory of this process, or the request's own bytes, which are only read; the
    // kernel checks the remote range.
    let copied = unsafe {
        if request.writes {
            libc::process_vm_writev(pid, pieces, count, both.as_ptr(), 2, 0)
        } else {
            libc::process_vm_readv(pid, pieces, count, whole.as_ptr(), 1, 0)
        }
    };
    usize::try_from(copied) == Ok(len)
}

fn pieces(source: Source<'_>) -> Option<Pieces> {
    let piece = |start: *mut u8, len: usize| libc::iovec { iov_base: start.cast(), iov_len: len };
    match source {
        Source::Memory(places) => places
            .iter()
            .map(|place| {
                let address = usize::try_from(place.address).ok()?;
                let start = core::ptr::with_exposed_provenance_mut(address);
                Some(piece(start, place.len as usize))
            })
            .collect(),
        Source::Inline(bytes) => Some(vec![piece(bytes.as_ptr().cast_mut(), bytes.len())]),
        Source::Anything => None,
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

    fn reach(writes: bool, there: Place, local: Source<'_>) -> bool {
        let lease = LeaseId { link: LinkId(0), number: 0 };
        let Place { address, len: length, .. } = there;
        let pid = i32::try_from(std::process::id()).unwrap();
        execute(pid, &LeasedAccess { lease, address, length, writes, local })
    }

    /// Memory of this process, accessed like another's.
    #[test]
    fn bytes_are_copied_in_both_directions_and_unmapped_memory_is_refused() {
        let (mut here, mut there) = (*b"hello, world", [0; 12]);
        let (start, end) = here.split_at_mut(5);
        let places = [place(end), place(start)];
        let local = Source::Memory(&places);
        assert!(reach(true, place(&mut there), local));
        assert_eq!(&there, b", worldhello");
        assert!(reach(true, place(&mut there[..1]), Source::Inline(b"!")));
        assert_eq!(there[0], b'!');
        there.copy_from_slice(b"and back too");
        assert!(reach(false, place(&mut there), local));
        assert_eq!(&here, b"k tooand bac");
        let nowhere = Place { address: 4096, ..place(&mut there) };
        assert!(!reach(true, nowhere, local) && !reach(false, nowhere, local));
    }
}
