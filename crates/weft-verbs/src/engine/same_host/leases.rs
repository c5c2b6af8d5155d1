//! What two neighbours let each other reach without help, in memory that they share: for either direction a table
//! that the lender writes, and a word in which the borrower says that it is at work. The lender takes an entry
//! back by clearing its serial number, and then waits until a borrower that may have seen it is done. Neither
//! trusts the other: a lender that lies has its own memory written, and a borrower that lies could write there anyway,
//! for it may be traced.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use weft_rnic::Lease;
use weft_transport::ConnectionId;

/// Entries of a table: regions that one process lends another, for each connection.
const ENTRIES: usize = 128;
const ENTRY_BYTES: usize = 64;

/// Words before the entries, each on a line of its own.
const GIVEN: usize = 0;
const AT_WORK: usize = 64;
const FIRST: usize = 4096;

/// Where what is in an entry.
const SERIAL: usize = 0;
const CONNECTION: usize = 4;
const KEY: usize = 8;
const RIGHTS: usize = 12;
const START: usize = 16;
const LENGTH: usize = 24;
const ADDRESS: usize = 32;

const WRITABLE: u32 = 1;
const READABLE: u32 = 2;

/// Bytes of memory one direction takes.
pub(super) const LEASES_BYTES: usize = FIRST + ENTRIES * ENTRY_BYTES;

/// Where a table is: [`LEASES_BYTES`], zero at first, as long as its channel has it mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table(NonNull<u8>);

// SAFETY: it is shared by nature, and every access is atomic.
unsafe impl Send for Table {}

impl Table {
    /// # Safety
    /// [`LEASES_BYTES`] from there are mapped until the last use of it, at an address divisible by 8.
    pub(super) const unsafe fn new(start: NonNull<u8>) -> Self {
        Self(start)
    }

    fn word(self, at: usize) -> &'static AtomicU32 {
        // SAFETY: mapped and aligned, as `new` was promised; callers name places within.
        unsafe { AtomicU32::from_ptr(self.0.add(at).cast().as_ptr()) }
    }

    fn long(self, at: usize) -> &'static AtomicU64 {
        // SAFETY: mapped and aligned, as `new` was promised; callers name places within.
        unsafe { AtomicU64::from_ptr(self.0.add(at).cast().as_ptr()) }
    }

    fn serial(self, entry: usize) -> &'static AtomicU32 {
        self.word(at(entry) + SERIAL)
    }
}

const fn at(entry: usize) -> usize {
    FIRST + entry * ENTRY_BYTES
}

/// What an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    /// The connection, as the lender calls it.
    pub(super) connection: ConnectionId,
    pub(super) key: u32,
}

/// The lender's end.
#[derive(Debug)]
pub(super) struct Lender {
    table: Table,
    entries: Vec<Option<Lent>>,
    given: u32,
}

impl Lender {
    pub(super) const fn new(table: Table) -> Self {
        Self { table, entries: Vec::new(), given: 0 }
    }

    /// Lends something, if it is not lent yet, and there is room for it. The borrower is not told where there is none,
    /// and its requests take the usual way.
    pub(super) fn lend(&mut self, connection: ConnectionId, lease: &Lease) {
        let lent = Lent { connection, key: lease.key };
        if self.entries.contains(&Some(lent)) {
            return;
        }
        let free = self.entries.iter().position(Option::is_none);
        let Some(entry) = free.or_else(|| {
            self.entries.push(None);
            Some(self.entries.len() - 1).filter(|&entry| entry < ENTRIES)
        }) else {
            self.entries.truncate(ENTRIES);
            return;
        };
        self.entries[entry] = Some(lent);
        let (table, at) = (self.table, at(entry));
        let rights = [(lease.writable, WRITABLE), (lease.readable, READABLE)];
        let rights = rights.iter().filter(|right| right.0).fold(0, |all, right| all | right.1);
        let words = [(CONNECTION, lease.connection.0), (KEY, lease.key), (RIGHTS, rights)];
        words
            .iter()
            .for_each(|&(field, word)| table.word(at + field).store(word, Ordering::Relaxed));
        let longs = [(START, lease.start), (LENGTH, lease.length), (ADDRESS, lease.address)];
        longs
            .iter()
            .for_each(|&(field, long)| table.long(at + field).store(long, Ordering::Relaxed));
        // Zero is no entry's serial number.
        self.given = self.given.wrapping_add(1).max(1);
        table.serial(entry).store(self.given, Ordering::Release);
        table.word(GIVEN).store(self.given, Ordering::Release);
    }

