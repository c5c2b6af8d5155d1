//! The memory that two neighbours grant each other for direct access, in shared memory: for each
//! direction a table that the lender writes, and a word with which the borrower marks that it is at
//! work. The lender revokes an entry by clearing its serial number, and then waits until a borrower
//! that may have seen it is done. Neither trusts the other: a dishonest lender exposes only its own
//! memory, and a dishonest borrower could write there anyway: neighbours may trace each other.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::memory::{Mapped, Memory, Word};

/// Entries of a production table. Each is a region that one process lends another for one connection.
const ENTRIES: usize = 128;
pub(crate) const ENTRY_BYTES: usize = 64;

/// Offset of the word with the serial number of the latest lease. The words before the entries are on cache lines of
/// their own.
pub(crate) const GIVEN: usize = 0;
/// Offset of the borrower's word, which is odd while it is at work.
pub(crate) const AT_WORK: usize = 64;
/// Offset of the first entry.
pub(crate) const FIRST: usize = 4096;

/// Offsets of the fields of an entry.
pub(crate) const SERIAL: usize = 0;
pub(crate) const CONNECTION: usize = 4;
pub(crate) const KEY: usize = 8;
pub(crate) const RIGHTS: usize = 12;
pub(crate) const START: usize = 16;
pub(crate) const LENGTH: usize = 24;
pub(crate) const ADDRESS: usize = 32;
pub(crate) const OFFSET: usize = 40;
pub(crate) const NUMBER: usize = 48;
pub(crate) const DEVICE: usize = 56;
pub(crate) const DESCRIPTOR: usize = 60;

/// Bits of the word of rights.
const WRITABLE: u32 = 1;
const READABLE: u32 = 2;
/// The backing is a file, or a System V segment; without either it is private.
const IN_FILE: u32 = 4;
const IN_SEGMENT: u32 = 8;

/// Bytes of memory for one direction.
pub const LEASES_BYTES: usize = FIRST + ENTRIES * ENTRY_BYTES;

/// Memory of a table: initially zero, [`LEASES_BYTES`] long in production. The models' tables have
/// an entry or two.
pub trait LeaseMemory: Memory {
    /// Entries of the table.
    const ENTRIES: usize = ENTRIES;
}

impl LeaseMemory for Mapped {}

#[inline]
fn serial_word<M: Memory>(memory: &M, entry: usize) -> &M::Word {
    memory.word(at(entry) + SERIAL)
}

const fn at(entry: usize) -> usize {
    FIRST + entry * ENTRY_BYTES
}

/// The identity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseKey {
    /// The lender's id of the connection.
    pub connection: u32,
    /// The region's key.
    pub key: u32,
}

/// The memory behind a region, by which a borrower may map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// The lender's private memory, which nobody else can map.
    #[default]
    Private,
    /// A file that the lender has open.
    File {
        /// The number of the lender's descriptor.
        descriptor: u32,
        /// The device number of the file's file system.
        device: u32,
        /// The inode number of the file.
        inode: u64,
        /// The offset of the region's first byte in the file.
        offset: u64,
    },
    /// A System V shared memory segment.
    Segment {
        /// The id of the segment (`shmget(2)`).
        id: u32,
        /// The offset of the region's first byte in the segment.
        offset: u64,
    },
}

impl Backing {
    /// Returns the bits of the kind, and the words of the descriptor and the device.
    const fn words(self) -> (u32, u32, u32) {
        match self {
            Self::Private => (0, 0, 0),
            Self::File { descriptor, device, .. } => (IN_FILE, descriptor, device),
            Self::Segment { id, .. } => (IN_SEGMENT, id, 0),
        }
    }

    /// Returns the offset and the number of the inode.
    const fn longs(self) -> (u64, u64) {
        match self {
            Self::Private => (0, 0),
            Self::File { offset, inode, .. } => (offset, inode),
            Self::Segment { offset, .. } => (offset, 0),
        }
    }
}

