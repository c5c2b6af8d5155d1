//! Which connection a CID names: a slot number, hidden, and bits that nobody can foretell and that
//! change with every use of the slot, so that an old id finds no new connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::prefetch;

use super::secret::{Purpose, Secret};
use crate::ConnectionId;
use crate::connection::Connection;

/// At least this many bits of an id cannot be foretold.
const RANDOM_BITS: u32 = 8;

/// The connections of an endpoint by id.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    /// Ids each slot has had.
    uses: Vec<u32>,
    free: Vec<u32>,
    /// Low bits of an id that hold the slot number.
    slot_bits: u32,
    /// Hides the slot number, and how many connections there are.
    mask: u32,
    secret: Secret,
    limit: u32,
    /// The last id that is given.
    last: u32,
}

impl Connections {
    pub(super) fn new(limit: u32, secret: Secret) -> Self {
        let slot_bits = u32::BITS - limit.saturating_sub(1).leading_zeros();
        let slot_bits = slot_bits.clamp(1, u32::BITS - RANDOM_BITS);
        let mask = secret.draw_u32(Purpose::SlotMask, 0) & ((1 << slot_bits) - 1);
        let (slots, uses, free) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, uses, free, slot_bits, mask, secret, limit, last: u32::MAX }
    }

    /// Number of connections held.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len() - self.free.len()).expect("at most 2^24")
    }

    /// Most connections that may be held.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Gives no id after this one from now on.
    pub(super) fn end_at(&mut self, last: u32) {
        self.last = last;
    }

    /// Enters the connection that `make` builds for its id; `None` at the limit.
    pub(super) fn insert(&mut self, make: impl FnOnce(ConnectionId) -> Connection) -> Option<u32> {
        if self.len() >= self.limit {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.uses.push(0);
            u32::try_from(self.slots.len() - 1).expect("at most 2^24")
        });
        let id = self.next_id(slot);
        self.slots[slot as usize] = Some(Box::new(make(id)));
        Some(slot)
    }

    /// An id for this slot that it has not had for as long as there are others. Zero is never one: it
    /// stands for "not known yet" in set-up packets.
    fn next_id(&mut self, slot: u32) -> ConnectionId {
        let uses = &mut self.uses[slot as usize];
        loop {
            let random = self.secret.shuffle(u32::BITS - self.slot_bits, slot, *uses);
            *uses = uses.wrapping_add(1);
            let id = random << self.slot_bits | (slot ^ self.mask);
            if (1..=self.last).contains(&id) {
                return ConnectionId(id);
            }
        }
    }

    #[inline]
    fn slot_of(&self, id: u32) -> u32 {
        (id & ((1 << self.slot_bits) - 1)) ^ self.mask
    }

    /// The slot of the connection with this id.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        let slot = self.slot_of(id);
        let connection = self.slots.get(slot as usize)?.as_deref()?;
        (connection.id.0 == id).then_some(slot)
    }

    /// The connection that an id would name, whether it is still the same one or not. Does not read
    /// it.
    #[inline]
    pub(super) fn guess(&self, id: u32) -> Option<&Connection> {
        self.get(self.slot_of(id))
    }

    /// Begins to fetch the table.
    #[inline]
    pub(super) fn look_ahead(&self) {
        prefetch(self.slots.as_slice());
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Connection> {
        self.slots.get(slot as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Connection>> {
        let connection = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_slot_has_every_id_once_before_any_comes_back() {
        let mut connections = Connections::new(1 << 24, Secret::new([7; 16]));
        for slot in [0, connections.mask] {
            connections.uses.resize(slot as usize + 1, 0);
            let mut ids = || connections.next_id(slot).0;
            let first: BTreeSet<u32> = (0..255).map(|_| ids()).collect();
            assert_eq!(first.len(), 255);
            assert!(!first.contains(&0));
        }
    }
}
