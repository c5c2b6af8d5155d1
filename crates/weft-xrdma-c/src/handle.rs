//! Handles are numbers that look like pointers. Each encodes a thread, a kind, a slot and the slot's use count, so
//! that null, released, forged and other threads' handles are detected without a read of the memory they seem to
//! point to.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::Failure;

/// Numbers of bits in a handle, from the lowest: the slot, its use count, the kind; the thread has the rest.
const SLOT_BITS: u32 = 24;
const USE_COUNT_BITS: u32 = 22;
const KIND_BITS: u32 = 2;

const _: () = assert!(usize::BITS == 64, "a handle has the bits of a pointer");

/// Maximum number of slots of one kind in one thread.
const MAX_SLOTS: usize = 1 << SLOT_BITS;

/// The object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    Context = 1,
    Channel = 2,
    Message = 3,
}

/// Returns a new thread number, never 0. Numbers repeat after 65,535 threads.
pub(crate) fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) % 0xffff + 1
}

/// Objects of one kind by their handles.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    kind: Kind,
    thread: usize,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Number of objects that the slot has held before, modulo 2^22.
    uses: usize,
    object: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new(kind: Kind, thread: usize) -> Self {
        Self { kind, thread, slots: Vec::new(), free: Vec::new() }
    }

    /// Stores an object and returns its handle, which is never 0.
    pub(crate) fn insert(&mut self, object: T) -> Result<usize, Failure> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < MAX_SLOTS => {
                self.slots.push(Slot { uses: 0, object: None });
                self.slots.len() - 1
            }
            None => return Err(Failure::new(libc::EMFILE, "16,777,216 of them are held already")),
        };
        self.slots[slot].object = Some(object);
        Ok(self.handle(slot))
    }

    /// Returns the handle of a slot's current object.
    fn handle(&self, slot: usize) -> usize {
        let high = (self.thread << KIND_BITS | self.kind as usize) << USE_COUNT_BITS
            | self.slots[slot].uses;
        high << SLOT_BITS | slot
    }

    /// Returns the slot of a handle that is valid.
    fn slot(&self, handle: usize) -> Result<usize, Failure> {
        let slot = handle & (MAX_SLOTS - 1);
        let there = self.slots.get(slot).is_some_and(|slot| slot.object.is_some());
        if there && self.handle(slot) == handle {
            return Ok(slot);
        }
        Err(Failure::new(libc::EINVAL, self.explain(handle)))
    }

    /// Returns the reason why a handle is invalid.
    fn explain(&self, handle: usize) -> String {
        let name = match self.kind {
            Kind::Context => "context",
            Kind::Channel => "channel",
            Kind::Message => "message",
        };
        let kind = handle >> (SLOT_BITS + USE_COUNT_BITS) & ((1 << KIND_BITS) - 1);
        let thread = handle >> (SLOT_BITS + USE_COUNT_BITS + KIND_BITS);
        match handle {
            0 => format!("the {name} is null"),
            _ if kind != self.kind as usize => format!("{handle:#x} is no {name}"),
            _ if thread != self.thread => {
                format!(
                    "the {name} belongs to another thread: a context is for the thread that created it"
                )
            }
            _ => format!("the {name} is gone: it was closed, released or destroyed"),
        }
    }

    pub(crate) fn get(&self, handle: usize) -> Result<&T, Failure> {
        let slot = self.slot(handle)?;
        Ok(self.slots[slot].object.as_ref().expect("looked at just now"))
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Result<&mut T, Failure> {
        let slot = self.slot(handle)?;
        Ok(self.slots[slot].object.as_mut().expect("looked at just now"))
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Result<T, Failure> {
        let slot = self.slot(handle)?;
        self.free.push(slot);
        let slot = &mut self.slots[slot];
        slot.uses = (slot.uses + 1) & ((1 << USE_COUNT_BITS) - 1);
        Ok(slot.object.take().expect("looked at just now"))
    }

    /// Removes all objects for which `stays` returns `false`.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        let going =
            |slot: &usize| self.slots[*slot].object.as_ref().is_some_and(|object| !stays(object));
        let going: Vec<usize> = (0..self.slots.len()).filter(going).collect();
        for slot in going {
            let handle = self.handle(slot);
            let _ = self.remove(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why<T: core::fmt::Debug>(outcome: Result<T, Failure>) -> String {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.errno, libc::EINVAL);
        failure.text
    }

    #[test]
    fn only_an_issued_handle_names_an_object() {
        let mut slab = Slab::new(Kind::Message, 7);
        let (one, two) = (slab.insert("one").unwrap(), slab.insert("two").unwrap());
        assert_eq!((*slab.get(one).unwrap(), *slab.get(two).unwrap()), ("one", "two"));
        assert_eq!(slab.remove(one).unwrap(), "one");
        assert!(why(slab.remove(one)).contains("the message is gone"));
        let three = slab.insert("three").unwrap();
        assert!(three != one && why(slab.get(one)).contains("gone"), "the slot is used again");
        assert!(why(slab.get(0)).contains("null"));
        assert!(why(slab.get(0x7fff_1234_5678)).contains("is no message"));
        assert!(why(slab.get(usize::MAX)).contains("another thread"));
        let other = Slab::<()>::new(Kind::Message, 8);
        assert!(why(other.get(two)).contains("another thread"));
        let other = Slab::<()>::new(Kind::Channel, 7);
        assert!(why(other.get(two)).contains("is no channel"));
        slab.retain(|object| *object == "three");
        assert!(slab.get(two).is_err() && slab.get(three).is_ok());
    }
}
