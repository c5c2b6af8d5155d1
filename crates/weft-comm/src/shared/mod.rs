//! Shared memory for messages between all ranks of a machine: each ordered pair of ranks has slots, and a ring of words
//! with the order in which slots were filled.
//!
//! A slot's state is 0 while the sender owns it and 1 while the receiver owns it; the receiver returns slots in any
//! order. A word of the ring has a slot's number and its message's length, or is 0 when the sender owns it.
//!
//! If the memory emulates a link of some rate, the slots are that link's queue: each has the time at which the link has
//! carried its message, and the receiver does not read it before. So the link continues while its sender waits for a
//! processor, as a hardware link does.

mod mapping;

use core::sync::atomic::Ordering;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use weft_units::{Duration, Instant};

use crate::error::{CommError, SharedError};
use crate::rendezvous::{now, wait};
use mapping::Mapping;

/// Slots from one rank to another: enough to keep both ends busy, and few enough to stay in the
/// processor's cache.
const SLOTS: usize = 16;
/// Slots that a receiver may hold before it copies messages out, so that others can arrive.
const MAX_HELD: usize = SLOTS / 2;
/// Bits of a ring's word that name the slot; the others are the message's length and one more.
const SLOT_BITS: u32 = 5;
/// Bytes of a cache line; the ring's words share one, each slot's state has its own.
const LINE: usize = 64;
/// Offset in a slot's line of its message's delivery time, nanoseconds.
const DUE: usize = 8;
/// The head of the file: a name, sizes, and a word for each rank that has joined.
const HEAD: usize = 4096;
const NAME: u32 = 0x5743_4f4c;
const CAME: usize = 64;
/// Maximum number of ranks: each has a word in the head.
const MAX_RANKS: usize = (HEAD - CAME) / 4;
/// The interval between attempts to open the file.
const AGAIN: Duration = Duration::from_millis(2);

/// A message in a slot.
#[derive(Debug)]
pub(crate) struct Slot {
    from: usize,
    slot: usize,
    len: usize,
}

/// A message received from a ring.
#[derive(Debug)]
pub(crate) enum Came {
    /// A message that stays in its slot until it is released.
    Slot(Slot),
    /// A copy, because too many messages stay already.
    Copied(Vec<u8>),
}

/// A rank's view of the shared memory.
#[derive(Debug)]
pub(crate) struct Shared {
    mapping: Mapping,
    rank: usize,
    ranks: usize,
    room: usize,
    /// The next word of the ring to write, for each receiver; to read, for each sender.
    write: Vec<usize>,
    read: Vec<usize>,
    /// Number of held slots of each sender.
    kept: Vec<usize>,
    /// Rate to each receiver, bytes per second, and the time at which each link is idle.
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
    /// There is no room, or ranks are on another machine.
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
        let room = longest.next_multiple_of(LINE);
        let len = HEAD + ranks * ranks * pair_len(room);
        let name = (rank == 0).then(|| Name(path.clone()));
        let file = match rank {
            0 => create(&path, len).map_err(|error| failed(error.into()))?,
            _ => find(&path, len, until).map_err(failed)?,
        };
        let mapping = Mapping::of(&file, len).map_err(|error| failed(error.into()))?;
        let shared = Self {
            mapping,
            rank,
            ranks,
            room,
            write: vec![0; ranks],
            read: vec![0; ranks],
            kept: vec![0; ranks],
            rate,
            free_at: vec![Instant::default(); ranks],
        };
        if rank == 0 {
            shared.mapping.word(0).store(NAME, Ordering::Release);
        }
        shared.mapping.word(CAME + 4 * rank).store(1, Ordering::Release);
        let all = || {
            let came = |other| shared.mapping.word(CAME + 4 * other).load(Ordering::Acquire) == 1;
            (0..ranks).find(|&other| !came(other))
        };
        while let Some(missing) = all() {
            if now() >= until {
                return Err(failed(SharedError::NotOpened(missing)));
            }
            wait(&mut [], AGAIN);
        }
        drop(name);
        Ok(shared)
    }

    /// Returns the offset of the area from one rank to another.
    fn pair(&self, from: usize, to: usize) -> usize {
        HEAD + (from * self.ranks + to) * pair_len(self.room)
    }

    /// Returns the offset of a slot's state; its message follows.
    fn slot(&self, from: usize, to: usize, slot: usize) -> usize {
        self.pair(from, to) + LINE + slot * (LINE + self.room)
    }

    /// Copies a message to its receiver. Returns `true` if there was room.
    pub(crate) fn send(&mut self, to: usize, now: Instant, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        assert!(len <= self.room, "messages are as long as was said");
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
        self.mapping.write(at + DUE, &due.as_nanos().to_ne_bytes());
        self.mapping.write(at + LINE, head);
        self.mapping.write(at + LINE + head.len(), body);
        self.mapping.word(at).store(1, Ordering::Relaxed);
        let told = (len + 1) << SLOT_BITS | slot;
        word.store(u32::try_from(told).expect("a short message"), Ordering::Release);
        self.write[to] = (next + 1) % SLOTS;
        true
    }

    /// Returns the next message of a rank, if it has arrived.
    pub(crate) fn receive(&mut self, from: usize, now: Instant) -> Option<Came> {
        let next = self.read[from];
        let word = self.mapping.word(self.pair(from, self.rank) + 4 * next);
        let told = word.load(Ordering::Acquire) as usize;
        let len = (told >> SLOT_BITS).checked_sub(1)?;
        // A length beyond the slot is invalid; the message is truncated, and the group refuses it.
        let (slot, len) = (told % SLOTS, len.min(self.room));
        let at = self.slot(from, self.rank, slot);
        let due = self.mapping.bytes(at + DUE, 8).try_into().expect("eight bytes");
        if now.as_nanos() < u64::from_ne_bytes(due) {
            return None;
        }
        word.store(0, Ordering::Release);
        self.read[from] = (next + 1) % SLOTS;
        if self.kept[from] < MAX_HELD {
            self.kept[from] += 1;
            return Some(Came::Slot(Slot { from, slot, len }));
        }
        let copy = self.mapping.bytes(at + LINE, len).to_vec();
        self.mapping.word(at).store(0, Ordering::Release);
        Some(Came::Copied(copy))
    }

    /// Returns a message's bytes.
    pub(crate) fn bytes(&self, slot: &Slot) -> &[u8] {
        self.mapping.bytes(self.slot(slot.from, self.rank, slot.slot) + LINE, slot.len)
    }

    /// Releases a slot.
    pub(crate) fn release(&mut self, slot: &Slot) {
        self.kept[slot.from] -= 1;
        let at = self.slot(slot.from, self.rank, slot.slot);
        self.mapping.word(at).store(0, Ordering::Release);
    }
}

