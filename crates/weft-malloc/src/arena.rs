//! One range of addresses, many times as long as the machine's memory, on one file. Free addresses have no access
//! rights and no memory: a mapping of all of it costs nothing, and neither mlockall(2) nor an access after `free` fills it.

use core::ffi::c_void;
use std::collections::BTreeMap;

use crate::PAGE;
use crate::file::File;
use crate::kept::Kept;
use crate::ranges::FreeRanges;

/// Maximum number of bytes of an arena: a quarter of the addresses of a process.
const MAX_BYTES: usize = 1 << 45;

/// A new block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) start: *mut c_void,
    /// `true` if all its bytes are zero.
    pub(crate) is_zero: bool,
}

/// The place of a new block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The lowest free addresses.
    Low,
    /// A range in which the block can grow.
    Roomy,
}

/// The arena. Its addresses are reserved until the process ends.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) file: File,
    /// `false` in a child that sees its parent's pages: it has its blocks, and gets no new ones.
    pub(super) is_shared: bool,
    pub(super) free: FreeRanges,
    /// The length of each block, bytes, by its start.
    pub(super) blocks: BTreeMap<usize, usize>,
    pub(super) kept: Kept,
}

impl Arena {
    /// Returns an arena of sixteen times the machine's memory; `None` where the system refuses.
    pub(crate) fn for_this_machine() -> Option<Self> {
        // SAFETY: it reads a number.
        let pages = usize::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).ok()?;
        Self::new(pages.saturating_mul(16 * PAGE).min(MAX_BYTES))
    }

    pub(crate) fn new(len: usize) -> Option<Self> {
        let file = File::new(len)?;
        // SAFETY: a new mapping replaces nothing.
        let Some(start) = (unsafe { file.map(core::ptr::null_mut(), len, libc::MAP_SHARED) })
        else {
            file.close();
            return None;
        };
        let start = start.expose_provenance();
        let mut free = FreeRanges::default();
        free.release(start, len);
        let (blocks, kept) = (BTreeMap::new(), Kept::default());
        Some(Self { start, len, file, is_shared: true, free, blocks, kept })
    }

    /// Allocates at least `bytes` bytes; `align` is a power of two, and a page or more. Returns `None` if there is no
    /// room.
    pub(crate) fn allocate(&mut self, bytes: usize, align: usize, place: Place) -> Option<Block> {
        let len = bytes.max(1).checked_next_multiple_of(PAGE).filter(|_| self.is_shared)?;
        if place == Place::Low
            && let Some((start, len)) = self.kept.take(len, align)
        {
            self.blocks.insert(start, len);
            return Some(Block { start: pointer(start), is_zero: false });
        }
        let roomy =
            if place == Place::Roomy { self.free.allocate_with_room(len, align) } else { None };
        let start = roomy.or_else(|| self.free.allocate(len, align))?;
        if !protect(start, len, READ_AND_WRITE) {
            self.free.release(start, len);
            return None;
        }
        self.blocks.insert(start, len);
        Some(Block { start: pointer(start), is_zero: true })
    }

    /// Returns the length of a block in bytes; `None` if none begins there.
    pub(crate) fn len_of(&self, block: *mut c_void) -> Option<usize> {
        self.blocks.get(&block.addr()).copied()
    }

    /// Makes a block longer or shorter in its place; returns `false`, and changes nothing, if it cannot.
    pub(crate) fn resize(&mut self, block: *mut c_void, bytes: usize) -> bool {
        let Some(new) = bytes.max(1).checked_next_multiple_of(PAGE) else { return false };
        let start = block.addr();
        let Some(old) = self.len_of(block) else { return false };
        if new < old {
            self.release(start + new, old - new);
        } else if new > old {
            if !self.is_shared || !self.free.take(start + old, new - old) {
                return false;
            }
            if !protect(start + old, new - old, READ_AND_WRITE) {
                self.free.release(start + old, new - old);
                return false;
            }
        }
        self.blocks.insert(start, new);
        true
    }

    /// Frees a block; returns `false` if none begins there.
    pub(crate) fn free(&mut self, block: *mut c_void) -> bool {
        let start = block.addr();
        let Some(len) = self.blocks.remove(&start) else { return false };
        if self.is_shared && self.kept.keep(start, len) {
            while let Some((start, len)) = self.kept.excess() {
                self.release(start, len);
            }
        } else {
            self.release(start, len);
        }
        true
    }

    /// Returns a range's memory to the system and its addresses to the free ones.
    fn release(&mut self, start: usize, len: usize) {
        if self.is_shared {
            empty(start, len);
        } else {
            // The pages that this process has written; the file is its parent's.
            // SAFETY: the range is part of no block.
            unsafe { libc::madvise(pointer(start), len, libc::MADV_DONTNEED) };
        }
        protect(start, len, libc::PROT_NONE);
        self.free.release(start, len);
    }
}

pub(super) const READ_AND_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Sets the access rights of a part of the arena.
pub(super) fn protect(start: usize, len: usize, rights: i32) -> bool {
    // SAFETY: the range is part of no block, or of one that the program has just requested.
    unsafe { libc::mprotect(pointer(start), len, rights) == 0 }
}

/// Makes a part of the file, which must be in no block, zero bytes without memory.
fn empty(start: usize, len: usize) {
    let punch = || {
        // Not by the descriptor, whose number may be another file's.
        // SAFETY: no block has these bytes.
        unsafe { libc::madvise(pointer(start), len, libc::MADV_REMOVE) == 0 }
    };
    if punch() {
        return;
    }
    // The program has locked the block, or taken away a right.
    protect(start, len, READ_AND_WRITE);
    // SAFETY: no block has these bytes.
    unsafe { libc::munlock(pointer(start), len) };
    if !punch() {
        // SAFETY: likewise; they are writable.
        unsafe { pointer(start).cast::<u8>().write_bytes(0, len) };
    }
}

/// Returns a pointer to an address of the arena, whose provenance `new` has exposed.
pub(super) fn pointer(address: usize) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(address)
}
