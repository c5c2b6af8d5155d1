//! Tests of a hostile process that rewrites shared memory while this end reads it: each value changes directly after it
//! is read, so that a value that is read twice is a different one.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::leases::{Backing, Borrower, LEASES_BYTES, LeaseMemory, Lender, Terms};
use crate::memory::{Heap, Memory, Word};
use crate::messages::{Consumer, Lane, Producer};
use crate::records::{
    ALIGN, CAPACITY, MAX_RECORD, ProtocolViolation, READ, RING_BYTES, Reader, RecordMemory, Writer,
};

/// A value that becomes `hostile` when it is read.
#[derive(Debug)]
struct Rewritten<A, T> {
    value: A,
    hostile: T,
}

macro_rules! word {
    ($atomic:ty, $word:ty) => {
        impl Word<$word> for Rewritten<$atomic, $word> {
            fn load(&self, order: Ordering) -> $word {
                let value = self.value.load(order);
                self.value.store(self.hostile, Ordering::Relaxed);
                value
            }
            fn store(&self, value: $word, order: Ordering) {
                self.value.store(value, order);
            }
            fn swap(&self, value: $word, order: Ordering) -> $word {
                self.value.swap(value, order)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// Memory whose every word and byte changes when it is read. Long words are stored apart from words.
#[derive(Clone, Debug)]
struct HostileMemory {
    words: Rc<[Rewritten<AtomicU32, u32>]>,
    longs: Rc<[Rewritten<AtomicU64, u64>]>,
}

impl HostileMemory {
    /// Returns a copy of memory.
    fn copy_of(heap: &Heap, hostile: u32) -> Self {
        let memory = heap.memory;
        let word = |at: usize| memory.word(4 * at).load(Ordering::Relaxed);
        let long = |at: usize| memory.long(8 * at).load(Ordering::Relaxed);
        let (words, longs) = (memory.len() / 4, memory.len() / 8);
        let word = |at| Rewritten { value: AtomicU32::new(word(at)), hostile };
        let hostile = u64::from(hostile);
        let long = |at| Rewritten { value: AtomicU64::new(long(at)), hostile };
        Self { words: (0..words).map(word).collect(), longs: (0..longs).map(long).collect() }
    }
}

impl Memory for HostileMemory {
    type Word = Rewritten<AtomicU32, u32>;
    type Long = Rewritten<AtomicU64, u64>;

    fn word(&self, at: usize) -> &Self::Word {
        &self.words[at / 4]
    }

    fn long(&self, at: usize) -> &Self::Long {
        &self.longs[at / 8]
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (index, bytes) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(at + 4 * index).store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        for (index, bytes) in bytes.chunks_mut(4).enumerate() {
            let word = self.word(at + 4 * index).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
        }
    }

    fn fence(_: Ordering) {}
}

impl RecordMemory for HostileMemory {}

impl LeaseMemory for HostileMemory {}

#[test]
fn a_record_has_the_size_that_was_checked() {
    for hostile in [0, 1, 64, 192, 1 << 16, u32::MAX] {
        let heap = Heap::new(RING_BYTES);
        Writer::new(heap.memory).write(2 * ALIGN, |room| room.put(&[7; 100]));
        let mut reader = Reader::new(HostileMemory::copy_of(&heap, hostile));
        let record = reader.peek().unwrap().unwrap();
        assert_eq!(record.len(), 2 * ALIGN, "{hostile}");
        let mut copy = [0; 104];
        assert_eq!(record.copy_to(&mut copy), 104);
        assert_eq!(copy[4..], [7; 100], "{hostile}");
        // The next look is at the size that the other process wrote.
        let again = reader.peek().map(|record| record.map(|record| record.len()));
        let expected = match hostile {
            0 => Ok(None),
            64 | 192 | 65_536 => Ok(Some(hostile as usize)),
            _ => Err(ProtocolViolation),
        };
        assert_eq!(again, expected, "{hostile}");
    }
}

#[test]
fn a_writer_uses_the_read_position_that_was_checked() {
    for hostile in [0, u32::MAX] {
        let memory = HostileMemory::copy_of(&Heap::new(RING_BYTES), hostile);
        let mut writer = Writer::new(memory.clone());
        while writer.has_room().unwrap() {
            writer.write(MAX_RECORD, |_| ());
        }
        let read = writer.written() - CAPACITY / 2;
        memory.long(READ).store(read, Ordering::Relaxed);
        assert_eq!(writer.has_room(), Ok(true), "{hostile}");
        while writer.has_room() == Ok(true) {
            writer.write(MAX_RECORD, |_| ());
        }
        assert!(writer.written() + ALIGN as u64 - read <= CAPACITY, "unread bytes are overwritten");
        // Both are impossible: one is lower than the last position, the other was never written.
        assert_eq!(writer.has_room(), Err(ProtocolViolation), "{hostile}");
    }
}

#[test]
fn a_message_has_the_length_that_was_checked() {
    let lane = Lane { head: 0, tail: 64, start: 128, len: 4096 };
    for hostile in [0, 1, 100, 4096, u32::MAX] {
        let heap = Heap::new(lane.start + lane.len as usize);
        Producer::new(lane).push(&heap.memory, &[7; 100]).unwrap();
        let memory = HostileMemory::copy_of(&heap, hostile);
        let (mut consumer, mut message) = (Consumer::new(lane), Vec::new());
        assert_eq!(consumer.pop(&memory, &mut message), Ok(true));
        assert_eq!(message, [7; 100], "{hostile}");
    }
}

fn terms() -> Terms {
    Terms {
        connection: 5,
        key: 7,
        start: 1 << 40,
        length: 4096,
        address: 1 << 44,
        writable: true,
        readable: false,
        backing: Backing::File { descriptor: 3, device: 5, inode: 1 << 50, offset: 1 << 12 },
    }
}

#[test]
fn a_lease_has_the_terms_that_were_read_and_is_invalid_once_rewritten() {
    for hostile in [0, 2, u32::MAX] {
        let heap = Heap::new(LEASES_BYTES);
        Lender::new(heap.memory).lend(9, &terms());
        let mut borrower = Borrower::new(HostileMemory::copy_of(&heap, hostile));
        let mut taken = Vec::new();
        borrower.take_leases(|number, terms| taken.push((number, terms)));
        assert_eq!(taken, [(1 << 32, terms())], "{hostile}");
        assert!(!borrower.with_lease(1 << 32, || panic!("its number is {hostile} now")));
    }
}

/// A lender fills its table with leases of any terms.
#[test]
fn a_hostile_table_has_no_more_leases_than_entries() {
    let memory = HostileMemory::copy_of(&Heap::new(LEASES_BYTES), u32::MAX);
    memory.word(0).store(1, Ordering::Relaxed);
    memory.words[1..].iter().for_each(|word| word.store(u32::MAX, Ordering::Relaxed));
    let mut borrower = Borrower::new(memory);
    let mut taken = Vec::new();
    for _ in 0..3 {
        borrower.take_leases(|number, _| taken.push(number));
    }
    let numbers: Vec<u64> = (0..128).map(|entry| u64::from(u32::MAX) << 32 | entry).collect();
    assert_eq!(taken, numbers);
    let beyond = u64::from(u32::MAX) << 32 | 128;
    assert!(!borrower.with_lease(beyond, || panic!("the table has no such entry")));
    assert!(borrower.with_lease(numbers[127], || true));
}