    /// Takes back what is for this, and returns when nobody is at work with it: `is_gone` says whether the borrower
    /// is no more, which may be asked often.
    pub(super) fn recall(&mut self, what: impl Fn(&Lent) -> bool, is_gone: impl Fn() -> bool) {
        let mut recalled = false;
        for (entry, lent) in self.entries.iter_mut().enumerate() {
            if lent.take_if(|lent| what(lent)).is_some() {
                self.table.serial(entry).store(0, Ordering::SeqCst);
                recalled = true;
            }
        }
        if recalled {
            self.wait(is_gone);
        }
    }

    /// Waits until a borrower that began to work before this call is done: a few microseconds, unless another program
    /// has its processor.
    fn wait(&self, is_gone: impl Fn() -> bool) {
        fence(Ordering::SeqCst);
        let word = self.table.word(AT_WORK);
        let before = word.load(Ordering::SeqCst);
        while before % 2 == 1 && word.load(Ordering::Acquire) == before && !is_gone() {
            std::thread::yield_now();
        }
    }
}

/// The borrower's end.
#[derive(Debug)]
pub(super) struct Borrower {
    table: Table,
    seen: u32,
    known: Vec<u32>,
}

impl Borrower {
    pub(super) const fn new(table: Table) -> Self {
        Self { table, seen: 0, known: Vec::new() }
    }

    /// Hears of what was lent since this was asked last, each with its number.
    pub(super) fn hear(&mut self, mut each: impl FnMut(u64, Lease)) {
        let given = self.table.word(GIVEN).load(Ordering::Acquire);
        if given == self.seen {
            return;
        }
        self.seen = given;
        self.known.resize(ENTRIES, 0);
        for entry in 0..ENTRIES {
            let serial = self.table.serial(entry).load(Ordering::Acquire);
            if serial != 0 && serial != self.known[entry] {
                self.known[entry] = serial;
                let lease = self.read(entry);
                // Where another came to its place meanwhile this serial number is not found there again.
                each(u64::from(serial) << 32 | entry as u64, lease);
            }
        }
    }

    fn read(&self, entry: usize) -> Lease {
        let (table, at) = (self.table, at(entry));
        let word = |field| table.word(at + field).load(Ordering::Relaxed);
        let long = |field| table.long(at + field).load(Ordering::Relaxed);
        let rights = word(RIGHTS);
        Lease {
            connection: ConnectionId(word(CONNECTION)),
            key: word(KEY),
            start: long(START),
            length: long(LENGTH),
            address: long(ADDRESS),
            writable: rights & WRITABLE != 0,
            readable: rights & READABLE != 0,
        }
    }

