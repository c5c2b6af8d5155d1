//! A ring of records in shared memory: one side appends, the other takes. Each keeps its own index to
//! itself and believes the other's only as far as it makes sense. A record is its length, 4 bytes, and as many
//! bytes; it may begin anywhere and go on at the ring's beginning.

use std::sync::atomic::Ordering;

use super::shared::{Lane, Page};

/// Bytes of the longest record: a request with every piece or all the inline data it may have.
pub(crate) const LONGEST_RECORD: usize = 2 << 10;

/// Bytes of a record's length.
const LENGTH: u32 = 4;

/// The other side's index, or a record's length, cannot be: it is broken, or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared ring holds what cannot be")]
pub(crate) struct Corrupt;

/// The side that appends.
#[derive(Debug)]
pub(crate) struct Producer {
    lane: Lane,
    tail: u32,
}

/// The side that takes.
#[derive(Debug)]
pub(crate) struct Consumer {
    lane: Lane,
    head: u32,
}

impl Producer {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, tail: 0 }
    }

    /// Whether there is room for a record of so many bytes.
    ///
    /// # Errors
    /// The other side's index cannot be.
    pub(crate) fn has_room(&self, page: &Page, len: usize) -> Result<bool, Corrupt> {
        let head = page.index(self.lane.head).load(Ordering::Acquire);
        let used = self.tail.wrapping_sub(head);
        let room = Page::RING.checked_sub(used).ok_or(Corrupt)?;
        Ok(len <= room.saturating_sub(LENGTH) as usize)
    }

    /// Appends a record; false when there is no room.
    ///
    /// # Errors
    /// The other side's index cannot be.
    pub(crate) fn push(&mut self, page: &Page, record: &[u8]) -> Result<bool, Corrupt> {
        if !self.has_room(page, record.len())? {
            return Ok(false);
        }
        let len = u32::try_from(record.len()).expect("it fits into the ring");
        page.write(self.lane, self.tail, &len.to_ne_bytes());
        page.write(self.lane, self.tail.wrapping_add(LENGTH), record);
        self.tail = self.tail.wrapping_add(LENGTH + len);
        page.index(self.lane.tail).store(self.tail, Ordering::Release);
        Ok(true)
    }
}

impl Consumer {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, head: 0 }
    }

    /// Whether there is something to take, or to be refused.
    pub(crate) fn has_any(&self, page: &Page) -> bool {
        page.index(self.lane.tail).load(Ordering::Acquire) != self.head
    }

    /// Takes the next record into `record`; false when there is none.
    ///
    /// # Errors
    /// The other side's index, or the record's length, cannot be.
    pub(crate) fn pop(&mut self, page: &Page, record: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let tail = page.index(self.lane.tail).load(Ordering::Acquire);
        let used = tail.wrapping_sub(self.head);
        if used == 0 {
            return Ok(false);
        }
        if !(LENGTH..=Page::RING).contains(&used) {
            return Err(Corrupt);
        }
        let mut len = [0; LENGTH as usize];
        page.read(self.lane, self.head, &mut len);
        let len = u32::from_ne_bytes(len);
        if len as usize > LONGEST_RECORD || len > used - LENGTH {
            return Err(Corrupt);
        }
        record.resize(len as usize, 0);
        page.read(self.lane, self.head.wrapping_add(LENGTH), record);
        self.head = self.head.wrapping_add(LENGTH + len);
        page.index(self.lane.head).store(self.head, Ordering::Release);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weft_units::Seed;

    use super::*;

    fn pair() -> (Page, Producer, Consumer) {
        let page = Page::create().unwrap();
        (page, Producer::new(Page::WORK), Consumer::new(Page::WORK))
    }

    /// Any order of appending and taking gives what a queue gives.
    #[test]
    fn records_come_out_as_they_went_in() {
        for seed in 0..20 {
            let (page, mut producer, mut consumer) = pair();
            let mut rng = Seed(seed).child("ring", 0).rng();
            let (mut model, mut record) = (VecDeque::new(), Vec::new());
            for step in 0..4_000 {
                if rng.below(5) < 3 {
                    let len = usize::try_from(rng.below(LONGEST_RECORD as u64 + 1)).unwrap();
                    let bytes = vec![u8::try_from(step % 251).unwrap(); len];
                    if producer.push(&page, &bytes).unwrap() {
                        model.push_back(bytes);
                    } else {
                        assert!(model.len() > 50, "seed {seed}: refused with room");
                    }
                } else {
                    let expected = model.pop_front();
                    let taken = consumer.pop(&page, &mut record).unwrap();
                    assert_eq!(taken.then_some(&record), expected.as_ref(), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (page, mut producer, mut consumer) = pair();
        let mut record = Vec::new();
        let tail = page.index(Page::WORK.tail);
        for claimed in [1, 3, Page::RING + 1, u32::MAX] {
            tail.store(claimed, Ordering::Release);
            assert_eq!(consumer.pop(&page, &mut record), Err(Corrupt), "{claimed}");
        }
        tail.store(100, Ordering::Release);
        for len in [97, u32::MAX, u32::try_from(LONGEST_RECORD).unwrap() + 1] {
            page.write(Page::WORK, 0, &len.to_ne_bytes());
            assert_eq!(consumer.pop(&page, &mut record), Err(Corrupt), "{len}");
        }
        page.index(Page::WORK.head).store(5, Ordering::Release);
        assert_eq!(producer.push(&page, b"more was taken than was there"), Err(Corrupt));
    }

    #[test]
    fn a_record_of_nothing_is_one() {
        let (page, mut producer, mut consumer) = pair();
        let mut record = vec![1];
        assert_eq!(producer.push(&page, &[]), Ok(true));
        assert!(consumer.has_any(&page));
        assert_eq!(consumer.pop(&page, &mut record), Ok(true));
        assert!(record.is_empty() && !consumer.has_any(&page));
        assert_eq!(consumer.pop(&page, &mut record), Ok(false));
    }
}