/// The region that a lease covers, and the rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The borrower's id of the connection whose requests may use it.
    pub connection: u32,
    /// The region's key in requests.
    pub key: u32,
    /// The region's first address in requests.
    pub start: u64,
    /// Length of the region, bytes.
    pub length: u64,
    /// The region's first address in the lender's memory.
    pub address: u64,
    /// `true` if it may be written.
    pub writable: bool,
    /// `true` if it may be read.
    pub readable: bool,
    /// The memory behind it.
    pub backing: Backing,
}

/// The lender's end.
#[derive(Debug)]
pub struct Lender<M = Mapped> {
    table: M,
    entries: Vec<Option<LeaseKey>>,
    given: u32,
}

impl<M: LeaseMemory> Lender<M> {
    /// Returns the lender's end of a table in this memory.
    pub const fn new(table: M) -> Self {
        Self { table, entries: Vec::new(), given: 0 }
    }

    /// Lends a region, unless it is lent already or the table is full. If it is full, the borrower
    /// is not notified, and its requests take the usual path.
    pub fn lend(&mut self, connection: u32, terms: &Terms) {
        let lent = LeaseKey { connection, key: terms.key };
        if self.entries.contains(&Some(lent)) {
            return;
        }
        let free = self.entries.iter().position(Option::is_none);
        let Some(entry) = free.or_else(|| {
            self.entries.push(None);
            Some(self.entries.len() - 1).filter(|&entry| entry < M::ENTRIES)
        }) else {
            self.entries.truncate(M::ENTRIES);
            return;
        };
        self.entries[entry] = Some(lent);
        let (table, at) = (&self.table, at(entry));
        let rights = [(terms.writable, WRITABLE), (terms.readable, READABLE)];
        let rights = rights.iter().filter(|right| right.0).fold(0, |all, right| all | right.1);
        let (kind, descriptor, device) = terms.backing.words();
        let words = [
            (CONNECTION, terms.connection),
            (KEY, terms.key),
            (RIGHTS, rights | kind),
            (DESCRIPTOR, descriptor),
            (DEVICE, device),
        ];
        words
            .iter()
            .for_each(|&(field, word)| table.word(at + field).store(word, Ordering::Relaxed));
        let (offset, number) = terms.backing.longs();
        let longs = [
            (START, terms.start),
            (LENGTH, terms.length),
            (ADDRESS, terms.address),
            (OFFSET, offset),
            (NUMBER, number),
        ];
        longs
            .iter()
            .for_each(|&(field, long)| table.long(at + field).store(long, Ordering::Relaxed));
        // Zero is never an entry's serial number.
        self.given = self.given.wrapping_add(1).max(1);
        serial_word(table, entry).store(self.given, Ordering::Release);
        table.word(GIVEN).store(self.given, Ordering::Release);
    }

    /// Revokes the leases for which `selects` returns `true`, and returns when no borrower is using them. `is_gone`
    /// returns `true` if the borrower has exited; it is called in a loop and should yield the processor. Returns `true` if
    /// there were any.
    pub fn revoke(
        &mut self,
        selects: impl Fn(&LeaseKey) -> bool,
        is_gone: impl Fn() -> bool,
    ) -> bool {
        let mut revoked = false;
        for (entry, lent) in self.entries.iter_mut().enumerate() {
            if lent.take_if(|lent| selects(lent)).is_some() {
                serial_word(&self.table, entry).store(0, Ordering::SeqCst);
                revoked = true;
            }
        }
        if revoked {
            self.wait(is_gone);
        }
        revoked
    }

    /// Waits until a borrower that began to work before this call is done: a few microseconds,
    /// unless it is descheduled.
    fn wait(&self, is_gone: impl Fn() -> bool) {
        M::fence(Ordering::SeqCst);
        let word = self.table.word(AT_WORK);
        let before = word.load(Ordering::SeqCst);
        while before % 2 == 1 && word.load(Ordering::Acquire) == before && !is_gone() {}
    }
}

