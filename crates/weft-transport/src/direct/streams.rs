//! The table of connections by id. An id is a slot number and the number of uses of the slot, so that an old id finds
//! no new connection soon.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::stream::Stream;
use super::{Direct, LinkId};
use crate::ConnectionId;

/// The number of low bits of an id that hold the slot number; the bits above hold its number of uses.
const SLOT_BITS: u32 = 20;
/// The number of uses of a slot after which its ids recur.
const MAX_USES: u32 = 1 << (31 - SLOT_BITS);

/// The connections of one process.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Vec<Option<Box<Stream>>>,
    uses: Vec<u32>,
    free: Vec<u32>,
    limit: u32,
}

impl Streams {
    pub(super) const fn new(limit: u32) -> Self {
        let limit = if limit < 1 << SLOT_BITS { limit } else { 1 << SLOT_BITS };
        Self { slots: Vec::new(), uses: Vec::new(), free: Vec::new(), limit }
    }

    /// Inserts the connection that `make` builds for its id; `None` at the limit.
    pub(super) fn insert(&mut self, make: impl FnOnce(ConnectionId) -> Stream) -> Option<u32> {
        if self.free.is_empty() {
            let slot = u32::try_from(self.slots.len()).ok().filter(|&slot| slot < self.limit)?;
            self.slots.push(None);
            self.uses.push(0);
            self.free.push(slot);
        }
        let slot = self.free.pop()?;
        let uses = &mut self.uses[slot as usize];
        *uses = (*uses + 1) % MAX_USES;
        let id = ConnectionId(Direct::FIRST_ID | *uses << SLOT_BITS | slot);
        self.slots[slot as usize] = Some(Box::new(make(id)));
        Some(slot)
    }

    /// Returns the slot of the connection with this id.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        let slot = id & ((1 << SLOT_BITS) - 1);
        self.get(slot).filter(|stream| stream.id.0 == id).map(|_| slot)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Stream> {
        self.slots.get(slot as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Stream> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// Returns the connection in a slot, which must be in use.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> &mut Stream {
        self.get_mut(slot).expect("the caller found this slot")
    }

    /// Removes the connection in a slot, which must be in use; returns its id.
    pub(super) fn remove(&mut self, slot: u32) -> ConnectionId {
        let stream = self.slots[slot as usize].take().expect("the caller found this slot");
        self.free.push(slot);
        stream.id
    }

    /// Returns the slots in use.
    pub(super) fn all(&self) -> Vec<u32> {
        self.matching(|_| true)
    }

    /// Returns the slots of the connections over a link.
    pub(super) fn over(&self, link: LinkId) -> Vec<u32> {
        self.matching(|stream| stream.link == link)
    }

    /// Returns the slot of the connection with the peer's id `remote`.
    pub(super) fn with_remote(&self, link: LinkId, remote: u32) -> Option<u32> {
        self.matching(|stream| stream.is_established_on(link) && stream.remote == remote)
            .first()
            .copied()
    }

    fn matching(&self, wanted: impl Fn(&Stream) -> bool) -> Vec<u32> {
        let slots = (0..).zip(&self.slots);
        slots.filter(|(_, s)| s.as_deref().is_some_and(&wanted)).map(|(slot, _)| slot).collect()
    }
}
