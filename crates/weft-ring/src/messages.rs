//! A ring of messages in shared memory: one side appends, the other removes. Each keeps its own
//! index privately and checks the other's for plausibility. A message is its length, 4 bytes, and
//! its bytes; it may begin anywhere and wrap at the ring's end.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::memory::{Memory, Word};

/// The place of a ring in its memory.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Offset of the word with the index of the next byte to remove.
    pub head: usize,
    /// Offset of the word with the index of the next byte to append.
    pub tail: usize,
    /// Offset of the ring's bytes.
    pub start: usize,
    /// Number of the ring's bytes: a power of two, as indices wrap.
    pub len: u32,
}

impl Lane {
    /// Returns the offset of the byte at an index, and the number of the `len` bytes that lie before the ring's end.
    ///
    /// # Panics
    /// If `len` is larger than the ring.
    fn cut(self, index: u32, len: usize) -> (usize, usize) {
        assert!(len <= self.len as usize, "a message fits into its ring");
        let at = (index & (self.len - 1)) as usize;
        (self.start + at, len.min(self.len as usize - at))
    }

    /// Copies bytes into the ring, from index `index` on.
    ///
    /// # Panics
    /// If there are more bytes than the ring has.
    #[inline]
    pub fn write(self, memory: &impl Memory, index: u32, bytes: &[u8]) {
        let (at, first) = self.cut(index, bytes.len());
        memory.write(at, &bytes[..first]);
        memory.write(self.start, &bytes[first..]);
    }

    /// Copies bytes out of the ring, from index `index` on. The other side may change them
    /// meanwhile: callers use only the copy.
    ///
    /// # Panics
    /// If there are more bytes than the ring has.
    #[inline]
    pub fn read(self, memory: &impl Memory, index: u32, bytes: &mut [u8]) {
        let (at, first) = self.cut(index, bytes.len());
        let (bytes, rest) = bytes.split_at_mut(first);
        memory.read(at, bytes);
        memory.read(self.start, rest);
    }
}

/// Bytes of the longest message: a request with the maximum number of pieces or of inline data.
pub const MAX_MESSAGE: usize = 2 << 10;

/// Bytes of a message's length.
const LENGTH: u32 = 4;

/// The other side's index, or a message's length, is impossible: the other side is faulty or
/// hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared ring holds what cannot be")]
pub struct Corrupt;

/// The appending side.
#[derive(Debug)]
pub struct Producer {
    lane: Lane,
    tail: u32,
}

/// The removing side.
#[derive(Debug)]
pub struct Consumer {
    lane: Lane,
    head: u32,
}

impl Producer {
    /// Returns the appending side of a ring.
    pub const fn new(lane: Lane) -> Self {
        Self { lane, tail: 0 }
    }

    /// Returns the appending side of a ring whose indices are both at `tail`. For tests and fuzz targets.
    #[doc(hidden)]
    pub const fn at(lane: Lane, tail: u32) -> Self {
        Self { lane, tail }
    }

    /// Returns the index of appended bytes. For tests and fuzz targets.
    #[doc(hidden)]
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// Returns `true` if there is room for a message of `len` bytes.
    ///
    /// # Errors
    /// The other side's index is impossible.
    pub fn has_room(&self, memory: &impl Memory, len: usize) -> Result<bool, Corrupt> {
        let head = memory.word(self.lane.head).load(Ordering::Acquire);
        let used = self.tail.wrapping_sub(head);
        let room = self.lane.len.checked_sub(used).ok_or(Corrupt)?;
        Ok(room.checked_sub(LENGTH).is_some_and(|room| len <= room as usize))
    }

    /// Appends a message of at most [`MAX_MESSAGE`] bytes: the consumer refuses a longer one. Returns `false` if there
    /// is no room.
    ///
    /// # Errors
    /// The other side's index is impossible.
    pub fn push(&mut self, memory: &impl Memory, message: &[u8]) -> Result<bool, Corrupt> {
        if !self.has_room(memory, message.len())? {
            return Ok(false);
        }
        let len = u32::try_from(message.len()).expect("it fits into the ring");
        self.lane.write(memory, self.tail, &len.to_ne_bytes());
        self.lane.write(memory, self.tail.wrapping_add(LENGTH), message);
        self.tail = self.tail.wrapping_add(LENGTH + len);
        memory.word(self.lane.tail).store(self.tail, Ordering::Release);
        Ok(true)
    }
}

impl Consumer {
    /// Returns the removing side of a ring.
    pub const fn new(lane: Lane) -> Self {
        Self { lane, head: 0 }
    }

    /// Returns the removing side of a ring whose indices are both at `head`. For tests and fuzz
    /// targets.
    #[doc(hidden)]
    pub const fn at(lane: Lane, head: u32) -> Self {
        Self { lane, head }
    }

