//! Writing: a program puts up what it knows of itself, in its own thread, without a lock and without the kernel.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weft_ring::{Mapped, Memory, sequence};
use weft_units::{Duration, Instant};

use crate::folder::{Folder, Held};
use crate::layout::{
    DIRECTORY, HEADER_WORDS, HEARTBEAT, LIFE, Life, MAGIC, SEQUENCE, TABLES, VERSION,
};
use crate::records::Record;

/// A file that a program shows itself in. It goes with this value; one whose program was killed is cleared away
/// by the next that comes by.
#[derive(Debug)]
pub struct Board {
    held: Held,
    map: Map,
    draft: Draft,
    sequence: u64,
    /// A child of `fork` has this too, and is not who it is about.
    pid: u32,
}

/// What is about to be put up.
#[derive(Debug, Default)]
pub struct Draft {
    words: Vec<u64>,
}

impl Draft {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.words.resize(HEADER_WORDS, 0);
    }

    pub(crate) const fn words_mut(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// Adds a record. Those of one kind follow one another.
    ///
    /// # Panics
    /// If they do not.
    pub fn push<R: Record>(&mut self, record: &R) {
        let entry = DIRECTORY + 3 * R::TABLE;
        let end = self.words.len() as u64;
        if self.words[entry + 1] == 0 {
            self.words[entry] = end;
            self.words[entry + 2] = R::WORDS as u64;
        }
        let expected = self.words[entry] + self.words[entry + 1] * R::WORDS as u64;
        assert_eq!(expected, end, "records of one kind follow one another");
        self.words[entry + 1] += 1;
        record.put(&mut self.words);
    }
}

/// Room for a few channels; it doubles.
const FIRST_WORDS: usize = 1 << 12;

impl Board {
    /// A file in a folder, named after this process and ending in `suffix`, with nothing on it.
    ///
    /// # Errors
    /// The folder cannot be written, or its file system is full.
    pub fn create(folder: &Folder, suffix: &str) -> io::Result<Self> {
        let file = folder.unnamed()?;
        let map = Map::new(&file, FIRST_WORDS)?;
        map.store(0, MAGIC);
        map.store(1, VERSION);
        let held = folder.name(file, suffix)?;
        let mut board =
            Self { held, map, draft: Draft::default(), sequence: 0, pid: std::process::id() };
        board.publish(|_| ())?;
        Ok(board)
    }

    /// Where it is.
    pub fn path(&self) -> &std::path::Path {
        self.held.path()
    }

    /// The open file, for who must close it in a child of `fork`.
    pub fn file(&self) -> &File {
        self.held.file()
    }

    /// The program looks after the node.
    #[inline]
    pub fn beat(&self, now: Instant) {
        self.map.store(HEARTBEAT, now.as_nanos());
    }

    /// The program sleeps now, or no longer.
    #[inline]
    pub fn live(&self, life: Life) {
        self.map.store(LIFE, life as u64);
    }

    /// Puts up what `write` drafts in place of what is there.
    ///
    /// # Errors
    /// There is no room for it; what is there stays.
    pub fn publish(&mut self, write: impl FnOnce(&mut Draft)) -> io::Result<()> {
        if self.pid != std::process::id() {
            return Ok(());
        }
        self.draft.clear();
        write(&mut self.draft);
        let words = &self.draft.words;
        if words.len() > self.map.words() {
            // The same file, longer: whoever reads it sees one or the other sequence.
            self.map = Map::new(self.held.file(), words.len().next_power_of_two())?;
        }
        let (lock, first) = (8 * SEQUENCE, 8 * DIRECTORY);
        self.sequence =
            sequence::publish(&self.map.0, lock, self.sequence, first, &words[DIRECTORY..]);
        Ok(())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.live(Life::Ended);
            self.held.remove();
        }
    }
}

/// Words that are shared with whoever reads the file.
#[derive(Debug)]
struct Map(Mapped);

impl Map {
    /// Makes the file so long, with memory behind all of it: a full file system is an error here, where it would
    /// end the program later.
    fn new(file: &File, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<u64>();
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start =
            unsafe { mmap(core::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: mapped until this is dropped; words of the header, and as many as there is room for, are named.
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
        // SAFETY: mapped by `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.0.pointer(0, self.0.len()).cast(), self.0.len()) };
    }
}

/// When a board is to be written again: ten times a second, and never more than a thousandth of the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    due: Instant,
}

impl Pace {
    /// The least time between two.
    pub const EVERY: Duration = Duration::from_millis(100);
    /// What is spent on it is at most this part of the time.
    const PART: u64 = 1000;

    /// When it is due.
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// It was written.
    pub fn wrote(&mut self, began: Instant, ended: Instant) {
        self.due = ended + Self::EVERY.max(ended.since(began) * Self::PART);
    }
}

const _: () = assert!(TABLES.len() == 7, "a directory entry each");
