//! One direction of a channel: records of bytes in memory that two processes share, written by one and
//! read by the other. A record's first word is its size, stored after everything else of it: zero where
//! nothing was written yet, so that the reader looks at one cache line, and a writer that dies in the middle
//! has written nothing. Records are written and read in place: payload is copied once into the ring and once out
//! of it. The other process is not trusted: what it stores is read once, and checked.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of records.
const RECORDS_BYTES: usize = 1 << 19;
pub(super) const CAPACITY: u64 = RECORDS_BYTES as u64;

/// Where records begin: before them are words that one end writes, each on a line of its own.
const RECORDS: usize = 4096;
const READ: usize = 0;
const ASLEEP: usize = 64;
const FULL: usize = 128;

/// Bytes of memory one ring takes.
pub(super) const RING_BYTES: usize = RECORDS + RECORDS_BYTES;

/// The longest record.
pub(super) const LONGEST: usize = 1 << 16;

/// Records begin, and end, at multiples of this: a cache line, so that the one that is polled and the one that is
/// written next to it are two.
pub(super) const ALIGN: usize = 64;

/// Where the size is in a record.
pub(super) const SIZE_WORD: usize = 0;

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

    fn size(self, position: u64) -> &'static AtomicU32 {
        self.word(offset(position) + SIZE_WORD)
    }

    /// Whether a flag is set; it is not from now on.
    fn take(self, flag: usize) -> bool {
        let flag = self.word(flag);
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0
    }
}

fn offset(position: u64) -> usize {
    RECORDS + usize::try_from(position % CAPACITY).expect("below the capacity")
}

/// The part of a record that is not written yet.
#[derive(Debug)]
pub(super) struct Room {
    next: NonNull<u8>,
    left: usize,
}

impl Room {
    /// Writes bytes there.
    ///
    /// # Panics
    /// If the record is not as long.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let to = self.take(bytes.len());
        // SAFETY: as many bytes of the ring, where the reader does not look before the record's size is there. A
        // process that breaks the rules may change them; nothing of Rust's refers to them.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Room for so many bytes, for the caller to write.
    ///
    /// # Panics
    /// If the record is not as long.
    pub(super) fn take(&mut self, len: usize) -> *mut u8 {
        assert!(len <= self.left, "what a record has room for");
        let to = self.next;
        // SAFETY: within the record, or right behind it.
        self.next = unsafe { to.add(len) };
        self.left -= len;
        to.as_ptr()
    }
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Memory,
    /// Bytes written, and of those read when last looked.
    written: u64,
    read: u64,
    /// There was no room, and the reader was told.
    waits: bool,
}

impl Writer {
    pub(super) const fn new(memory: Memory) -> Self {
        Self { memory, written: 0, read: 0, waits: false }
    }

    /// Whether a record of any length has room. Where not, the reader is told that it is waited for.
    ///
    /// # Errors
    /// The reader says that it read what was not written.
    pub(super) fn has_room(&mut self) -> Result<bool, Broken> {
        let room = self.fits(LONGEST) || self.look()?.fits(LONGEST);
        if self.waits == room {
            self.waits = !room;
            self.memory.word(FULL).store(self.waits.into(), Ordering::Relaxed);
        }
        Ok(room)
    }

    /// Where a record of this length would go, and how much of the end is left out for it. The word after a
    /// record says that there is none yet.
    fn place(&self, len: usize) -> (u64, u64) {
        let to_end = CAPACITY - self.written % CAPACITY;
        let skipped = if len as u64 > to_end { to_end } else { 0 };
        (self.written + skipped, skipped)
    }

    fn fits(&self, len: usize) -> bool {
        let (position, _) = self.place(len);
        position + len as u64 + ALIGN as u64 - self.read <= CAPACITY
    }

