//! Children of `fork`. A shared mapping would show the stores of each process to the other one.
//!
//! The parent waits in `fork` while its child copies the blocks into a file of its own: each process then has its memory
//! as at the call, and the child's arena is like any other. If the blocks have more than [`MAX_COPY`] bytes of memory,
//! nothing is copied. The child's stores are its own; in pages that it has not written it sees what its parent stores
//! later, and zeros where the parent frees; its new large blocks are the C library's.

use core::ffi::c_int;
use core::ops::Range;
use std::cell::UnsafeCell;
use std::os::fd::RawFd;
use std::sync::MutexGuard;

use crate::arena::{Arena, READ_AND_WRITE, pointer, protect};
use crate::file::File;
use crate::process::{self, State};

/// Maximum length of the memory that a child copies, bytes: `fork` takes half a second longer.
pub(crate) const MAX_COPY: usize = 1 << 30;

/// The lock of a thread that calls `fork`, from before the call until after it.
struct Fork {
    state: MutexGuard<'static, State>,
    /// The pipe on which the parent waits for its child; none if the child copies nothing.
    pipe: Option<[RawFd; 2]>,
}

struct Held(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that has locked the arena accesses it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Before all other handlers are registered: before a fork it runs after them, and after it before them, so that they
/// can allocate. Handlers that were there already run while the arena is locked.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the functions are handlers, and this library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    let state = process::lock();
    let pipe = match &*state {
        State::Made(arena) if arena.is_copied() => pipe(),
        _ => None,
    };
    // SAFETY: this thread has locked the arena.
    unsafe { *HELD.0.get() = Some(Fork { state, pipe }) };
}

/// Takes what `before` has put there.
fn take() -> Option<Fork> {
    // SAFETY: this thread, or the one that it is a copy of, has locked the arena.
    unsafe { (*HELD.0.get()).take() }
}

unsafe extern "C" fn in_parent() {
    let Some(Fork { state, pipe }) = take() else { return };
    if let Some([read, write]) = pipe {
        close(write);
        // Until the child has copied, or has died, or the call has made none.
        let mut byte = 0_u8;
        // SAFETY: the buffer has room for a byte.
        while unsafe { libc::read(read, (&raw mut byte).cast(), 1) } < 0 && was_interrupted() {}
        close(read);
    }
    drop(state);
}

unsafe extern "C" fn in_child() {
    let Some(Fork { mut state, pipe }) = take() else { return };
    if let State::Made(arena) = &mut *state {
        arena.part_from_parent(pipe.is_some());
    }
    if let Some([read, write]) = pipe {
        close(read);
        close(write);
    }
}

fn pipe() -> Option<[RawFd; 2]> {
    let mut ends: [c_int; 2] = [0; 2];
    // SAFETY: the array has room for both ends.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    (made == 0).then_some(ends)
}

fn close(descriptor: RawFd) {
    // SAFETY: the descriptor is an end of the pipe.
    unsafe { libc::close(descriptor) };
}

fn was_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

impl Arena {
    /// Returns `true` if a child is to copy the blocks.
    fn is_copied(&self) -> bool {
        // Without the descriptor, copying is the only way.
        let bytes = self.file.bytes().map(|bytes| bytes.saturating_sub(self.kept.bytes()));
        self.is_shared && bytes.is_none_or(|bytes| bytes <= MAX_COPY)
    }

    /// Makes the arena independent of the parent's, in a child.
    ///
    /// # Panics
    /// Panics if neither a copy nor a private mapping can be made: the child would write its parent's memory.
    fn part_from_parent(&mut self, is_copied: bool) {
        if !self.is_shared {
            return;
        }
        while let Some((start, len)) = self.kept.pop() {
            self.free.release(start, len);
        }
        if let Some(file) = is_copied.then(|| self.copy()).flatten() {
            self.map(&file, libc::MAP_SHARED);
            self.file = file.replace(&self.file);
        } else {
            assert!(self.file.is_open(), "weft: no memory for the blocks of a child of fork");
            self.map_private();
        }
    }

    fn map_private(&mut self) {
        self.map(&self.file, libc::MAP_PRIVATE);
        self.file.close();
        self.is_shared = false;
    }

    /// Maps a file in place of the arena's, and gives access to its blocks.
    fn map(&self, file: &File, flags: c_int) {
        // SAFETY: the addresses are the arena's.
        let at = unsafe { file.map(pointer(self.start), self.len, flags | libc::MAP_FIXED) };
        assert!(at.is_some(), "weft: the blocks of a child of fork cannot be mapped");
        let is_accessible =
            |range: &Range<usize>| protect(range.start, range.len(), READ_AND_WRITE);
        assert!(self.runs().all(|range| is_accessible(&range)), "weft: too many mappings");
    }