    /// Returns `true` if there is a message, or an impossible index, which [`pop`](Self::pop) refuses.
    pub fn has_any(&self, memory: &impl Memory) -> bool {
        memory.word(self.lane.tail).load(Ordering::Acquire) != self.head
    }

    /// Moves the next message into `message`; returns `false` if there is none.
    ///
    /// # Errors
    /// The other side's index, or the message's length, is impossible.
    pub fn pop(&mut self, memory: &impl Memory, message: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let tail = memory.word(self.lane.tail).load(Ordering::Acquire);
        let used = tail.wrapping_sub(self.head);
        if used == 0 {
            return Ok(false);
        }
        if !(LENGTH..=self.lane.len).contains(&used) {
            return Err(Corrupt);
        }
        let mut len = [0; LENGTH as usize];
        self.lane.read(memory, self.head, &mut len);
        let len = u32::from_ne_bytes(len);
        if len as usize > MAX_MESSAGE || len > used - LENGTH {
            return Err(Corrupt);
        }
        message.resize(len as usize, 0);
        self.lane.read(memory, self.head.wrapping_add(LENGTH), message);
        self.head = self.head.wrapping_add(LENGTH + len);
        memory.word(self.lane.head).store(self.head, Ordering::Release);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weft_units::Seed;

    use super::*;
    use crate::memory::Heap;

    const LANE: Lane = Lane { head: 0, tail: 64, start: 128, len: 1 << 18 };

    fn pair() -> (Heap, Producer, Consumer) {
        let heap = Heap::new(LANE.start + LANE.len as usize);
        (heap, Producer::new(LANE), Consumer::new(LANE))
    }

    /// Any order of pushes and pops gives the results of a queue.
    #[test]
    fn messages_are_removed_in_the_order_in_which_they_were_appended() {
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let (heap, mut producer, mut consumer) = pair();
            let mut rng = Seed(seed).child("ring", 0).rng();
            let (mut model, mut message) = (VecDeque::new(), Vec::new());
            for step in 0..if cfg!(miri) { 300 } else { 4_000 } {
                if rng.below(5) < 3 {
                    let len = usize::try_from(rng.below(MAX_MESSAGE as u64 + 1)).unwrap();
                    let bytes = vec![u8::try_from(step % 251).unwrap(); len];
                    if producer.push(&heap.memory, &bytes).unwrap() {
                        model.push_back(bytes);
                    } else {
                        assert!(model.len() > 50, "seed {seed}: refused with room");
                    }
                } else {
                    let expected = model.pop_front();
                    let taken = consumer.pop(&heap.memory, &mut message).unwrap();
                    assert_eq!(taken.then_some(&message), expected.as_ref(), "seed {seed}");
                }
            }
        }
    }

    /// The length of an empty message alone would overwrite unread bytes.
    #[test]
    fn an_empty_message_needs_room_for_its_length() {
        let (heap, mut producer, _consumer) = pair();
        for left in 0..LENGTH {
            producer.tail = LANE.len - left;
            assert_eq!(producer.push(&heap.memory, &[]), Ok(false), "{left} bytes are left");
        }
        producer.tail = LANE.len - LENGTH;
        assert_eq!(producer.push(&heap.memory, &[]), Ok(true));
    }

    #[test]
    fn impossible_indices_and_lengths_are_refused() {
        let (heap, mut producer, mut consumer) = pair();
        let mut message = Vec::new();
        let tail = heap.memory.word(LANE.tail);
        for claimed in [1, 3, LANE.len + 1, u32::MAX] {
            tail.store(claimed, Ordering::Release);
            assert_eq!(consumer.pop(&heap.memory, &mut message), Err(Corrupt), "{claimed}");
        }
        tail.store(100, Ordering::Release);
        for len in [97, u32::MAX, u32::try_from(MAX_MESSAGE).unwrap() + 1] {
            LANE.write(&heap.memory, 0, &len.to_ne_bytes());
            assert_eq!(consumer.pop(&heap.memory, &mut message), Err(Corrupt), "{len}");
        }
        heap.memory.word(LANE.head).store(5, Ordering::Release);
        assert_eq!(producer.push(&heap.memory, b"more was taken than was there"), Err(Corrupt));
    }

    #[test]
    fn an_empty_message_is_a_message() {
        let (heap, mut producer, mut consumer) = pair();
        let mut message = vec![1];
        assert_eq!(producer.push(&heap.memory, &[]), Ok(true));
        assert!(consumer.has_any(&heap.memory));
        assert_eq!(consumer.pop(&heap.memory, &mut message), Ok(true));
        assert!(message.is_empty() && !consumer.has_any(&heap.memory));
        assert_eq!(consumer.pop(&heap.memory, &mut message), Ok(false));
    }
}