    /// Writes a record of `len` bytes, of which `lay` writes those after the first word.
    ///
    /// # Panics
    /// If it is longer than [`LONGEST`], or does not fit: the caller has asked.
    pub(super) fn write(&mut self, len: usize, lay: impl FnOnce(&mut Room)) {
        let len = len.next_multiple_of(ALIGN);
        assert!(len <= LONGEST && self.fits(len), "a record's size");
        let (position, skipped) = self.place(len);
        let next = position + len as u64;
        self.memory.size(next).store(0, Ordering::Relaxed);
        // SAFETY: the record lies within the ring.
        let start = unsafe { self.memory.0.add(offset(position) + SIZE_WORD + 4) };
        lay(&mut Room { next: start, left: len - 4 });
        let size = u32::try_from(len).expect("at most the longest");
        self.memory.size(position).store(size, Ordering::Release);
        if skipped > 0 {
            self.memory.size(self.written).store(SKIP, Ordering::Release);
        }
        self.written = next;
    }

    /// Sees how far the reader is.
    fn look(&mut self) -> Result<&Self, Broken> {
        let read = self.memory.read_to().load(Ordering::Acquire);
        if read < self.read || read > self.written {
            return Err(Broken);
        }
        self.read = read;
        Ok(self)
    }

    /// Whether the reader must be woken to see what was written before.
    pub(super) fn reader_sleeps(&self) -> bool {
        fence(Ordering::SeqCst);
        self.memory.take(ASLEEP)
    }
}

/// A record, where it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    start: NonNull<u8>,
    len: usize,
}

impl Unread {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Copies the record's beginning to `out`; how much of that there is.
    pub(super) fn copy_to(&self, out: &mut [u8]) -> usize {
        let len = self.len.min(out.len());
        // SAFETY: the record lies within the ring; what its writer changes meanwhile it does to itself.
        unsafe { core::ptr::copy_nonoverlapping(self.start.as_ptr(), out.as_mut_ptr(), len) };
        len
    }