/// Returns the bytes of the area from one rank to another.
const fn pair_len(room: usize) -> usize {
    LINE + SLOTS * (LINE + room)
}

/// Returns the time at which a link that is busy until `free_at` has carried a message submitted
/// now.
fn carry(rate: u64, free_at: &mut Instant, now: Instant, len: usize) -> Instant {
    let nanos = len as u128 * 1_000_000_000 / u128::from(rate.max(1));
    let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    *free_at = (*free_at).max(now) + takes;
    *free_at
}

fn create(path: &PathBuf, len: usize) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(len as u64)?;
    Ok(file)
}

/// Returns rank 0's file once it exists under its name, or the reason why not when the time is over.
fn find(path: &PathBuf, len: usize, until: Instant) -> Result<File, SharedError> {
    loop {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let why = match opened {
            Ok(file) => {
                let long = file.metadata().is_ok_and(|about| about.len() == len as u64);
                let mapping = if long {
                    Mapping::of(&file, HEAD)
                } else {
                    Err(std::io::ErrorKind::UnexpectedEof.into())
                };
                match mapping {
                    Ok(head) if head.word(0).load(Ordering::Acquire) == NAME => return Ok(file),
                    Ok(_) => SharedError::Empty,
                    Err(error) => SharedError::NotFound(error),
                }
            }
            Err(error) => SharedError::NotFound(error),
        };
        if now() >= until {
            return Err(why);
        }
        wait(&mut [], AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut kept = Vec::new();
        while got < 5_000 {
            if rng.chance(1, 2) {
                let body = vec![u8::try_from(sent % 251).unwrap(); rng.index(997)];
                sent += u32::from(one.send(1, Instant::default(), &sent.to_le_bytes()[..3], &body));
            }
            let came = if rng.chance(1, 2) { other.receive(0, now()) } else { None };
            match came {
                Some(Came::Slot(slot)) => {
                    check(other.bytes(&slot), got);
                    got += 1;
                    kept.push(slot);
                }
                Some(Came::Copied(bytes)) => {
                    check(&bytes, got);
                    got += 1;
                }
                None => {}
            }
            if !kept.is_empty() && rng.chance(1, 2) {
                other.release(&kept.swap_remove(rng.index(kept.len())));
            }
        }
        assert!(other.receive(1, now()).is_none(), "nobody sends to itself");
    }

    fn check(bytes: &[u8], number: u32) {
        assert_eq!(bytes[..3], number.to_le_bytes()[..3]);
        assert!(bytes[3..].iter().all(|&byte| u32::from(byte) == number % 251));
    }

    #[test]
    fn a_link_carries_its_rate_though_its_ends_look_seldom_and_no_more_after_a_pause() {
        let (mut one, mut other) = pair(crate::rendezvous::random(), Some(1_000_000));
        let body = [7; 997];
        // A message takes a millisecond; the ends poll every five, and there are slots for sixteen.
        let mut carry = |from: u64, looks: u64| {
            let mut got = 0;
            for look in 0..looks {
                let now = Instant::from_nanos((from + 5 * look) * 1_000_000);
                while one.send(1, now, &[0; 3], &body) {}
                while let Some(came) = other.receive(0, now) {
                    got += 1;
                    if let Came::Slot(slot) = came {
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
}
