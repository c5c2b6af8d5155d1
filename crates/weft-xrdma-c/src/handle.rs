//! Handles are numbers that look like pointers. Each encodes a thread, a kind, a slot and the slot's use count, so
//! that null, released, forged and other threads' handles are detected without a read of the memory they seem to
//! point to.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::Failure;

/// Bits of a handle, from the lowest: the slot, its use count, the kind, the thread.
const PLACE: u32 = 24;
const USE: u32 = 22;
const KIND: u32 = 2;

const _: () = assert!(usize::BITS == 64, "a handle has the bits of a pointer");

/// Maximum number of slots of one kind in one thread.
const MAX_SLOTS: usize = 1 << PLACE;

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
    places: Vec<Place<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Place<T> {
    uses: usize,
    thing: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new(kind: Kind, thread: usize) -> Self {
        Self { kind, thread, places: Vec::new(), free: Vec::new() }
    }

    /// Stores an object and returns its handle, which is never 0.
    pub(crate) fn insert(&mut self, thing: T) -> Result<usize, Failure> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < MAX_SLOTS => {
                self.places.push(Place { uses: 0, thing: None });
                self.places.len() - 1
            }
            None => return Err(Failure::new(libc::EMFILE, "16,777,216 of them are held already")),
        };
        self.places[place].thing = Some(thing);
        Ok(self.handle(place))
    }

    fn handle(&self, place: usize) -> usize {
        let high = (self.thread << KIND | self.kind as usize) << USE | self.places[place].uses;
        high << PLACE | place
    }

    fn place(&self, handle: usize) -> Result<usize, Failure> {
        let place = handle & (MAX_SLOTS - 1);
        let there = self.places.get(place).is_some_and(|place| place.thing.is_some());
        if there && self.handle(place) == handle {
            return Ok(place);
        }
        Err(Failure::new(libc::EINVAL, self.explain(handle)))
    }

    /// The errors of a handle.
    fn explain(&self, handle: usize) -> String {
        let name = match self.kind {
            Kind::Context => "context",
            Kind::Channel => "channel",
            Kind::Message => "message",
        };
        let kind = handle >> (PLACE + USE) & ((1 << KIND) - 1);
        let thread = handle >> (PLACE + USE + KIND);
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
        let place = self.place(handle)?;
        Ok(self.places[place].thing.as_ref().expect("looked at just now"))
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Result<&mut T, Failure> {
        let place = self.place(handle)?;
        Ok(self.places[place].thing.as_mut().expect("looked at just now"))
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Result<T, Failure> {
        let place = self.place(handle)?;
        self.free.push(place);
        let place = &mut self.places[place];
        place.uses = (place.uses + 1) & ((1 << USE) - 1);
        Ok(place.thing.take().expect("looked at just now"))
    }

    /// Removes all objects for which `stays` returns `false`.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        let going =
            |place: &usize| self.places[*place].thing.as_ref().is_some_and(|thing| !stays(thing));
        let going: Vec<usize> = (0..self.places.len()).filter(going).collect();
        for place in going {
            let handle = self.handle(place);
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
    fn only_the_handle_that_was_given_names_a_thing() {
        let mut slab = Slab::new(Kind::Message, 7);
        let (one, two) = (slab.insert("one").unwrap(), slab.insert("two").unwrap());
        assert_eq!((*slab.get(one).unwrap(), *slab.get(two).unwrap()), ("one", "two"));
        assert_eq!(slab.remove(one).unwrap(), "one");
        assert!(why(slab.remove(one)).contains("the message is gone"));
        let three = slab.insert("three").unwrap();
        assert!(three != one && why(slab.get(one)).contains("gone"), "the place is used again");
        assert!(why(slab.get(0)).contains("null"));
        assert!(why(slab.get(0x7fff_1234_5678)).contains("is no message"));
        assert!(why(slab.get(usize::MAX)).contains("another thread"));
        let other = Slab::<()>::new(Kind::Message, 8);
        assert!(why(other.get(two)).contains("another thread"));
        let other = Slab::<()>::new(Kind::Channel, 7);
        assert!(why(other.get(two)).contains("is no channel"));
        slab.retain(|thing| *thing == "three");
        assert!(slab.get(two).is_err() && slab.get(three).is_ok());
    }
}
