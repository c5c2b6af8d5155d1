//! One direction of a channel: records of bytes in memory that two processes share, written by one and
//! read by the other. A record's first word is its size, stored after everything else of it: zero where
//! nothing was written yet, so that the reader looks at one cache line, and a writer that dies in the middle
//! has written nothing. The other process is not trusted: what it stores is read once, and checked.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of records.
const RECORDS_BYTES: usize = 1 << 19;
const CAPACITY: u64 = RECORDS_BYTES as u64;

/// Where records begin: before them are words that the reader writes, each on a line of its own.
const RECORDS: usize = 4096;
const READ: usize = 0;
const ASLEEP: usize = 64;

/// Bytes of memory one ring takes.
pub(super) const RING_BYTES: usize = RECORDS + RECORDS_BYTES;

/// The longest record.
pub(super) const LONGEST: usize = 8192;

/// Records begin, and end, at multiples of this.
pub(super) const ALIGN: usize = 8;

/// Where the size is in a record, and the word the writer may change later.
pub(super) const SIZE_WORD: usize = 0;
pub(super) const STATE_WORD: usize = 4;

/// In place of a size: the next record is at the start.
const SKIP: u32 = u32::MAX;

/// The other process broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Where a ring is: [`RING_BYTES`], zero at first, as long as its channel has it mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory(NonNull<u8>);

// SAFETY: it is shared by nature; every access is atomic, or to bytes that are this end's.
unsafe impl Send for Memory {}

impl Memory {
    /// # Safety
    /// [`RING_BYTES`] from there are mapped until the last use of it, at an address divisible by 8.
    pub(super) const unsafe fn new(start: NonNull<u8>) -> Self {
        Self(start)
    }

    fn word(self, at: usize) -> &'static AtomicU32 {
        // SAFETY: mapped and aligned, as `new` was promised; callers name places within.
        unsafe { AtomicU32::from_ptr(self.0.add(at).cast().as_ptr()) }
    }

    fn read_to(self) -> &'static AtomicU64 {
        // SAFETY: mapped and aligned, as `new` was promised.
        unsafe { AtomicU64::from_ptr(self.0.add(READ).cast().as_ptr()) }
    }

    fn record(self, position: u64, word: usize) -> &'static AtomicU32 {
        self.word(offset(position) + word)
    }

    /// Whether the reader sleeps; it does not from now on, for the caller wakes it.
    fn take_asleep(self) -> bool {
        let asleep = self.word(ASLEEP);
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::SeqCst) != 0
    }
}

fn offset(position: u64) -> usize {
    RECORDS + usize::try_from(position % CAPACITY).expect("below the capacity")
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Memory,
    /// Bytes written, and of those read when last looked.
    written: u64,
    read: u64,
}

impl Writer {
    pub(super) const fn new(memory: Memory) -> Self {
        Self { memory, written: 0, read: 0 }
    }

    /// Writes a record, whose first word is left out for its size; where it is, or `None` if there is no
    /// room.
    ///
    /// # Errors
    /// The reader says that it read what was not written.
    ///
    /// # Panics
    /// If the record is longer than [`LONGEST`], or no multiple of [`ALIGN`].
    pub(super) fn write(&mut self, record: &[u8]) -> Result<Option<u64>, Broken> {
        assert!(record.len() <= LONGEST && record.len().is_multiple_of(ALIGN), "a record's size");
        let len = record.len() as u64;
        let to_end = CAPACITY - self.written % CAPACITY;
        let skipped = if len > to_end { to_end } else { 0 };
        // The word after a record says that there is none yet.
        let needed = skipped + len + ALIGN as u64;
        if needed > CAPACITY - (self.written - self.read) {
            self.look()?;
            if needed > CAPACITY - (self.written - self.read) {
                return Ok(None);
            }
        }
        let position = self.written + skipped;
        let next = position + len;
        self.memory.record(next, SIZE_WORD).store(0, Ordering::Relaxed);
        // SAFETY: the record lies within the ring, where the reader does not look before its size is there.
        // It may be changed by a process that breaks the rules; nothing of Rust's refers to it.
        unsafe {
            let to = self.memory.0.add(offset(position) + STATE_WORD).as_ptr();
            core::ptr::copy_nonoverlapping(
                record[STATE_WORD..].as_ptr(),
                to,
                record.len() - STATE_WORD,
            );
        }
        let size = u32::try_from(len).expect("at most the longest");
        self.memory.record(position, SIZE_WORD).store(size, Ordering::Release);
        if skipped > 0 {
            self.memory.record(self.written, SIZE_WORD).store(SKIP, Ordering::Release);
        }
        self.written = next;
        Ok(Some(position))
    }

