//! Page-aligned memory, and the content of messages: each word names its message and its place, so that a word of another message,
//! or of another place, is found.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Alignment of a buffer, bytes.
const ALIGN: usize = 4_096;

/// Memory of a fixed size, which several threads may access: a plugin writes to it.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pointer is to memory of this value, which is accessed through raw pointers alone.
unsafe impl Send for Buffer {}
// SAFETY: likewise.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), ALIGN).expect("a buffer fits in memory")
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of a byte.
    ///
    /// # Panics
    /// Panics if the buffer is shorter.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "byte {offset} of {}", self.len);
        // SAFETY: the byte lies in the buffer, or just behind it.
        unsafe { self.start.add(offset) }
    }

    /// Writes the content of a message.
    pub(crate) fn fill(&self, offset: usize, size: usize, number: u64) {
        let to = self.at(offset);
        assert!(offset + size <= self.len, "a message of {size} bytes at {offset}");
        for place in 0..size / 8 {
            // SAFETY: the word lies in the buffer.
            unsafe { to.cast::<u64>().add(place).write_unaligned(word(number, place)) };
        }
        for place in size / 8 * 8..size {
            // SAFETY: the byte lies in the buffer.
            unsafe { to.add(place).write(byte(number, place)) };
        }
    }

    /// Writes a byte to all places.
    pub(crate) fn clear(&self, offset: usize, size: usize, value: u8) {
        assert!(offset + size <= self.len, "{size} bytes at {offset}");
        // SAFETY: the range lies in the buffer.
        unsafe { self.at(offset).write_bytes(value, size) };
    }

    /// Checks the content of a message, and that the bytes behind it, up to `room`, still have the value of [`Self::clear`].
    ///
    /// # Errors
    /// Names the first place that differs.
    pub(crate) fn check(
        &self,
        offset: usize,
        size: usize,
        number: u64,
        room: usize,
        behind: u8,
    ) -> Result<(), String> {
        let from = self.at(offset);
        assert!(offset + room.max(size) <= self.len, "a message of {size} bytes at {offset}");
        for place in 0..size / 8 {
            // SAFETY: the word lies in the buffer.
            let found = unsafe { from.cast::<u64>().add(place).read_unaligned() };
            if found != word(number, place) {
                return Err(format!(
                    "message {number} of {size} bytes differs at byte {}: {found:#018x} instead of {:#018x}",
                    place * 8,
                    word(number, place)
                ));
            }
        }
        for place in size / 8 * 8..room {
            // SAFETY: the byte lies in the buffer.
            let found = unsafe { from.add(place).read() };
            let expected = if place < size { byte(number, place) } else { behind };
            if found != expected {
                let of = if place < size { "" } else { ", behind its end" };
                return Err(format!(
                    "message {number} of {size} bytes differs at byte {place}{of}: {found:#04x} instead of {expected:#04x}"
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.start, Self::layout(self.len)) };
    }
}

/// Returns a word of a message: every message and every place has its own.
fn word(number: u64, place: usize) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (place as u64).wrapping_mul(0xd134_2543_de82_ef95)
}

fn byte(number: u64, place: usize) -> u8 {
    word(number, place).to_le_bytes()[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_another_message_or_behind_the_end_is_found() {
        let buffer = Buffer::new(4_096);
        for size in [0, 1, 7, 8, 9, 1_000] {
            buffer.clear(64, 1_100, 0xa5);
            buffer.fill(64, size, 7);
            buffer.check(64, size, 7, 1_100, 0xa5).unwrap();
            for place in [0, size / 2, size.saturating_sub(1), size, 1_099] {
                // SAFETY: the byte lies in the buffer.
                let flip = || unsafe { *buffer.at(64 + place) ^= 0x10 };
                flip();
                let found = buffer.check(64, size, 7, 1_100, 0xa5).unwrap_err();
                assert!(found.contains(&format!("{size} bytes differs")), "{found}");
                flip();
            }
        }
        buffer.fill(0, 64, 1);
        assert!(buffer.check(0, 64, 2, 64, 0).is_err());
    }
}
