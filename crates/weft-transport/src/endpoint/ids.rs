//! The table from CIDs to connections. A CID is a masked slot number and unpredictable bits that change with every use
//! of the slot, so that an old id finds no new connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::prefetch;

use super::secret::{Purpose, Secret};
use crate::ConnectionId;
use crate::connection::Connection;

/// Minimum number of unpredictable bits in an id.
const MIN_RANDOM_BITS: u32 = 8;

/// The number of high bits of an id that name the thread owning the connection, on hosts with several: a packet steerer
/// reads them there (BIFROST, section 5.2, flow redirect).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ThreadBits(u32);

impl ThreadBits {
    /// Returns the bits needed to number `threads` threads; zero for one.
    pub const fn of(threads: u8) -> Self {
        Self(u8::BITS - threads.saturating_sub(1).leading_zeros())
    }

    /// Returns the number of bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the thread that an id names.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most eight bits are left")]
    pub const fn thread_of(self, cid: u32) -> u8 {
        // Shifting by all 32 bits would be an error.
        (cid >> 1 >> (u32::BITS - 1 - self.0)) as u8
    }
}

/// The connections of an endpoint by id.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    /// Number of ids each slot has had.
    uses: Vec<u32>,
    free: Vec<u32>,
    /// Number of low bits of an id that hold the slot number.
    slot_bits: u32,
    /// Number of bits between the slot number and the thread.
    random_bits: u32,
    /// The thread number, shifted to its place in an id.
    thread: u32,
    /// A mask that hides the slot number, and with it the number of connections.
    mask: u32,
    secret: Secret,
    limit: u32,
    /// The last id that may be assigned.
    last: u32,
}

impl Connections {
    pub(super) fn new(limit: u32, secret: Secret) -> Self {
        let slot_bits = u32::BITS - limit.saturating_sub(1).leading_zeros();
        let slot_bits = slot_bits.clamp(1, u32::BITS - MIN_RANDOM_BITS);
        let mask = secret.draw_u32(Purpose::SlotMask, 0) & ((1 << slot_bits) - 1);
        let (slots, uses, free) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            slots,
            uses,
            free,
            slot_bits,
            random_bits: u32::BITS - slot_bits,
            thread: 0,
            mask,
            secret,
            limit,
            last: u32::MAX,
        }
    }

    /// Puts a thread number into the high bits of every id. Returns `false` if the thread does not fit, or if too few
    /// unpredictable bits remain.
    pub(super) fn set_thread(&mut self, thread: u8, bits: ThreadBits) -> bool {
        let left = (u32::BITS - self.slot_bits).saturating_sub(bits.get());
        self.random_bits = left.max(2);
        self.thread = u32::from(thread).checked_shl(u32::BITS - bits.get()).unwrap_or(0);
        left >= MIN_RANDOM_BITS && bits.thread_of(self.thread) == thread
    }

    /// Returns an iterator over all connections.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten().map(Box::as_ref)
    }

    /// Returns the number of connections held.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len() - self.free.len()).expect("at most 2^24")
    }

    /// Returns the maximum number of connections.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Assigns no id above `last` from now on.
    pub(super) fn set_last_id(&mut self, last: u32) {
        self.last = last;
    }

    /// Inserts the connection that `make` builds for its id; `None` at the limit.
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

    /// Returns an id for this slot; it does not recur before all others were used. Zero is never assigned: it stands
    /// for "not known yet" in set-up packets.
    fn next_id(&mut self, slot: u32) -> ConnectionId {
        let uses = &mut self.uses[slot as usize];
        loop {
            let random = self.secret.shuffle(self.random_bits, slot, *uses);
            *uses = uses.wrapping_add(1);
            let id = self.thread | random << self.slot_bits | (slot ^ self.mask);
            if (1..=self.last).contains(&id) {
                return ConnectionId(id);
            }
        }
    }

    #[inline]
    fn slot_of(&self, id: u32) -> u32 {
        (id & ((1 << self.slot_bits) - 1)) ^ self.mask
    }

    /// Returns the slot of the connection with this id.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        let slot = self.slot_of(id);
        let connection = self.slots.get(slot as usize)?.as_deref()?;
        (connection.id.0 == id).then_some(slot)
    }

    /// Returns the connection in the slot that an id names, without a check of its id: it may be a later connection.
    #[inline]
    pub(super) fn occupant(&self, id: u32) -> Option<&Connection> {
        self.get(self.slot_of(id))
    }

    /// Prefetches the table.
    #[inline]
    pub(super) fn prefetch_table(&self) {
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

    #[test]
    fn ids_of_a_thread_begin_with_it_and_keep_unpredictable_bits() {
        for (threads, bits) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (64, 6), (255, 8)] {
            assert_eq!(ThreadBits::of(threads).get(), bits);
            for thread in [0, threads / 2, threads - 1] {
                let mut connections = Connections::new(1 << 14, Secret::new([7; 16]));
                assert!(connections.set_thread(thread, ThreadBits::of(threads)));
                connections.uses.resize(1 << 14, 0);
                for slot in [0, 9, (1 << 14) - 1] {
                    let first: BTreeSet<u32> =
                        (0..1000).map(|_| connections.next_id(slot).0).collect();
                    let names = |&id: &u32| ThreadBits::of(threads).thread_of(id) == thread;
                    assert!(first.iter().all(names));
                    assert!(first.iter().all(|&id| connections.slot_of(id) == slot));
                    assert_eq!(first.len(), 1000.min(1 << (18 - bits)), "{threads} threads");
                }
            }
        }
        let full = || Connections::new(1 << 24, Secret::new([7; 16]));
        assert!(full().set_thread(0, ThreadBits::of(1)));
        assert!(!full().set_thread(0, ThreadBits::of(2)), "too few bits are left");
        assert!(!Connections::new(16, Secret::new([7; 16])).set_thread(2, ThreadBits::of(2)));
    }
}
