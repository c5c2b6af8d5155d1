//! One direction of a channel: records of bytes in memory that two processes share, written by one
//! and read by the other. A record's first word is its size, stored after the rest of the record
//! and zero before that, so that the reader polls one cache line, and a writer that dies in the
//! middle has written nothing. Records are written and read in place: payload is copied once into
//! the ring and once out of it. The other process is not trusted: its values are read once and
//! checked.

use core::sync::atomic::Ordering;

use crate::memory::{Mapped, Memory, Word};
use crate::signal;

/// Bytes of records in a production ring.
const RECORDS_BYTES: usize = 1 << 19;
/// Bytes of records in a production ring, as a position.
pub const CAPACITY: u64 = RECORDS_BYTES as u64;

/// Offset of the records: before them are words that one end writes, each on its own cache line.
pub const RECORDS: usize = 4096;
/// Offset of the long word with the bytes that the reader has passed.
pub(crate) const READ: usize = 0;
/// Offset of the flag of a reader that sleeps.
pub(crate) const ASLEEP: usize = 64;
/// Offset of the flag of a writer that waits for room.
pub(crate) const FULL: usize = 128;

/// Bytes of memory of one ring.
pub const RING_BYTES: usize = RECORDS + RECORDS_BYTES;

/// Bytes of the longest record.
pub const MAX_RECORD: usize = 1 << 16;

/// Alignment of records, bytes: a cache line, so that the polled record and the one written next to
/// it never share one.
pub const ALIGN: usize = 64;

/// Offset of the size in a record.
const SIZE_WORD: usize = 0;

/// A value of the size word: the next record is at the ring's start.
const SKIP: u32 = u32::MAX;

/// The other process violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolViolation;

/// Memory of a ring: initially zero, [`RING_BYTES`] long in production. The models' rings are a few
/// records long.
pub trait RecordMemory: Memory + Clone {
    /// Bytes of records.
    const CAPACITY: u64 = CAPACITY;
    /// Bytes of the longest record.
    const MAX_RECORD_BYTES: usize = MAX_RECORD;
}

impl RecordMemory for Mapped {}

#[inline]
fn size_word<M: RecordMemory>(memory: &M, position: u64) -> &M::Word {
    memory.word(offset::<M>(position) + SIZE_WORD)
}

#[inline]
fn offset<M: RecordMemory>(position: u64) -> usize {
    RECORDS + usize::try_from(position % M::CAPACITY).expect("below the capacity")
}

/// The unwritten part of a record.
#[derive(Debug)]
pub struct Room<M = Mapped> {
    memory: M,
    next: usize,
    left: usize,
}

impl<M: Memory> Room<M> {
    /// Writes bytes there: the reader does not read them before the record's size is stored.
    ///
    /// # Panics
    /// If the record has less room.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        let to = self.advance(bytes.len());
        self.memory.write(to, bytes);
    }

    #[inline]
    fn advance(&mut self, len: usize) -> usize {
        assert!(len <= self.left, "what a record has room for");
        let to = self.next;
        self.next += len;
        self.left -= len;
        to
    }
}