/// The borrower's end.
#[derive(Debug)]
pub struct Borrower<M = Mapped> {
    table: M,
    seen: u32,
    known: Vec<u32>,
}

impl<M: LeaseMemory> Borrower<M> {
    /// Returns the borrower's end of a table in this memory.
    pub const fn new(table: M) -> Self {
        Self { table, seen: 0, known: Vec::new() }
    }

    /// Calls `each` with every lease given since the last call, and its number.
    pub fn take_leases(&mut self, mut each: impl FnMut(u64, Terms)) {
        let given = self.table.word(GIVEN).load(Ordering::Acquire);
        if given == self.seen {
            return;
        }
        self.seen = given;
        self.known.resize(M::ENTRIES, 0);
        for entry in 0..M::ENTRIES {
            let serial = serial_word(&self.table, entry).load(Ordering::Acquire);
            if serial != 0 && serial != self.known[entry] {
                self.known[entry] = serial;
                let terms = self.read(entry);
                // If another lease replaced it meanwhile, this serial number is not found there
                // again.
                each(u64::from(serial) << 32 | entry as u64, terms);
            }
        }
    }

    fn read(&self, entry: usize) -> Terms {
        let (table, at) = (&self.table, at(entry));
        let word = |field| table.word(at + field).load(Ordering::Relaxed);
        let long = |field| table.long(at + field).load(Ordering::Relaxed);
        let (rights, offset, descriptor) = (word(RIGHTS), long(OFFSET), word(DESCRIPTOR));
        let backing = match rights & (IN_FILE | IN_SEGMENT) {
            IN_FILE => {
                Backing::File { descriptor, device: word(DEVICE), inode: long(NUMBER), offset }
            }
            IN_SEGMENT => Backing::Segment { id: descriptor, offset },
            _ => Backing::Private,
        };
        Terms {
            connection: word(CONNECTION),
            key: word(KEY),
            start: long(START),
            length: long(LENGTH),
            address: long(ADDRESS),
            writable: rights & WRITABLE != 0,
            readable: rights & READABLE != 0,
            backing,
        }
    }

    /// Returns `true` if the lease of this number is valid now. Only [`Self::with_lease`] keeps it valid.
    pub fn is_valid(&self, number: u64) -> bool {
        self.entry_of(number).is_some()
    }

    /// Returns the entry of the lease of this number, if it is valid.
    #[inline]
    fn entry_of(&self, number: u64) -> Option<usize> {
        let [entry, serial] = [number & u64::from(u32::MAX), number >> 32];
        let entry = usize::try_from(entry).ok().filter(|&entry| entry < M::ENTRIES)?;
        let found = u64::from(serial_word(&self.table, entry).load(Ordering::SeqCst));
        (serial != 0 && found == serial).then_some(entry)
    }

