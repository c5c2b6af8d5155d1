//! The messages from one rank to another: slots, and a ring of words with the order in which slots were filled.
//!
//! A slot's state is 0 while the sender owns it and 1 while the receiver owns it; the receiver returns slots in any
//! order. A word of the ring has a slot's number and its message's length, or is 0 when the sender owns it.
//!
//! If the memory emulates a link of some rate, the slots are that link's queue: each has the time at which the link has
//! carried its message, and the receiver does not read it before. So the link continues while its sender waits for a
//! processor, as a hardware link does.

use core::sync::atomic::Ordering;
use std::fs::File;
use std::io;

use weft_units::{Duration, Instant};

use super::mapping::{MAX_PAGE, Mapping};

/// Number of slots from one rank to another: enough to keep both ends busy, and few enough to stay in the processor's
/// cache.
pub(super) const SLOTS: usize = 16;
/// Maximum number of slots that a receiver holds; it copies further messages out, so that others can arrive.
const MAX_HELD: usize = SLOTS / 2;
/// Number of low bits of a ring's word that contain the slot's number; the others contain the message's length plus
/// one.
const SLOT_BITS: u32 = 5;
/// Size of a cache line in bytes. The ring's words share one; each slot's state has its own.
const CACHE_LINE: usize = 64;
/// Offset in a slot's cache line of its message's delivery time in nanoseconds.
const DELIVERY_TIME_OFFSET: usize = 8;

/// The sizes of the areas of a group, equal at all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AreaSize {
    /// Maximum length of a message in bytes, a multiple of a cache line.
    slot_bytes: usize,
}

impl AreaSize {
    /// Returns the size of areas for messages of at most `longest` bytes.
    pub(crate) const fn of(longest: usize) -> Self {
        Self { slot_bytes: longest.next_multiple_of(CACHE_LINE) }
    }

    /// Returns the bytes of an area, a multiple of a page.
    pub(super) const fn bytes(self) -> usize {
        (CACHE_LINE + SLOTS * (CACHE_LINE + self.slot_bytes)).next_multiple_of(MAX_PAGE)
    }

    /// Returns the offset of a slot's state; its message follows.
    const fn slot(self, slot: usize) -> usize {
        CACHE_LINE + slot * (CACHE_LINE + self.slot_bytes)
    }
}

/// The sending end of an area.
#[derive(Debug)]
pub(super) struct Sender {
    mapping: Mapping,
    size: AreaSize,
    /// The next word of the ring to write.
    next: usize,
    /// `true` if the last message was refused for lack of room.
    pub(super) is_full: bool,
    /// The rate of the emulated link in bytes per second, and the time from which it is idle.
    rate: Option<u64>,
    free_at: Instant,
}

impl Sender {
    /// Maps an area of this rank's file.
    pub(super) fn map(
        file: &File,
        offset: usize,
        size: AreaSize,
        rate: Option<u64>,
    ) -> io::Result<Self> {
        let mapping = Mapping::of(file, offset, size.bytes())?;
        Ok(Self { mapping, size, next: 0, is_full: false, rate, free_at: Instant::default() })
    }

