//! Shared memory for messages between all ranks of a machine: each ordered pair of ranks has slots, and a ring of words
//! with the order in which slots were filled.
//!
//! A slot's state is 0 while the sender owns it and 1 while the receiver owns it; the receiver returns slots in any
//! order. A word of the ring has a slot's number and its message's length, or is 0 when the sender owns it.
//!
//! If the memory emulates a link of some rate, the slots are that link's queue: each has the time at which the link has
//! carried its message, and the receiver does not read it before. So the link continues while its sender waits for a
//! processor, as a hardware link does.

mod file;
mod mapping;

use core::sync::atomic::Ordering;
use std::path::PathBuf;

use weft_units::{Duration, Instant};

use crate::error::{CommError, SharedError};
use crate::rendezvous::now;
use crate::wait::wait;
use file::{create, find};
use mapping::Mapping;

/// Number of slots from one rank to another: enough to keep both ends busy, and few enough to stay in the processor's
/// cache.
const SLOTS: usize = 16;
/// Maximum number of slots that a receiver holds; it copies further messages out, so that others can arrive.
const MAX_HELD: usize = SLOTS / 2;
/// Number of low bits of a ring's word that contain the slot's number; the others contain the message's length plus
/// one.
const SLOT_BITS: u32 = 5;
/// Size of a cache line in bytes. The ring's words share one; each slot's state has its own.
const CACHE_LINE: usize = 64;
/// Offset in a slot's cache line of its message's delivery time in nanoseconds.
const DELIVERY_TIME_OFFSET: usize = 8;
/// Length of the file's header in bytes: the magic number, and a word for each rank that has joined.
const HEADER_BYTES: usize = 4096;
/// The first word of the file.
const MAGIC: u32 = 0x5743_4f4c;
/// Offset of the ranks' words in the header.
const JOINED_OFFSET: usize = 64;
/// Maximum number of ranks: each has a word in the header.
const MAX_RANKS: usize = (HEADER_BYTES - JOINED_OFFSET) / 4;
/// The interval between attempts to open the file.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// A message in a slot.
#[derive(Debug)]
pub(crate) struct Slot {
    from: usize,
    slot: usize,
    len: usize,
}

/// A message received from a ring.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message that stays in its slot until it is released.
    Slot(Slot),
    /// A copy, because the receiver holds the maximum number of slots.
    Copied(Vec<u8>),
}

/// A rank's view of the shared memory.
#[derive(Debug)]
pub(crate) struct Shared {
    mapping: Mapping,
    rank: usize,
    ranks: usize,
    /// Maximum length of a message in bytes, a multiple of a cache line.
    slot_bytes: usize,
    /// The next word of the ring to write, for each receiver; to read, for each sender.
    write: Vec<usize>,
    read: Vec<usize>,
    /// Number of held slots of each sender.
    held: Vec<usize>,
    /// The rate of the emulated link to each receiver in bytes per second, and the time from which each is idle.
    rate: Option<u64>,
    free_at: Vec<Instant>,
}