    /// Runs `work` if the lease of this number is still valid; a lender that revokes it waits for the end of `work`.
    /// Returns the result of `work`, or `false` if the lease is not valid.
    #[inline]
    pub fn with_lease(&self, number: u64, work: impl FnOnce() -> bool) -> bool {
        let word = self.table.word(AT_WORK);
        let before = word.load(Ordering::Relaxed) & !1;
        word.store(before | 1, Ordering::SeqCst);
        M::fence(Ordering::SeqCst);
        let worked = self.entry_of(number).is_some() && work();
        word.store(before.wrapping_add(2), Ordering::Release);
        worked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::memory::Heap;

    fn table() -> (Mapped, Heap) {
        let heap = Heap::new(LEASES_BYTES);
        (heap.memory, heap)
    }

    fn lease(key: u32) -> Terms {
        let connection = 1 << 31 | 9;
        let (writable, readable) = (true, false);
        let (start, length, address) = (1 << 40, u64::MAX, 0x7fff_0000_1234);
        let backing = match key % 3 {
            0 => Backing::Private,
            1 => Backing::File { descriptor: 6, device: 1 << 20, inode: u64::MAX, offset: 1 << 41 },
            _ => Backing::Segment { id: u32::MAX >> 1, offset: 4096 },
        };
        Terms { connection, key, start, length, address, writable, readable, backing }
    }

    fn new_leases(borrower: &mut Borrower) -> Vec<(u64, Terms)> {
        let mut leases = Vec::new();
        borrower.take_leases(|number, terms| leases.push((number, terms)));
        leases
    }

    #[test]
    fn a_lease_is_passed_on_once_and_valid_until_it_is_revoked() {
        let (table, heap) = table();
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let connection = 5;
        (0..2).for_each(|_| lender.lend(connection, &lease(7)));
        lender.lend(connection, &lease(8));
        let [(seven, first), (eight, second)] = new_leases(&mut borrower)[..] else { panic!() };
        assert_eq!((first, second), (lease(7), lease(8)));
        assert_eq!(new_leases(&mut borrower), []);
        assert!(borrower.with_lease(seven, || true) && !borrower.with_lease(seven, || false));
        lender.revoke(|lent| lent.key == 7, || panic!("nobody is at work"));
        assert!(!borrower.with_lease(seven, || panic!("it was revoked")));
        assert!(!borrower.is_valid(seven) && borrower.is_valid(eight));
        assert!(borrower.with_lease(eight, || true));
        lender.lend(connection, &lease(9));
        assert!(!borrower.with_lease(seven, || panic!("its place has another")));
        let [(nine, third)] = new_leases(&mut borrower)[..] else { panic!() };
        assert_eq!(third, lease(9));
        assert!(borrower.with_lease(nine, || true));
        for nonsense in [0, 1, nine ^ 1, nine | 1 << 20, u64::MAX] {
            assert!(!borrower.with_lease(nonsense, || panic!("{nonsense} was never given")));
        }
        drop(heap);
    }

    #[test]
    fn a_table_has_a_fixed_number_of_entries_and_reuses_revoked_ones() {
        let (table, heap) = table();
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let entries = u32::try_from(ENTRIES).unwrap();
        (0..entries + 2).for_each(|key| lender.lend(5, &lease(key)));
        assert_eq!(new_leases(&mut borrower).len(), ENTRIES);
        lender.revoke(|lent| lent.connection == 5, || false);
        (0..entries).for_each(|key| lender.lend(6, &lease(key)));
        assert_eq!(new_leases(&mut borrower).len(), ENTRIES);
        drop(heap);
    }

    /// The lender waits for a borrower that is at work, unless the borrower has exited.
    #[test]
    fn no_borrower_uses_a_revoked_lease() {
        let (table, heap) = table();
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let lent = AtomicBool::new(false);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (lent, over) = (&lent, &over);
            scope.spawn(move || {
                let mut last = None;
                while !over.load(Ordering::Relaxed) {
                    last = new_leases(&mut borrower).last().map(|lease| lease.0).or(last);
                    let Some(number) = last else { continue };
                    borrower.with_lease(number, || {
                        (0..20).for_each(|_| assert!(lent.load(Ordering::Relaxed)));
                        true
                    });
                }
            });
            for _ in 0..if cfg!(miri) { 20 } else { 5_000 } {
                lent.store(true, Ordering::SeqCst);
                lender.lend(5, &lease(7));
                (0..20).for_each(|_| core::hint::spin_loop());
                lender.revoke(
                    |_| true,
                    || {
                        std::thread::yield_now();
                        false
                    },
                );
                lent.store(false, Ordering::SeqCst);
            }
            over.store(true, Ordering::Relaxed);
        });
        lender.lend(5, &lease(7));
        table.word(AT_WORK).store(1, Ordering::Relaxed);
        lender.revoke(|_| true, || true);
        drop(heap);
    }
}
