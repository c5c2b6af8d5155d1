//! Frames in this process's own memory, and the pool of their buffers.

use std::io::{IoSlice, IoSliceMut};

use crate::{MAX_FRAME, PortError};

/// Bytes of a small buffer: an Ethernet frame of 1,500 bytes with everything that may precede it.
const SMALL: usize = 2_048;

/// Bytes of a large buffer: with a small one before it, room for every frame.
const LARGE: usize = MAX_FRAME as usize - SMALL;

/// A frame of up to [`MAX_FRAME`] bytes: a small buffer, followed by a large one if needed.
#[derive(Debug)]
pub(crate) struct Frame {
    small: Box<[u8]>,
    large: Option<Box<[u8]>>,
    len: u32,
}

impl Frame {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the bytes of memory that it occupies.
    pub(crate) fn memory(&self) -> usize {
        self.small.len() + self.large.as_ref().map_or(0, |large| large.len())
    }

    /// Returns its bytes, in up to two pieces.
    pub(crate) fn pieces(&self) -> (&[u8], &[u8]) {
        let len = self.len as usize;
        let (first, rest) = (len.min(SMALL), len.saturating_sub(SMALL));
        (&self.small[..first], self.large.as_ref().map_or(&[], |large| &large[..rest]))
    }

    pub(crate) fn pieces_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let len = self.len as usize;
        let (first, rest) = (len.min(SMALL), len.saturating_sub(SMALL));
        (&mut self.small[..first], self.large.as_mut().map_or(&mut [], |large| &mut large[..rest]))
    }

    /// Returns its bytes for `writev`.
    pub(crate) fn io_slices(&self) -> [IoSlice<'_>; 2] {
        let (first, rest) = self.pieces();
        [IoSlice::new(first), IoSlice::new(rest)]
    }

    /// Copies `out.len()` bytes from `offset` on to `out`; bytes after the frame's end are zero.
    ///
    /// # Errors
    /// The bytes reach past the frame's end.
    pub(crate) fn read(&self, offset: u32, out: &mut [u8]) -> Result<(), PortError> {
        let within = within(self.len, offset, out.len());
        let (first, rest) = self.pieces();
        let offset = offset as usize;
        let here = first.get(offset..).unwrap_or(&[]);
        let (head, tail) = out.split_at_mut(here.len().min(out.len()));
        head.copy_from_slice(&here[..head.len()]);
        let there = rest.get((offset + head.len()).saturating_sub(SMALL)..).unwrap_or(&[]);
        let behind = there.len().min(tail.len());
        tail[..behind].copy_from_slice(&there[..behind]);
        tail[behind..].fill(0);
        within
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// They reach past the frame's end; nothing is written.
    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), PortError> {
        within(self.len, offset, bytes.len())?;
        let offset = offset as usize;
        let (first, rest) = self.pieces_mut();
        let here = first.get_mut(offset..).unwrap_or(&mut []);
        let (head, tail) = bytes.split_at(here.len().min(bytes.len()));
        here[..head.len()].copy_from_slice(head);
        if !tail.is_empty() {
            let start = offset + head.len() - SMALL;
            rest[start..start + tail.len()].copy_from_slice(tail);
        }
        Ok(())
    }
}

/// Checks that `count` bytes from `offset` on lie within a frame of `len` bytes.
///
/// # Errors
/// [`PortError::OutOfFrame`] if they do not.
pub(crate) fn within(len: u32, offset: u32, count: usize) -> Result<(), PortError> {
    let end = u64::from(offset) + count as u64;
    if end > u64::from(len) {
        return Err(PortError::OutOfFrame { offset, end, len });
    }
    Ok(())
}

/// A pool of free buffers. It grows on demand and frees buffers that stay unused.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    small: FreeList,
    large: FreeList,
}

/// Free buffers of one size.
#[derive(Debug, Default)]
struct FreeList {
    free: Vec<Box<[u8]>>,
    /// The minimum number of free buffers since the last trim: those were unused.
    idle: usize,
}

impl FreeList {
    fn take(&mut self, size: usize) -> Box<[u8]> {
        let buffer = self.free.pop().unwrap_or_else(|| vec![0; size].into_boxed_slice());
        self.idle = self.idle.min(self.free.len());
        buffer
    }