/// The file, until all ranks have opened it.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Shared {
    /// Opens the memory of a group, whose number is unique. Rank 0 creates it; its name is removed when all have opened
    /// it.
    ///
    /// # Errors
    /// Returns `Shared` if the file cannot be created or mapped, or ranks are on another machine.
    pub(crate) fn open(
        number: u64,
        [rank, ranks]: [usize; 2],
        longest: usize,
        rate: Option<u64>,
        until: Instant,
    ) -> Result<Self, CommError> {
        let path = PathBuf::from(format!("/dev/shm/weft-coll-{number:016x}"));
        let failed = |why| CommError::Shared { path: path.display().to_string(), why };
        if ranks > MAX_RANKS {
            return Err(failed(SharedError::TooManyRanks { ranks, limit: MAX_RANKS }));
        }
        let slot_bytes = longest.next_multiple_of(CACHE_LINE);
        let len = HEADER_BYTES + ranks * ranks * pair_len(slot_bytes);
        let name = (rank == 0).then(|| Name(path.clone()));
        let file = match rank {
            0 => create(&path, len).map_err(failed)?,
            _ => find(&path, len, until).map_err(failed)?,
        };
        let mapping = Mapping::of(&file, len).map_err(|error| failed(error.into()))?;
        let shared = Self {
            mapping,
            rank,
            ranks,
            slot_bytes,
            write: vec![0; ranks],
            read: vec![0; ranks],
            held: vec![0; ranks],
            rate,
            free_at: vec![Instant::default(); ranks],
        };
        if rank == 0 {
            shared.mapping.word(0).store(MAGIC, Ordering::Release);
        }
        shared.mapping.word(JOINED_OFFSET + 4 * rank).store(1, Ordering::Release);
        let first_missing = || {
            let has_joined =
                |other| shared.mapping.word(JOINED_OFFSET + 4 * other).load(Ordering::Acquire) == 1;
            (0..ranks).find(|&other| !has_joined(other))
        };
        while let Some(missing) = first_missing() {
            if now() >= until {
                return Err(failed(SharedError::NotOpened(missing)));
            }
            wait(&mut [], RETRY_INTERVAL);
        }
        drop(name);
        Ok(shared)
    }

    /// Returns the offset of the area from one rank to another.
    fn pair(&self, from: usize, to: usize) -> usize {
        HEADER_BYTES + (from * self.ranks + to) * pair_len(self.slot_bytes)
    }

    /// Returns the offset of a slot's state; its message follows.
    fn slot(&self, from: usize, to: usize, slot: usize) -> usize {
        self.pair(from, to) + CACHE_LINE + slot * (CACHE_LINE + self.slot_bytes)
    }

    /// Copies a message to its receiver. Returns `true` if there was room.
    pub(crate) fn send(&mut self, to: usize, now: Instant, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        assert!(len <= self.slot_bytes, "messages are as long as was said");
        let is_free = |slot: &usize| {
            let state = self.mapping.word(self.slot(self.rank, to, *slot));
            state.load(Ordering::Acquire) == 0
        };
        let next = self.write[to];
        let Some(slot) = (next..next + SLOTS).map(|slot| slot % SLOTS).find(is_free) else {
            return false;
        };
        let word = self.mapping.word(self.pair(self.rank, to) + 4 * next);
        if word.load(Ordering::Acquire) != 0 {
            return false;
        }
        let due =
            self.rate.map_or(Instant::EPOCH, |rate| carry(rate, &mut self.free_at[to], now, len));
        let at = self.slot(self.rank, to, slot);
        self.mapping.write(at + DELIVERY_TIME_OFFSET, &due.as_nanos().to_ne_bytes());
        self.mapping.write(at + CACHE_LINE, head);
        self.mapping.write(at + CACHE_LINE + head.len(), body);
        self.mapping.word(at).store(1, Ordering::Relaxed);
        let entry = (len + 1) << SLOT_BITS | slot;
        word.store(u32::try_from(entry).expect("a short message"), Ordering::Release);
        self.write[to] = (next + 1) % SLOTS;
        true
    }

    /// Returns the next message of a rank, if it has arrived and its delivery time has passed.
    pub(crate) fn receive(&mut self, from: usize, now: Instant) -> Option<Received> {
        let next = self.read[from];
        let word = self.mapping.word(self.pair(from, self.rank) + 4 * next);
        let entry = word.load(Ordering::Acquire) as usize;
        let len = (entry >> SLOT_BITS).checked_sub(1)?;
        // A length beyond the slot is invalid; the message is truncated, and the group refuses it.
        let (slot, len) = (entry % SLOTS, len.min(self.slot_bytes));
        let at = self.slot(from, self.rank, slot);
        let due = self.mapping.bytes(at + DELIVERY_TIME_OFFSET, 8).try_into().expect("eight bytes");
        if now.as_nanos() < u64::from_ne_bytes(due) {
            return None;
        }
        word.store(0, Ordering::Release);
        self.read[from] = (next + 1) % SLOTS;
        if self.held[from] < MAX_HELD {
            self.held[from] += 1;
            return Some(Received::Slot(Slot { from, slot, len }));
        }
        let copy = self.mapping.bytes(at + CACHE_LINE, len).to_vec();
        self.mapping.word(at).store(0, Ordering::Release);
        Some(Received::Copied(copy))
    }

    /// Returns a message's bytes.
    pub(crate) fn bytes(&self, slot: &Slot) -> &[u8] {
        self.mapping.bytes(self.slot(slot.from, self.rank, slot.slot) + CACHE_LINE, slot.len)
    }

    /// Releases a slot.
    pub(crate) fn release(&mut self, slot: &Slot) {
        self.held[slot.from] -= 1;
        let at = self.slot(slot.from, self.rank, slot.slot);
        self.mapping.word(at).store(0, Ordering::Release);
    }
}

/// Returns the bytes of the area from one rank to another.
const fn pair_len(slot_bytes: usize) -> usize {
    CACHE_LINE + SLOTS * (CACHE_LINE + slot_bytes)
}

