//! The writer of a status file. A program publishes its state from its own thread, without locks or system calls.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weft_ring::{Mapped, Memory, sequence};
use weft_units::{Duration, Instant};

use crate::draft::Draft;
use crate::folder::{Folder, LockedFile};
use crate::layout::{DIRECTORY, HEARTBEAT, LIFE, MAGIC, ProgramState, SEQUENCE, TABLES, VERSION};

/// A status file of this program. Dropping the value removes the file; [`Folder::sweep`] removes those of killed
/// programs.
#[derive(Debug)]
pub struct StatusWriter {
    held: LockedFile,
    map: Map,
    draft: Draft,
    sequence: u64,
    /// The process that made the file. A child of `fork` has a copy of this value and must not write.
    pid: u32,
}

/// Initial size in words, enough for a few channels; it doubles when needed.
const INITIAL_WORDS: usize = 1 << 12;

impl StatusWriter {
    /// Creates an empty file in a folder, named after this process and ending in `suffix`.
    ///
    /// # Errors
    /// Returns an error if the folder is not writable or its file system is full.
    pub fn create(folder: &Folder, suffix: &str) -> io::Result<Self> {
        let file = folder.unnamed()?;
        let map = Map::new(&file, INITIAL_WORDS)?;
        map.store(0, MAGIC);
        map.store(1, VERSION);
        let held = folder.name(file, suffix)?;
        let mut writer =
            Self { held, map, draft: Draft::default(), sequence: 0, pid: std::process::id() };
        writer.publish(|_| ())?;
        Ok(writer)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &std::path::Path {
        self.held.path()
    }

    /// Returns the open file, for a child of `fork` that must close it.
    pub fn file(&self) -> &File {
        self.held.file()
    }

    /// Sets the heartbeat: the program serviced the node at `now`.
    #[inline]
    pub fn set_heartbeat(&self, now: Instant) {
        self.map.store(HEARTBEAT, now.as_nanos());
    }

    /// Sets the program's state, for example before and after it sleeps.
    #[inline]
    pub fn set_state(&self, state: ProgramState) {
        self.map.store(LIFE, state as u64);
    }

    /// Replaces the content by the records that `write` pushes. In a child of `fork` it does nothing.
    ///
    /// # Errors
    /// Returns an error if there is no space; the old content stays.
    pub fn publish(&mut self, write: impl FnOnce(&mut Draft)) -> io::Result<()> {
        if self.pid != std::process::id() {
            return Ok(());
        }
        self.draft.clear();
        write(&mut self.draft);
        let words = self.draft.words();
        if words.len() > self.map.words() {
            // The same file, longer: a reader sees either the old or the new sequence.
            self.map = Map::new(self.held.file(), words.len().next_power_of_two())?;
        }
        let (lock, first) = (8 * SEQUENCE, 8 * DIRECTORY);
        self.sequence =
            sequence::publish(&self.map.0, lock, self.sequence, first, &words[DIRECTORY..]);
        Ok(())
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.set_state(ProgramState::Ended);
            self.held.remove();
        }
    }
}

/// A shared mapping of the file.
#[derive(Debug)]
struct Map(Mapped);

impl Map {
    /// Sets the file's length and allocates all of its memory, so that a full file system is an error here and not a
    /// SIGBUS later.
    fn new(file: &File, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<u64>();
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this makes a new mapping at an address that the kernel chooses.
        let start =
            unsafe { mmap(core::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory stays mapped until this value is dropped; offsets are within the header or checked against
        // the length.
        Ok(Self(unsafe { Mapped::new(start, bytes) }))
    }

    const fn words(&self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    fn store(&self, at: usize, word: u64) {
        self.0.long(8 * at).store(word.to_le(), Ordering::Relaxed);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no reference to it remains.
        let _ = unsafe { munmap(self.0.pointer(0, self.0.len()).cast(), self.0.len()) };
    }
}

/// A schedule of a file's updates: at most ten per second, and at most a thousandth of the program's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateSchedule {
    due: Instant,
}

impl UpdateSchedule {
    /// Minimum time between two updates.
    pub const MIN_INTERVAL: Duration = Duration::from_millis(100);
    /// Minimum time between two updates, as a multiple of the duration of the last one.
    const MIN_INTERVAL_RATIO: u64 = 1000;

    /// Returns the time of the next update.
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// Schedules the next update after one that took from `began` to `ended`.
    pub fn on_written(&mut self, began: Instant, ended: Instant) {
        self.due = ended + Self::MIN_INTERVAL.max(ended.since(began) * Self::MIN_INTERVAL_RATIO);
    }
}

const _: () = assert!(TABLES.len() == 7, "the directory has an entry for each of 7 tables");