    /// How far the reader is.
    ///
    /// # Errors
    /// It says that it read what was not written.
    pub(super) fn look(&mut self) -> Result<u64, Broken> {
        let read = self.memory.read_to().load(Ordering::Acquire);
        if read < self.read || read > self.written {
            return Err(Broken);
        }
        self.read = read;
        Ok(read)
    }

    /// Changes the word of a record that may be changed, if it was not read yet.
    pub(super) fn set_state(&self, position: u64, state: u32) {
        self.memory.record(position, STATE_WORD).store(state, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether the reader must be woken to see what was written before.
    pub(super) fn reader_sleeps(&self) -> bool {
        fence(Ordering::SeqCst);
        self.memory.take_asleep()
    }
}

/// The reading end.
#[derive(Debug)]
pub(super) struct Reader {
    memory: Memory,
    read: u64,
}

impl Reader {
    pub(super) const fn new(memory: Memory) -> Self {
        Self { memory, read: 0 }
    }

    /// Copies the next record to the start of `out`; its length, or `None` if there is none.
    ///
    /// # Errors
    /// The writer wrote what is no record.
    pub(super) fn peek(&mut self, out: &mut [u8; LONGEST]) -> Result<Option<usize>, Broken> {
        let mut size = self.memory.record(self.read, SIZE_WORD).load(Ordering::Acquire);
        if size == SKIP {
            if self.read.is_multiple_of(CAPACITY) {
                return Err(Broken);
            }
            self.read = self.read.next_multiple_of(CAPACITY);
            size = self.memory.record(self.read, SIZE_WORD).load(Ordering::Acquire);
        }
        let len = size as usize;
        if len == 0 {
            return Ok(None);
        }
        let to_end = CAPACITY - self.read % CAPACITY;
        if len > LONGEST || !len.is_multiple_of(ALIGN) || u64::from(size) > to_end {
            return Err(Broken);
        }
        // SAFETY: the record lies within the ring; what its writer changes meanwhile it does to itself.
        unsafe {
            let from = self.memory.0.add(offset(self.read)).as_ptr();
            core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), len);
        }
        Ok(Some(len))
    }

    /// The word of the record peeked at that its writer may have changed.
    pub(super) fn state(&self) -> u32 {
        fence(Ordering::SeqCst);
        self.memory.record(self.read, STATE_WORD).load(Ordering::SeqCst)
    }

    /// Is done with the record peeked at, of this length.
    pub(super) fn pass(&mut self, len: usize) {
        self.read += len as u64;
        self.memory.read_to().store(self.read, Ordering::Release);
    }