/// Returns the time at which a link that is busy until `free_at` has carried a message of `len` bytes submitted now,
/// and sets `free_at` to it.
fn carry(rate: u64, free_at: &mut Instant, now: Instant, len: usize) -> Instant {
    let nanos = len as u128 * 1_000_000_000 / u128::from(rate.max(1));
    let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    *free_at = (*free_at).max(now) + takes;
    *free_at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TOKEN_VARIABLE;

    fn pair(number: u64, rate: Option<u64>) -> (Shared, Shared) {
        let until = now() + Duration::from_secs(20);
        let open = move |rank| Shared::open(number, [rank, 2], 1000, rate, until).unwrap();
        let other = std::thread::spawn(move || open(1));
        (open(0), other.join().unwrap())
    }

    #[test]
    fn messages_arrive_in_order_while_slots_are_given_back_in_any() {
        let number = crate::rendezvous::random();
        let (mut one, mut other) = pair(number, None);
        assert!(
            !PathBuf::from(format!("/dev/shm/weft-coll-{number:016x}")).exists(),
            "its name is gone"
        );
        let mut rng = weft_units::Seed(3).child("slots", 0).rng();
        let (mut sent, mut got) = (0u32, 0u32);
        let mut held = Vec::new();
        while got < 5_000 {
            if rng.chance(1, 2) {
                let body = vec![u8::try_from(sent % 251).unwrap(); rng.index(997)];
                sent += u32::from(one.send(1, Instant::default(), &sent.to_le_bytes()[..3], &body));
            }
            let received = if rng.chance(1, 2) { other.receive(0, now()) } else { None };
            match received {
                Some(Received::Slot(slot)) => {
                    check(other.bytes(&slot), got);
                    got += 1;
                    held.push(slot);
                }
                Some(Received::Copied(bytes)) => {
                    check(&bytes, got);
                    got += 1;
                }
                None => {}
            }
            if !held.is_empty() && rng.chance(1, 2) {
                other.release(&held.swap_remove(rng.index(held.len())));
            }
        }
        assert!(other.receive(1, now()).is_none(), "nobody sends to itself");
    }

    fn check(bytes: &[u8], number: u32) {
        assert_eq!(bytes[..3], number.to_le_bytes()[..3]);
        assert!(bytes[3..].iter().all(|&byte| u32::from(byte) == number % 251));
    }

    #[test]
    fn a_link_keeps_its_rate_between_rare_polls_and_gains_none_in_a_pause() {
        let (mut one, mut other) = pair(crate::rendezvous::random(), Some(1_000_000));
        let body = [7; 997];
        // A message takes a millisecond; the ends poll every five, and there are slots for sixteen.
        let mut carry = |from: u64, polls: u64| {
            let mut got = 0;
            for poll in 0..polls {
                let now = Instant::from_nanos((from + 5 * poll) * 1_000_000);
                while one.send(1, now, &[0; 3], &body) {}
                while let Some(received) = other.receive(0, now) {
                    got += 1;
                    if let Received::Slot(slot) = received {
                        other.release(&slot);
                    }
                }
            }
            got
        };
        assert_eq!(carry(1_000, 201), 1_000, "of a second");
        assert_eq!(carry(60_000, 1), SLOTS - 5, "what was in slots before a pause");
        assert_eq!(carry(60_005, 1), 5, "the pause is no credit");
    }

    #[test]
    fn a_missing_rank_is_named() {
        let number = crate::rendezvous::random();
        let soon = now() + Duration::from_millis(100);
        let error = Shared::open(number, [0, 2], 100, None, soon).unwrap_err().to_string();
        assert!(error.contains("rank 1 did not open it"), "{error}");
        let error = Shared::open(number, [1, 2], 100, None, soon).unwrap_err().to_string();
        assert!(error.contains("is rank 0 on this one?"), "{error}");
    }

    /// The attacker is another user who computed the name of the memory and creates the file first.
    #[test]
    fn memory_that_is_not_this_jobs_is_refused() {
        let number = crate::rendezvous::random();
        let path = PathBuf::from(format!("/dev/shm/weft-coll-{number:016x}"));
        let open = |rank| {
            let until = now() + Duration::from_secs(20);
            let error = Shared::open(number, [rank, 2], 100, None, until).unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, CommError::Shared { why: SharedError::Foreign { .. }, .. }),
                "{text}"
            );
            assert!(
                text.contains(path.to_str().unwrap()) && text.contains(TOKEN_VARIABLE),
                "{text}"
            );
            text
        };
        let other = Name(path.with_extension("other"));
        let len = HEADER_BYTES + 4 * pair_len(128);
        let file = create(&other.0, len).unwrap();
        Mapping::of(&file, len).unwrap().word(0).store(MAGIC, Ordering::Release);
        let name = Name(path.clone());
        std::os::unix::fs::symlink(&other.0, &path).unwrap();
        for rank in [1, 0] {
            open(rank);
        }
        drop(name);
        if !rustix::process::geteuid().is_root() {
            return weft_testkit::skip("memory of another user", "only root becomes another user");
        }
        std::fs::rename(&other.0, &path).unwrap();
        let _name = Name(path.clone());
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        for text in [1, 0].map(open) {
            assert!(text.contains("user 65534"), "{text}");
        }
    }
}
