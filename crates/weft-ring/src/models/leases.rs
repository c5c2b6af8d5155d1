use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::{Model, check, read_cell, write_cell};
use crate::leases::{
    ADDRESS, AT_WORK, Backing, Borrower, CONNECTION, DESCRIPTOR, DEVICE, ENTRY_BYTES, FIRST, GIVEN,
    KEY, LENGTH, LeaseMemory, Lender, NUMBER, OFFSET, RIGHTS, SERIAL, START, Terms,
};

/// Entries of a table.
const ENTRIES: usize = 1;

impl LeaseMemory for Model {
    const ENTRIES: usize = ENTRIES;
}

fn table() -> Model {
    let places = |fields: &'static [usize]| {
        let entries = (0..ENTRIES).map(|entry| FIRST + entry * ENTRY_BYTES);
        entries.flat_map(move |at| fields.iter().map(move |field| at + field))
    };
    let fields = places(&[SERIAL, CONNECTION, KEY, RIGHTS, DESCRIPTOR, DEVICE]);
    let words = [GIVEN, AT_WORK].into_iter().chain(fields);
    Model::new(words, places(&[START, LENGTH, ADDRESS, OFFSET, NUMBER]), 0..0)
}

/// Returns terms whose fields all contain the key.
fn terms(key: u32) -> Terms {
    let (start, length, address) = (key.into(), key.into(), key.into());
    let (inode, offset) = (key.into(), key.into());
    let backing = Backing::File { descriptor: key, device: key, inode, offset };
    Terms { connection: key, key, start, length, address, writable: true, readable: true, backing }
}

/// Revokes everything and waits for the borrower.
fn revoke(lender: &mut Lender<Model>) {
    let is_gone = || {
        thread::yield_now();
        false
    };
    lender.revoke(|_| true, is_gone);
}

/// After a revocation has returned, the borrower does not write to the region.
#[test]
fn no_borrower_uses_a_revoked_lease() {
    check(|| {
        let table = table();
        let (mut lender, mut borrower) = (Lender::new(table.clone()), Borrower::new(table));
        let region = Rc::new(UnsafeCell::new([0; 4]));
        lender.lend(1, &terms(1));
        let there = Rc::clone(&region);
        let borrows = thread::spawn(move || {
            let mut lent = None;
            borrower.take_leases(|number, terms| lent = Some((number, terms)));
            if let Some((number, _)) = lent {
                // Twice, because the lender may wait for the first.
                for byte in 1..=2 {
                    borrower.with_lease(number, || {
                        write_cell(&there, &[byte; 4]);
                        true
                    });
                }
            }
        });
        revoke(&mut lender);
        let left = read_cell(&region);
        write_cell(&region, &[7; 4]);
        assert!(left.iter().all(|&byte| byte == left[0]));
        borrows.join().unwrap();
        assert_eq!(read_cell(&region), [7; 4], "written after it was revoked");
    });
}

/// If a lease replaces another meanwhile, the borrower never mixes the terms of both.
#[test]
fn terms_in_use_are_of_one_lease() {
    check(|| {
        let table = table();
        let (mut lender, mut borrower) = (Lender::new(table.clone()), Borrower::new(table));
        lender.lend(1, &terms(1));
        let borrows = thread::spawn(move || {
            let mut lent = None;
            borrower.take_leases(|number, terms| lent = Some((number, terms)));
            if let Some((number, received)) = lent {
                borrower.with_lease(number, || {
                    assert_eq!(received, terms(received.key), "of two leases");
                    assert_eq!(number >> 32, u64::from(received.key), "of another lease");
                    true
                });
            }
        });
        revoke(&mut lender);
        lender.lend(2, &terms(2));
        borrows.join().unwrap();
    });
}

/// A borrower that takes leases while one is given gets it in that call or in the next, and once.
#[test]
fn a_borrower_notices_each_lease() {
    check(|| {
        let table = table();
        let (mut lender, mut borrower) = (Lender::new(table.clone()), Borrower::new(table));
        let lends = thread::spawn(move || lender.lend(1, &terms(1)));
        let mut leases = 0;
        borrower.take_leases(|_, _| leases += 1);
        lends.join().unwrap();
        borrower.take_leases(|_, _| leases += 1);
        assert_eq!(leases, 1);
    });
}