    /// The bytes from here to there, which their writer may still change; `None` past the end.
    pub(super) fn bytes(&self, from: usize, len: usize) -> Option<*const u8> {
        let fits = from.checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: within the record.
        fits.then(|| unsafe { self.start.add(from) }.as_ptr().cast_const())
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

    /// The next record, if there is one. It is there until it is [passed](Self::pass).
    ///
    /// # Errors
    /// The writer wrote what is no record.
    pub(super) fn peek(&mut self) -> Result<Option<Unread>, Broken> {
        let mut size = self.memory.size(self.read).load(Ordering::Acquire);
        if size == SKIP {
            if self.read.is_multiple_of(CAPACITY) {
                return Err(Broken);
            }
            self.read = self.read.next_multiple_of(CAPACITY);
            size = self.memory.size(self.read).load(Ordering::Acquire);
        }
        let len = size as usize;
        if len == 0 {
            return Ok(None);
        }
        let to_end = CAPACITY - self.read % CAPACITY;
        if len > LONGEST || !len.is_multiple_of(ALIGN) || u64::from(size) > to_end {
            return Err(Broken);
        }
        // SAFETY: within the ring.
        let start = unsafe { self.memory.0.add(offset(self.read)) };
        Ok(Some(Unread { start, len }))
    }

    /// Is done with the record peeked at, of this length.
    pub(super) fn pass(&mut self, len: usize) {
        self.read += len as u64;
        self.memory.read_to().store(self.read, Ordering::Release);
    }

    /// Whether the writer waits for room. One that has begun to just now may be missed: it looks again by itself, a
    /// little later.
    pub(super) fn writer_waits(&self) -> bool {
        self.memory.word(FULL).load(Ordering::Relaxed) != 0
    }

    /// Whether there is nothing to read.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.memory.size(self.read).load(Ordering::Acquire) == 0
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

    /// Writes a record of `len` bytes all the same; whether there was room.
    fn write(writer: &mut Writer, number: u8, len: usize) -> bool {
        let room = writer.has_room().unwrap();
        if room {
            writer.write(len, |room| room.put(&vec![number; len - 4]));
        }
        room
    }

    fn read(reader: &mut Reader) -> Option<Vec<u8>> {
        let record = reader.peek().unwrap()?;
        let mut out = vec![0; LONGEST];
        let len = record.copy_to(&mut out);
        reader.pass(record.len());
        Some(out[4..len].to_vec())
    }

    #[test]
    fn records_come_out_as_they_went_in_round_after_round() {
        let mut ring = ring();
        let mut waiting = std::collections::VecDeque::new();
        let mut written = 0;
        for step in 0..20_000_usize {
            let (number, len) = (u8::try_from(step % 251).unwrap(), 8 + step * 56 % (LONGEST - 8));
            if write(&mut ring.writer, number, len) {
                written += len;
                waiting.push_back(vec![number; len - 4]);
            } else {
                assert!(waiting.len() >= 6, "half a megabyte has room for as many");
                for _ in 0..waiting.len() / 2 {
                    let (got, expected) = (read(&mut ring.reader), waiting.pop_front().unwrap());
                    assert_eq!(got.unwrap()[..expected.len()], expected);
                }
            }
        }
        while let Some(expected) = waiting.pop_front() {
            assert_eq!(read(&mut ring.reader).unwrap()[..expected.len()], expected);
        }
        assert!(read(&mut ring.reader).is_none() && ring.reader.is_empty());
        assert!(written > 20 * RECORDS_BYTES);
    }

    #[test]
    fn two_threads_lose_nothing() {
        let Ring { mut writer, mut reader, bytes } = ring();
        let lens = |step: usize| 8 + step * 40 % 4000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for step in 0..30_000 {
                    while !write(&mut writer, u8::try_from(step % 251).unwrap(), lens(step)) {
                        std::thread::yield_now();
                    }
                }
            });
            for step in 0..30_000 {
                let got = loop {
                    match read(&mut reader) {
                        Some(got) => break got,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(got.len() + 4, lens(step).next_multiple_of(ALIGN));
                let expected = u8::try_from(step % 251).unwrap();
                assert!(got[..lens(step) - 4].iter().all(|&byte| byte == expected));
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
    fn a_writer_waits_while_it_has_no_room() {
        let Ring { mut writer, mut reader, bytes } = ring();
        assert!(write(&mut writer, 1, LONGEST));
        assert!(!reader.writer_waits(), "it has room");
        while write(&mut writer, 1, LONGEST) {}
        read(&mut reader).unwrap();
        assert!(reader.writer_waits());
        assert!(write(&mut writer, 1, LONGEST));
        assert!(!reader.writer_waits());
        drop(bytes);
    }

    #[test]
    fn what_lies_past_the_end_of_a_record_is_not_given() {
        let mut ring = ring();
        assert!(write(&mut ring.writer, 7, 100));
        let record = ring.reader.peek().unwrap().unwrap();
        assert!(record.bytes(4, 124).is_some() && record.bytes(128, 0).is_some());
        assert!(record.bytes(4, 125).is_none() && record.bytes(usize::MAX, 2).is_none());
    }

    #[test]
    fn nonsense_from_the_other_end_is_refused() {
        for size in [4, 65, u32::try_from(LONGEST).unwrap() + 64, 1 << 31, SKIP] {
            let mut ring = ring();
            ring.reader.memory.size(0).store(size, Ordering::Relaxed);
            assert_eq!(ring.reader.peek().map(drop), Err(Broken), "{size}");
        }
        let mut ring = ring();
        ring.reader.read = CAPACITY - 64;
        ring.reader.memory.size(CAPACITY - 64).store(128, Ordering::Relaxed);
        assert_eq!(ring.reader.peek().map(drop), Err(Broken), "past the end");
        for read in [8, u64::MAX] {
            ring.reader.memory.read_to().store(read, Ordering::Relaxed);
            assert_eq!(ring.writer.look().map(drop), Err(Broken), "{read} were never written");
        }
    }
}