    /// Returns the address ranges of blocks, adjacent ones as one.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut blocks = self.blocks.iter().map(|(&start, &len)| start..start + len).peekable();
        core::iter::from_fn(move || {
            let mut run = blocks.next()?;
            while let Some(next) = blocks.next_if(|next| next.start == run.end) {
                run.end = next.end;
            }
            Some(run)
        })
    }

    /// Copies the blocks to a new file; returns `None` if there is no memory.
    fn copy(&self) -> Option<File> {
        let file = File::new(self.len)?;
        for run in self.runs() {
            let (mut at, end) = (run.start - self.start, run.end - self.start);
            while let Some(data) = self.file.next_data(at..end) {
                at = data.end;
                // SAFETY: it is part of a block, which is mapped.
                let wrote = unsafe { file.write(pointer(self.start + data.start).cast(), data) };
                if !wrote {
                    file.close();
                    return None;
                }
            }
        }
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::PAGE;
    use crate::arena::Place;

    /// An arena with a block whose pages have these bytes.
    fn arena(bytes: [u8; 3]) -> (Arena, *mut u8) {
        let mut arena = Arena::new(64 << 20).expect("the system has memory files");
        let block = arena.allocate(3 * PAGE, PAGE, Place::Low).unwrap();
        let start = block.start.cast::<u8>();
        for (page, byte) in bytes.into_iter().enumerate() {
            // SAFETY: the block has three pages.
            unsafe { start.add(page * PAGE).write_volatile(byte) };
        }
        (arena, start)
    }

    /// The first byte of each page.
    fn pages(start: *mut u8) -> [u8; 3] {
        // SAFETY: the block has three pages.
        [0, 1, 2].map(|page| unsafe { start.add(page * PAGE).read_volatile() })
    }

    /// Runs `child` in a child, `parent` when it has called its argument, and what follows of `child` after that.
    /// Returns the child's result.
    fn in_turns(parent: impl FnOnce(), child: impl FnOnce(&dyn Fn()) -> [u8; 3]) -> [u8; 3] {
        use std::io::{Read, Write};
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child uses no lock that another thread may have.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let result = child(&|| {
                (&theirs).write_all(&[1]).unwrap();
                (&theirs).read_exact(&mut [0]).unwrap();
            });
            (&theirs).write_all(&result).unwrap();
            // SAFETY: no handler of this process is the child's.
            unsafe { libc::_exit(0) };
        }
        drop(theirs);
        let mut result = [0; 3];
        ours.read_exact(&mut [0]).expect("the child lives");
        parent();
        ours.write_all(&[1]).unwrap();
        ours.read_exact(&mut result).expect("the child lives");
        let mut status = 0;
        // SAFETY: `status` has room for the child's.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        result
    }

    #[test]
    fn a_child_that_copies_has_the_pages_as_at_the_fork() {
        let (mut arena, start) = arena([1, 2, 0]);
        // SAFETY: the parent's part of the test begins when the child's copy is made.
        let stores = || unsafe { start.add(2 * PAGE).write_volatile(6) };
        let result = in_turns(stores, |turn| {
            arena.part_from_parent(true);
            // SAFETY: the block is the child's.
            unsafe { start.write_volatile(5) };
            turn();
            assert!(arena.is_shared && arena.allocate(PAGE, PAGE, Place::Low).is_some());
            pages(start)
        });
        assert_eq!((result, pages(start)), ([5, 2, 0], [1, 2, 6]));
    }

    /// As documented above: it sees what its parent stores in pages that it has not written.
    #[test]
    fn a_child_that_does_not_copy_has_stores_of_its_own() {
        let (mut arena, start) = arena([1, 2, 3]);
        // SAFETY: the block has three pages.
        let stores = || unsafe {
            start.write_volatile(8);
            start.add(2 * PAGE).write_volatile(6);
        };
        let result = in_turns(stores, |turn| {
            arena.part_from_parent(false);
            // SAFETY: the block is the child's.
            unsafe { start.write_volatile(5) };
            turn();
            assert!(arena.allocate(PAGE, PAGE, Place::Low).is_none());
            let seen = pages(start);
            assert!(arena.resize(start.cast(), PAGE) && arena.free(start.cast()));
            seen
        });
        assert_eq!((result, pages(start)), ([5, 2, 6], [8, 2, 6]));
        assert!(arena.free(start.cast()));
    }

    /// Kept blocks and pages that were never written are not copied.
    #[test]
    fn memory_above_the_limit_is_not_copied() {
        let (mut arena, start) = arena([1, 2, 3]);
        assert!(arena.is_copied() && arena.file.bytes() == Some(3 * PAGE));
        assert!(arena.free(start.cast()) && arena.kept.bytes() == 3 * PAGE);
        let sparse = arena.allocate(32 << 20, PAGE, Place::Low).unwrap();
        let last = (32 << 20) - 1;
        // SAFETY: the block has as many bytes.
        unsafe { sparse.start.cast::<u8>().add(last).write_volatile(1) };
        assert_eq!(arena.file.bytes(), Some(4 * PAGE));
        let at = sparse.start.addr() - arena.start;
        let end = at + last + 1;
        assert_eq!(arena.file.next_data(at..end), Some(end - PAGE..end));
        assert_eq!(arena.file.next_data(at..end - PAGE), None);
        arena.file.close();
        assert!(arena.is_copied(), "there is no other way without the file");
    }
}