impl Room {
    /// Returns the address of room for `len` bytes, for the caller to write.
    ///
    /// # Panics
    /// If the record has less room.
    #[inline]
    pub fn take(&mut self, len: usize) -> *mut u8 {
        let to = self.advance(len);
        self.memory.pointer(to, len)
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Writer<M = Mapped> {
    memory: M,
    /// Bytes written, with those skipped at the ring's end.
    written: u64,
    /// The reader's position when it was last loaded, bytes.
    read: u64,
    /// `true` if there was no room and the reader was notified.
    waits: bool,
}

impl<M: RecordMemory> Writer<M> {
    /// Returns the writing end of a ring in this memory.
    pub const fn new(memory: M) -> Self {
        Self { memory, written: 0, read: 0, waits: false }
    }

    /// Returns `true` if a record of any length has room. Otherwise the reader is notified that the
    /// writer waits.
    ///
    /// # Errors
    /// The reader's position is beyond the written records.
    pub fn has_room(&mut self) -> Result<bool, ProtocolViolation> {
        let room =
            self.fits(M::MAX_RECORD_BYTES) || self.load_read_position()?.fits(M::MAX_RECORD_BYTES);
        if self.waits == room {
            self.waits = !room;
            self.memory.word(FULL).store(self.waits.into(), Ordering::Relaxed);
        }
        Ok(room)
    }

    /// Returns the position of a record of this length, and the bytes skipped at the ring's end.
    /// The word after a record is zero: no next record yet.
    fn place(&self, len: usize) -> (u64, u64) {
        let to_end = M::CAPACITY - self.written % M::CAPACITY;
        let skipped = if len as u64 > to_end { to_end } else { 0 };
        (self.written + skipped, skipped)
    }

    fn fits(&self, len: usize) -> bool {
        let (position, _) = self.place(len);
        position + len as u64 + ALIGN as u64 - self.read <= M::CAPACITY
    }

    /// Writes a record of `len` bytes; `lay` writes those after the first word of 4 bytes, the record's size.
    ///
    /// # Panics
    /// If it is longer than [`MAX_RECORD`], or does not fit: the caller must check
    /// [`has_room`](Self::has_room) first.
    pub fn write(&mut self, len: usize, lay: impl FnOnce(&mut Room<M>)) {
        let len = len.next_multiple_of(ALIGN);
        assert!(len <= M::MAX_RECORD_BYTES && self.fits(len), "a record's size");
        let (position, skipped) = self.place(len);
        let next = position + len as u64;
        size_word(&self.memory, next).store(0, Ordering::Relaxed);
        let start = offset::<M>(position) + SIZE_WORD + 4;
        lay(&mut Room { memory: self.memory.clone(), next: start, left: len - 4 });
        let size = u32::try_from(len).expect("at most the longest");
        size_word(&self.memory, position).store(size, Ordering::Release);
        if skipped > 0 {
            size_word(&self.memory, self.written).store(SKIP, Ordering::Release);
        }
        self.written = next;
    }

    /// Returns the bytes written so far, with those skipped at the ring's end. For tests and fuzz
    /// targets.
    #[doc(hidden)]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Loads the reader's position.
    fn load_read_position(&mut self) -> Result<&Self, ProtocolViolation> {
        let read = self.memory.long(READ).load(Ordering::Acquire);
        if read < self.read || read > self.written {
            return Err(ProtocolViolation);
        }
        self.read = read;
        Ok(self)
    }

    /// Returns `true` if the reader must be woken to see the records written before.
    pub fn reader_sleeps(&self) -> bool {
        signal::is_armed::<M>(self.memory.word(ASLEEP))
    }
}

/// A record in the place where it was written.
#[derive(Clone, Copy, Debug)]
pub struct Unread<M = Mapped> {
    memory: M,
    start: usize,
    len: usize,
}

impl<M: Memory> Unread<M> {
    /// Returns the record's length, bytes.
    #[expect(clippy::len_without_is_empty, reason = "no record is empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies the record's beginning to `out`; returns the number of bytes copied. A writer that
    /// changes it meanwhile harms only itself.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let len = self.len.min(out.len());
        self.memory.read(self.start, &mut out[..len]);
        len
    }
}

impl Unread {
    /// Returns the address of `len` bytes at offset `from` of the record, or `None` if they extend past its end. The
    /// writer may still change them.
    #[inline]
    pub fn bytes(&self, from: usize, len: usize) -> Option<*const u8> {
        let fits = from.checked_add(len).is_some_and(|end| end <= self.len);
        fits.then(|| self.memory.pointer(self.start + from, len).cast_const())
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<M = Mapped> {
    memory: M,
    read: u64,
}

impl<M: RecordMemory> Reader<M> {
    /// Returns the reading end of a ring in this memory.
    pub const fn new(memory: M) -> Self {
        Self { memory, read: 0 }
    }

    /// Returns the bytes released so far, with those skipped at the ring's end. For tests and fuzz
    /// targets.
    #[doc(hidden)]
    pub const fn released(&self) -> u64 {
        self.read
    }

    /// Returns the next record, if there is one. It stays there until it is [released](Self::release).
    ///
    /// # Errors
    /// The writer wrote an invalid record.
    pub fn peek(&mut self) -> Result<Option<Unread<M>>, ProtocolViolation> {
        let mut size = size_word(&self.memory, self.read).load(Ordering::Acquire);
        if size == SKIP {
            if self.read.is_multiple_of(M::CAPACITY) {
                return Err(ProtocolViolation);
            }
            self.read = self.read.next_multiple_of(M::CAPACITY);
            size = size_word(&self.memory, self.read).load(Ordering::Acquire);
        }
        let len = size as usize;
        if len == 0 {
            return Ok(None);
        }
        let to_end = M::CAPACITY - self.read % M::CAPACITY;
        if len > M::MAX_RECORD_BYTES || !len.is_multiple_of(ALIGN) || u64::from(size) > to_end {
            return Err(ProtocolViolation);
        }
        let start = offset::<M>(self.read);
        Ok(Some(Unread { memory: self.memory.clone(), start, len }))
    }

    /// Releases the peeked record. `len` is its length, bytes.
    pub fn release(&mut self, len: usize) {
        self.read += len as u64;
        self.memory.long(READ).store(self.read, Ordering::Release);
    }

    /// Returns `true` if the writer waits for room. A wait that has just begun may be missed: the
    /// writer checks again a little later.
    pub fn writer_waits(&self) -> bool {
        self.memory.word(FULL).load(Ordering::Relaxed) != 0
    }

    /// Returns `true` if there is nothing to read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        size_word(&self.memory, self.read).load(Ordering::Acquire) == 0
    }

    /// Sets whether this end sleeps and must be woken. A record written before this call does not wake it: the caller
    /// must check for one after this call.
    pub fn set_asleep(&self, asleep: bool) {
        self.memory.word(ASLEEP).store(asleep.into(), Ordering::SeqCst);
        M::fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    /// Steps of a test, fewer under Miri, which is a thousand times as slow.
    const fn steps(count: usize) -> usize {
        if cfg!(miri) { count / 1000 } else { count }
    }

    /// A ring in this process's memory, with both ends.
    struct Ring {
        writer: Writer,
        reader: Reader,
        heap: Heap,
    }

    fn ring() -> Ring {
        let heap = Heap::new(RING_BYTES);
        Ring { writer: Writer::new(heap.memory), reader: Reader::new(heap.memory), heap }
    }

    /// Writes a record of `len` bytes if there is room; returns `true` if it did.
    fn write(writer: &mut Writer, number: u8, len: usize) -> bool {
        let room = writer.has_room().unwrap();
        if room {
            writer.write(len, |room| room.put(&vec![number; len - 4]));
        }
        room
    }

    fn read(reader: &mut Reader) -> Option<Vec<u8>> {
        let record = reader.peek().unwrap()?;
        let mut out = vec![0; MAX_RECORD];
        let len = record.copy_to(&mut out);
        reader.release(record.len());
        Some(out[4..len].to_vec())
    }

    #[test]
    fn records_are_read_in_the_order_in_which_they_were_written() {
        let mut ring = ring();
        let mut waiting = std::collections::VecDeque::new();
        let mut written = 0;
        for step in 0..steps(20_000) {
            let (number, len) =
                (u8::try_from(step % 251).unwrap(), 8 + step * 56 % (MAX_RECORD - 8));
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
        assert!(written > steps(20_000) / 1000 * RECORDS_BYTES);
    }

    #[test]
    fn two_threads_lose_nothing() {
        let Ring { mut writer, mut reader, heap } = ring();
        let lens = |step: usize| 8 + step * 40 % 4000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for step in 0..steps(30_000) {
                    while !write(&mut writer, u8::try_from(step % 251).unwrap(), lens(step)) {
                        std::thread::yield_now();
                    }
                }
            });
            for step in 0..steps(30_000) {
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
        drop(heap);
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
        let Ring { mut writer, mut reader, heap } = ring();
        assert!(write(&mut writer, 1, MAX_RECORD));
        assert!(!reader.writer_waits(), "it has room");
        while write(&mut writer, 1, MAX_RECORD) {}
        read(&mut reader).unwrap();
        assert!(reader.writer_waits());
        assert!(write(&mut writer, 1, MAX_RECORD));
        assert!(!reader.writer_waits());
        drop(heap);
    }

    #[test]
    fn bytes_past_the_end_of_a_record_are_not_returned() {
        let mut ring = ring();
        assert!(write(&mut ring.writer, 7, 100));
        let record = ring.reader.peek().unwrap().unwrap();
        assert!(record.bytes(4, 124).is_some() && record.bytes(128, 0).is_some());
        assert!(record.bytes(4, 125).is_none() && record.bytes(usize::MAX, 2).is_none());
    }

    #[test]
    fn nonsense_from_the_other_end_is_refused() {
        for size in [4, 65, u32::try_from(MAX_RECORD).unwrap() + 64, 1 << 31, SKIP] {
            let mut ring = ring();
            size_word(&ring.reader.memory, 0).store(size, Ordering::Relaxed);
            assert_eq!(ring.reader.peek().map(drop), Err(ProtocolViolation), "{size}");
        }
        let mut ring = ring();
        ring.reader.read = CAPACITY - 64;
        size_word(&ring.reader.memory, CAPACITY - 64).store(128, Ordering::Relaxed);
        assert_eq!(ring.reader.peek().map(drop), Err(ProtocolViolation), "past the end");
        for read in [8, u64::MAX] {
            ring.reader.memory.long(READ).store(read, Ordering::Relaxed);
            assert_eq!(
                ring.writer.load_read_position().map(drop),
                Err(ProtocolViolation),
                "{read} were never written"
            );
        }
    }
}
