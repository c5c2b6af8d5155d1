//! Loom models: threads run the protocols on loom's memory, in every interleaving with a limited
//! number of preemptions, and with every value that the memory model lets a load return
//! (`LOOM_MAX_PREEMPTIONS`, two by default; `cargo xtask proofs` allows three). Bytes are cells
//! that panic when two threads use them at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::memory::Memory;

mod leases;
mod messages;
mod records;
mod sequence;
mod signal;

/// Bytes of a cell.
const CELL: usize = 4;

/// Memory that loom watches. It has only the places that it was created with.
#[derive(Clone, Debug)]
struct Model {
    words: Rc<BTreeMap<usize, AtomicU32>>,
    longs: Rc<BTreeMap<usize, AtomicU64>>,
    cells: Rc<BTreeMap<usize, UnsafeCell<[u8; CELL]>>>,
}

impl Model {
    /// Returns zeroed memory. Bytes are in whole cells; where there is also a word, the word holds
    /// the bytes.
    fn new(
        words: impl IntoIterator<Item = usize>,
        longs: impl IntoIterator<Item = usize>,
        bytes: Range<usize>,
    ) -> Self {
        Self {
            words: Rc::new(words.into_iter().map(|at| (at, AtomicU32::new(0))).collect()),
            longs: Rc::new(longs.into_iter().map(|at| (at, AtomicU64::new(0))).collect()),
            cells: Rc::new(bytes.step_by(CELL).map(|at| (at, UnsafeCell::default())).collect()),
        }
    }
}

impl Memory for Model {
    type Word = AtomicU32;
    type Long = AtomicU64;

    fn word(&self, at: usize) -> &AtomicU32 {
        &self.words[&at]
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        &self.longs[&at]
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (index, bytes) in bytes.chunks(CELL).enumerate() {
            let at = at + CELL * index;
            if let Some(word) = self.words.get(&at) {
                let bytes = bytes.try_into().expect("a whole word");
                word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed);
            } else {
                write_cell(&self.cells[&at], bytes);
            }
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        for (index, bytes) in bytes.chunks_mut(CELL).enumerate() {
            let at = at + CELL * index;
            let cell = match self.words.get(&at) {
                Some(word) => word.load(Ordering::Relaxed).to_ne_bytes(),
                None => read_cell(&self.cells[&at]),
            };
            bytes.copy_from_slice(&cell[..bytes.len()]);
        }
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

#[expect(unsafe_code, reason = "loom's cells are reached through pointers")]
fn write_cell(cell: &UnsafeCell<[u8; CELL]>, bytes: &[u8]) {
    // SAFETY: loom panics before two threads are here.
    cell.with_mut(|cell| unsafe { (&mut *cell)[..bytes.len()].copy_from_slice(bytes) });
}

#[expect(unsafe_code, reason = "loom's cells are reached through pointers")]
fn read_cell(cell: &UnsafeCell<[u8; CELL]>) -> [u8; CELL] {
    // SAFETY: loom panics before another thread writes.
    cell.with(|cell| unsafe { *cell })
}

/// Runs a model in every way that is within the bound.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(model);
}
