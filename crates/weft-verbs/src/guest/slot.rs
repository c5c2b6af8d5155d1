//! A slot of the BAR: the rings of one process at a time at its start, and at its end a page with the name of the port
//! that belongs to the slot, and a count by which the process shows that it lives.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weft_ring::{Mapped, Memory};

use super::PAGE;

/// Size of a slot, bytes.
pub(crate) const SLOT: u64 = 1 << 20;

/// Maximum length of a port's name, bytes.
const MAX_NAME: usize = 128;

/// Offset in the page of the count.
const BEATS: usize = 0;
/// Offset in the page of the name, which ends with a zero.
const NAME: usize = 64;

/// The last page of a slot.
#[derive(Debug)]
pub(crate) struct Slot {
    memory: Mapped,
}

impl Slot {
    /// Maps the last page of a slot of the BAR in a file, which the caller knows to be so long.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub(crate) fn map(bar: BorrowedFd<'_>, index: u64) -> io::Result<Self> {
        let (page, protection) = (page(), ProtFlags::READ | ProtFlags::WRITE);
        let offset = (index + 1) * SLOT - PAGE;
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let base = unsafe {
            mmap(core::ptr::null_mut(), page, protection, MapFlags::SHARED, bar, offset)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the mapping has this length and exists until this is dropped; all offsets here lie in it.
        Ok(Self { memory: unsafe { Mapped::new(base, page) } })
    }

    /// Writes the name of the port that belongs to the slot.
    ///
    /// # Panics
    /// If it is longer than a name may be.
    pub(crate) fn set_name(&self, name: &str) {
        assert!(name.len() < MAX_NAME, "a name of {MAX_NAME} bytes with its end");
        self.memory.write(NAME, &[name.as_bytes(), &[0]].concat());
    }

    /// Returns `true` if the slot belongs to this port.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        let mut bytes = [0; MAX_NAME];
        self.memory.read(NAME, &mut bytes);
        bytes.split(|&byte| byte == 0).next() == Some(name.as_bytes())
    }

    /// Returns the count.
    pub(crate) fn beats(&self) -> u32 {
        self.memory.word(BEATS).load(Ordering::Relaxed)
    }

    /// Adds one to the count, which has one writer.
    pub(crate) fn beat(&self) {
        self.memory.word(BEATS).store(self.beats().wrapping_add(1), Ordering::Relaxed);
    }
}

fn page() -> usize {
    usize::try_from(PAGE).expect("a page is short")
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more. An error has no remedy.
        let _ = unsafe { munmap(self.memory.pointer(0, page()).cast(), page()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::attach::Page;

    #[test]
    fn both_ends_see_the_name_and_the_count_behind_the_rings() {
        assert!(Page::LEN as u64 <= SLOT - PAGE);
        let file = rustix::fs::memfd_create("bar", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 2 * SLOT).unwrap();
        let [one, other, next] = [1, 1, 0].map(|index| Slot::map(file.as_fd(), index).unwrap());
        one.set_name("weft.a.1");
        one.beat();
        assert!(other.is_of("weft.a.1") && !other.is_of("weft.a") && !next.is_of("weft.a.1"));
        assert_eq!((other.beats(), next.beats()), (1, 0));
    }
}