    /// Works with what was lent under this number, if it is still: the lender waits for that.
    pub(super) fn work(&self, number: u64, work: impl FnOnce() -> bool) -> bool {
        let [entry, serial] = [number & u64::from(u32::MAX), number >> 32];
        let entry = usize::try_from(entry).ok().filter(|&entry| entry < ENTRIES);
        let Some(entry) = entry else { return false };
        let word = self.table.word(AT_WORK);
        let before = word.load(Ordering::Relaxed) & !1;
        word.store(before | 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_lent = u64::from(self.table.serial(entry).load(Ordering::SeqCst)) == serial;
        let worked = is_lent && work();
        word.store(before.wrapping_add(2), Ordering::Release);
        worked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn table() -> (Table, Vec<u64>) {
        let mut bytes = vec![0_u64; LEASES_BYTES / 8];
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap().cast();
        // SAFETY: callers keep the bytes as long.
        (unsafe { Table::new(start) }, bytes)
    }

    fn lease(key: u32) -> Lease {
        let connection = ConnectionId(1 << 31 | 9);
        let (writable, readable) = (true, false);
        let (start, length, address) = (1 << 40, u64::MAX, 0x7fff_0000_1234);
        Lease { connection, key, start, length, address, writable, readable }
    }

    fn heard(borrower: &mut Borrower) -> Vec<(u64, Lease)> {
        let mut heard = Vec::new();
        borrower.hear(|number, lease| heard.push((number, lease)));
        heard
    }

    #[test]
    fn what_is_lent_is_heard_once_and_may_be_used_until_it_is_recalled() {
        let (table, bytes) = table();
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let connection = ConnectionId(5);
        (0..2).for_each(|_| lender.lend(connection, &lease(7)));
        lender.lend(connection, &lease(8));
        let [(seven, first), (eight, second)] = heard(&mut borrower)[..] else { panic!() };
        assert_eq!((first, second), (lease(7), lease(8)));
        assert_eq!(heard(&mut borrower), []);
        assert!(borrower.work(seven, || true) && !borrower.work(seven, || false));
        lender.recall(|lent| lent.key == 7, || panic!("nobody is at work"));
        assert!(!borrower.work(seven, || panic!("it was recalled")));
        assert!(borrower.work(eight, || true));
        lender.lend(connection, &lease(9));
        assert!(!borrower.work(seven, || panic!("its place has another")));
        let [(nine, _)] = heard(&mut borrower)[..] else { panic!() };
        assert!(borrower.work(nine, || true));
        for nonsense in [0, 1, nine ^ 1, nine | 1 << 20, u64::MAX] {
            assert!(!borrower.work(nonsense, || panic!("{nonsense} was never given")));
        }
        drop(bytes);
    }

    #[test]
    fn there_is_room_for_so_many_and_for_others_after_those() {
        let (table, bytes) = table();
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let most = u32::try_from(ENTRIES).unwrap();
        (0..most + 2).for_each(|key| lender.lend(ConnectionId(5), &lease(key)));
        assert_eq!(heard(&mut borrower).len(), ENTRIES);
        lender.recall(|lent| lent.connection == ConnectionId(5), || false);
        (0..most).for_each(|key| lender.lend(ConnectionId(6), &lease(key)));
        assert_eq!(heard(&mut borrower).len(), ENTRIES);
        drop(bytes);
    }

    /// A borrower that is at work is waited for, unless it is gone.
    #[test]
    fn nobody_is_at_work_with_what_was_recalled() {
        let (table, bytes) = table();
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let lent = AtomicBool::new(false);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (lent, over) = (&lent, &over);
            scope.spawn(move || {
                let mut last = None;
                while !over.load(Ordering::Relaxed) {
                    last = heard(&mut borrower).last().map(|heard| heard.0).or(last);
                    let Some(number) = last else { continue };
                    borrower.work(number, || {
                        (0..20).for_each(|_| assert!(lent.load(Ordering::Relaxed)));
                        true
                    });
                }
            });
            for _ in 0..5_000 {
                lent.store(true, Ordering::SeqCst);
                lender.lend(ConnectionId(5), &lease(7));
                (0..20).for_each(|_| core::hint::spin_loop());
                lender.recall(|_| true, || false);
                lent.store(false, Ordering::SeqCst);
            }
            over.store(true, Ordering::Relaxed);
        });
        lender.lend(ConnectionId(5), &lease(7));
        table.word(AT_WORK).store(1, Ordering::Relaxed);
        lender.recall(|_| true, || true);
        drop(bytes);
    }
}