    /// Copies a message to its receiver. Returns `true` if there was room.
    pub(super) fn send(&mut self, now: Instant, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        assert!(len <= self.size.slot_bytes, "messages are as long as was said");
        let slot = self.free_slot();
        self.is_full = slot.is_none();
        let Some(slot) = slot else { return false };
        let due = self.rate.map_or(Instant::EPOCH, |rate| carry(rate, &mut self.free_at, now, len));
        let at = self.size.slot(slot);
        self.mapping.write(at + DELIVERY_TIME_OFFSET, &due.as_nanos().to_ne_bytes());
        self.mapping.write(at + CACHE_LINE, head);
        self.mapping.write(at + CACHE_LINE + head.len(), body);
        self.mapping.word(at).store(1, Ordering::Relaxed);
        let word = self.mapping.word(4 * self.next);
        let entry = (len + 1) << SLOT_BITS | slot;
        word.store(u32::try_from(entry).expect("a short message"), Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        true
    }

    /// Returns the number of a free slot, if there is one and the next word of the ring is free too.
    fn free_slot(&self) -> Option<usize> {
        let is_free =
            |slot: &usize| self.mapping.word(self.size.slot(*slot)).load(Ordering::Acquire) == 0;
        let slots = self.next..self.next + SLOTS;
        let slot = slots.map(|slot| slot % SLOTS).find(is_free)?;
        (self.mapping.word(4 * self.next).load(Ordering::Acquire) == 0).then_some(slot)
    }

    /// Returns `true` once if a message was refused and there is room now.
    pub(super) fn has_new_room(&mut self) -> bool {
        let has_room = self.is_full && self.free_slot().is_some();
        self.is_full &= !has_room;
        has_room
    }
}

/// A message that has arrived.
#[derive(Debug)]
pub(super) enum Arrived {
    /// The message stays in the slot of this number until it is released.
    InSlot { slot: usize, len: usize },
    /// A copy, because the receiver holds the maximum number of slots.
    Copied(Vec<u8>),
}

/// The receiving end of an area.
#[derive(Debug)]
pub(super) struct Receiver {
    mapping: Mapping,
    size: AreaSize,
    /// The next word of the ring to read.
    next: usize,
    /// Number of held slots.
    held: usize,
}

impl Receiver {
    /// Maps an area of another rank's file.
    pub(super) fn map(file: &File, offset: usize, size: AreaSize) -> io::Result<Self> {
        let mapping = Mapping::of(file, offset, size.bytes())?;
        Ok(Self { mapping, size, next: 0, held: 0 })
    }

    /// Returns the next message, if it has arrived and its delivery time has passed.
    pub(super) fn receive(&mut self, now: Instant) -> Option<Arrived> {
        let (slot, len) = self.next_slot()?;
        if now < self.delivery_time(slot) {
            return None;
        }
        self.mapping.word(4 * self.next).store(0, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        if self.held < MAX_HELD {
            self.held += 1;
            return Some(Arrived::InSlot { slot, len });
        }
        let at = self.size.slot(slot);
        let copy = self.mapping.bytes(at + CACHE_LINE, len).to_vec();
        self.mapping.word(at).store(0, Ordering::Release);
        Some(Arrived::Copied(copy))
    }

    /// Returns the delivery time of the next message, if there is one.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_slot().map(|(slot, _)| self.delivery_time(slot))
    }

    /// Returns the slot and the length of the next message, if there is one.
    fn next_slot(&self) -> Option<(usize, usize)> {
        let entry = self.mapping.word(4 * self.next).load(Ordering::Acquire) as usize;
        let len = (entry >> SLOT_BITS).checked_sub(1)?;
        // A length beyond the slot is invalid; the message is truncated, and the group refuses it.
        Some((entry % SLOTS, len.min(self.size.slot_bytes)))
    }

    /// Returns the delivery time of the message in a slot.
    fn delivery_time(&self, slot: usize) -> Instant {
        let bytes = self.mapping.bytes(self.size.slot(slot) + DELIVERY_TIME_OFFSET, 8);
        Instant::from_nanos(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Returns the bytes of a message in a slot.
    pub(super) fn bytes(&self, slot: usize, len: usize) -> &[u8] {
        self.mapping.bytes(self.size.slot(slot) + CACHE_LINE, len)
    }

    /// Releases a slot.
    pub(super) fn release(&mut self, slot: usize) {
        self.held -= 1;
        self.mapping.word(self.size.slot(slot)).store(0, Ordering::Release);
    }
}

/// Returns the time at which a link that is busy until `free_at` has carried a message of `len` bytes submitted now,
/// and sets `free_at` to it.
fn carry(rate: u64, free_at: &mut Instant, now: Instant, len: usize) -> Instant {
    let nanos = len as u128 * 1_000_000_000 / u128::from(rate.max(1));
    let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    *free_at = (*free_at).max(now) + takes;
    *free_at
}