    fn trim(&mut self) {
        let kept = self.free.len() - self.idle.div_ceil(2);
        self.free.truncate(kept);
        self.idle = self.free.len();
    }
}

impl Pool {
    /// Returns a frame of `len` bytes, at most [`MAX_FRAME`], with bytes of earlier frames in it.
    pub(crate) fn frame(&mut self, len: u32) -> Frame {
        let large = (len as usize > SMALL).then(|| self.large.take(LARGE));
        Frame { small: self.small.take(SMALL), large, len: len.min(MAX_FRAME) }
    }

    /// Returns a frame filled by `fill`, which gets room for the longest frame and returns the
    /// length used.
    pub(crate) fn frame_from<E>(
        &mut self,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Frame, E> {
        let mut frame = self.frame(MAX_FRAME);
        let mut room = [
            IoSliceMut::new(&mut frame.small),
            IoSliceMut::new(frame.large.as_mut().expect("the longest frame has both buffers")),
        ];
        match fill(&mut room) {
            Ok(len) => {
                if len <= SMALL {
                    self.large.free.extend(frame.large.take());
                }
                frame.len = u32::try_from(len).map_or(MAX_FRAME, |len| len.min(MAX_FRAME));
                Ok(frame)
            }
            Err(error) => {
                self.put(frame);
                Err(error)
            }
        }
    }

    /// Returns a frame's buffers to the pool.
    pub(crate) fn put(&mut self, frame: Frame) {
        self.small.free.push(frame.small);
        self.large.free.extend(frame.large);
    }

    /// Frees half of the buffers that were unused since the last call. If called every second, a
    /// pool grown by a burst is empty again after a few seconds.
    pub(crate) fn trim(&mut self) {
        self.small.trim();
        self.large.trim();
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn pieces_of_any_place_and_length_are_read_as_they_were_written() {
        let mut rng = Seed(1).child("frame", 0).rng();
        let mut pool = Pool::default();
        for round in 0..300 {
            let len = 1 + rng.index(MAX_FRAME as usize);
            let mut frame = pool.frame(u32::try_from(len).unwrap());
            let mut model = vec![0; len];
            frame.write(0, &model).unwrap();
            for _ in 0..20 {
                let start = rng.index(len);
                let piece: Vec<u8> = (0..rng.index(len - start + 1))
                    .map(|_| rng.next_u32().to_le_bytes()[0])
                    .collect();
                frame.write(u32::try_from(start).unwrap(), &piece).unwrap();
                model[start..start + piece.len()].copy_from_slice(&piece);
            }
            let start = rng.index(len);
            let mut out = vec![1; rng.index(len - start + 1)];
            frame.read(u32::try_from(start).unwrap(), &mut out).unwrap();
            assert_eq!(out, model[start..start + out.len()], "round {round}");
            pool.put(frame);
        }
    }

    #[test]
    fn bytes_after_the_end_are_refused_and_read_as_zero() {
        let mut frame = Pool::default().frame(100);
        frame.write(0, &[7; 100]).unwrap();
        assert!(frame.write(90, &[1; 11]).is_err());
        assert!(frame.write(u32::MAX, &[1]).is_err());
        let mut out = [1; 20];
        assert!(frame.read(90, &mut out).is_err());
        assert_eq!(out, [[7; 10], [0; 10]].concat()[..]);
        assert!(frame.read(3_000, &mut out).is_err());
        assert_eq!(out, [0; 20]);
    }

    #[test]
    fn a_pool_frees_the_memory_of_a_burst() {
        let mut pool = Pool::default();
        let burst: Vec<Frame> = (0..64).map(|_| pool.frame(MAX_FRAME)).collect();
        burst.into_iter().for_each(|frame| pool.put(frame));
        assert_eq!((pool.small.free.len(), pool.large.free.len()), (64, 64));
        for _ in 0..12 {
            // One frame at a time is in use.
            let frame = pool.frame(MAX_FRAME);
            pool.put(frame);
            pool.trim();
        }
        assert!(pool.large.free.len() <= 2, "{} left", pool.large.free.len());
    }
}