    /// Whether there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        self.memory.record(self.read, SIZE_WORD).load(Ordering::Acquire) == 0
    }

    /// Says that this end sleeps, and must be woken. What was written just before is not announced: look.
    pub(super) fn set_asleep(&self, asleep: bool) {
        self.memory.word(ASLEEP).store(asleep.into(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in memory of this process, with both ends.
    struct Ring {
        writer: Writer,
        reader: Reader,
        bytes: Vec<u64>,
    }

    fn ring() -> Ring {
        let mut bytes = vec![0_u64; RING_BYTES / 8];
        // SAFETY: as long as the ring lives.
        let memory = unsafe { Memory::new(NonNull::new(bytes.as_mut_ptr()).unwrap().cast()) };
        Ring { writer: Writer::new(memory), reader: Reader::new(memory), bytes }
    }

    fn record(number: u8, len: usize) -> Vec<u8> {
        vec![number; len]
    }

    impl Ring {
        fn read(&mut self) -> Option<Vec<u8>> {
            let mut out = [0; LONGEST];
            let len = self.reader.peek(&mut out).unwrap()?;
            self.reader.pass(len);
            Some(out[STATE_WORD..len].to_vec())
        }
    }

    #[test]
    fn records_come_out_as_they_went_in_round_after_round() {
        let mut ring = ring();
        let mut waiting = std::collections::VecDeque::new();
        let mut written = 0_u64;
        for step in 0..20_000_usize {
            let written_now =
                record(u8::try_from(step % 251).unwrap(), 8 + step * 56 % (LONGEST - 8));
            if ring.writer.write(&written_now).unwrap().is_some() {
                written += written_now.len() as u64;
                waiting.push_back(written_now[STATE_WORD..].to_vec());
            } else {
                assert!(waiting.len() > 60, "half a megabyte has room for as many");
                for _ in 0..waiting.len() / 2 {
                    assert_eq!(ring.read(), waiting.pop_front());
                }
            }
        }
        while let Some(expected) = waiting.pop_front() {
            assert_eq!(ring.read(), Some(expected));
        }
        assert!(ring.read().is_none() && ring.reader.is_empty());
        assert!(written > 20 * CAPACITY);
    }

    #[test]
    fn two_threads_lose_nothing() {
        let Ring { mut writer, mut reader, bytes } = ring();
        let lens = |step: usize| 8 + step * 40 % 4000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for step in 0..30_000 {
                    let record = record(u8::try_from(step % 251).unwrap(), lens(step));
                    while writer.write(&record).unwrap().is_none() {
                        std::thread::yield_now();
                    }
                }
            });
            let mut out = [0; LONGEST];
            for step in 0..30_000 {
                let len = loop {
                    match reader.peek(&mut out).unwrap() {
                        Some(len) => break len,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(len, lens(step));
                let expected = u8::try_from(step % 251).unwrap();
                assert!(out[STATE_WORD..len].iter().all(|&byte| byte == expected));
                reader.pass(len);
            }
        });
        drop(bytes);
    }

    #[test]
    fn a_reader_is_woken_once_if_it_sleeps() {
        let ring = ring();
        assert!(!ring.writer.reader_sleeps());
        ring.reader.set_asleep(true);
        assert!(ring.writer.reader_sleeps());
        assert!(!ring.writer.reader_sleeps());
    }

    #[test]
    fn what_the_writer_takes_back_is_seen() {
        let mut ring = ring();
        let position = ring.writer.write(&record(0, 16)).unwrap().unwrap();
        let mut out = [0; LONGEST];
        assert_eq!(ring.reader.peek(&mut out), Ok(Some(16)));
        assert_eq!(ring.reader.state(), 0);
        ring.writer.set_state(position, 2);
        assert_eq!(ring.reader.state(), 2);
    }

    #[test]
    fn nonsense_from_the_other_end_is_refused() {
        let mut out = [0; LONGEST];
        for size in [4, 9, u32::try_from(LONGEST).unwrap() + 8, 1 << 31, SKIP] {
            let mut ring = ring();
            ring.reader.memory.record(0, SIZE_WORD).store(size, Ordering::Relaxed);
            assert_eq!(ring.reader.peek(&mut out), Err(Broken), "{size}");
        }
        let mut ring = ring();
        ring.reader.read = CAPACITY - 16;
        ring.reader.memory.record(CAPACITY - 16, SIZE_WORD).store(24, Ordering::Relaxed);
        assert_eq!(ring.reader.peek(&mut out), Err(Broken), "past the end");
        for read in [8, u64::MAX] {
            ring.reader.memory.read_to().store(read, Ordering::Relaxed);
            assert_eq!(ring.writer.look(), Err(Broken), "{read} were never written");
        }
    }
}
