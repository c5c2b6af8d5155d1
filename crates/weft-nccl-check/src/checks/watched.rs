//! The protocols LL and LL128: the GPU reads the receive's buffer before the request is complete. A thread stands for it here.
//!
//! A line has 128 bytes; its last word is the flag. Both halves of every word of message k are k, so that a reader finds a flag
//! without its data, and half a word.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::Outcome;
use crate::memory::Buffer;
use crate::net::{Comm, Net, Registration, Request};
use crate::rank::{Pair, Rank};

const WORDS: usize = 16;
/// Number of slots, each for the message in progress there.
const SLOTS: usize = 4;
const MESSAGES: u64 = 400;
/// Lines of the longest message: a step of LL128 has 4,800.
const MAX_LINES: usize = 2_048;

fn value(number: u64) -> u64 {
    (number + 1) << 32 | (number + 1)
}

/// Returns the number of lines of a message.
fn lines(number: u64) -> usize {
    [1, 3, 12, 100, 700, MAX_LINES][usize::try_from(number % 6).expect("below 6")]
}

/// Returns a word of a slot.
fn word(memory: &Buffer, slot: usize, line: usize, word: usize) -> &AtomicU64 {
    let at = memory.at(((slot * MAX_LINES + line) * WORDS + word) * 8);
    // SAFETY: the word lies in the buffer, which is aligned, and both threads read it as an atomic; the plugin's writes are those of
    // a device.
    unsafe { AtomicU64::from_ptr(at.cast()) }
}

/// Reads the lines of the messages in progress until `ended`, and returns the number of lines whose flag was there.
///
/// # Errors
/// A flag was visible before its data, or half a word.
fn read(memory: &Buffer, expected: &[AtomicU64; SLOTS], ended: &AtomicBool) -> Result<u64, String> {
    let mut seen = 0;
    while !ended.load(Ordering::Relaxed) {
        for (slot, number) in expected.iter().enumerate() {
            let number = number.load(Ordering::Acquire);
            if number == u64::MAX {
                continue;
            }
            for line in 0..lines(number) {
                let flag = word(memory, slot, line, WORDS - 1).load(Ordering::Acquire);
                if flag >> 32 != flag & 0xffff_ffff {
                    return Err(format!(
                        "half a word of line {line} of message {number} was visible: {flag:#018x} (LL)"
                    ));
                }
                if flag != value(number) {
                    continue;
                }
                for at in 0..WORDS - 1 {
                    let found = word(memory, slot, line, at).load(Ordering::Relaxed);
                    // A later message of the slot has been posted since: this line may be its own.
                    fence(Ordering::Acquire);
                    if expected[slot].load(Ordering::Relaxed) != number {
                        break;
                    }
                    if found != flag {
                        return Err(format!(
                            "the flag of line {line} of message {number} was visible before byte {} of the line: {found:#018x} (LL128)",
                            at * 8
                        ));
                    }
                }
                seen += 1;
            }
        }
    }
    Ok(seen)
}

/// One side's messages: rank 0 sends, rank 1 receives into memory that the reader watches.
struct Lines<'a> {
    net: &'a Net,
    comm: Comm,
    memory: &'a Buffer,
    registration: Registration,
    expected: &'a [AtomicU64; SLOTS],
    sends: bool,
}

impl Lines<'_> {
    fn slot(number: u64) -> usize {
        usize::try_from(number).expect("few messages") % SLOTS
    }

    fn post(&self, number: u64) -> Result<Option<Request>, String> {
        let (slot, size) = (Self::slot(number), lines(number) * WORDS * 8);
        let data = self.memory.at(slot * MAX_LINES * WORDS * 8);
        if self.sends {
            for line in 0..lines(number) {
                (0..WORDS).for_each(|at| {
                    word(self.memory, slot, line, at).store(value(number), Ordering::Relaxed)
                });
            }
            return Ok(self.net.send(self.comm, data, size, self.registration)?);
        }
        self.expected[slot].store(number, Ordering::Release);
        // As long as a step of the protocol, as NCCL posts it.
        Ok(self.net.receive(self.comm, data, MAX_LINES * WORDS * 8, self.registration, true)?)
    }

    fn complete(&self, number: u64, size: usize) -> Result<(), String> {
        let slot = Self::slot(number);
        if size != lines(number) * WORDS * 8 {
            return Err(format!(
                "test reports {size} bytes of message {number}, which has {} lines",
                lines(number)
            ));
        }
        let differs = |line: usize| {
            (0..WORDS).any(|at| {
                word(self.memory, slot, line, at).load(Ordering::Relaxed) != value(number)
            })
        };
        match (0..lines(number)).find(|&line| !self.sends && differs(line)) {
            Some(line) => Err(format!("line {line} of message {number} differs")),
            None => Ok(()),
        }
    }

    fn run(&self, rank: &Rank<'_>) -> Result<(), String> {
        let mut watch = rank.stopwatch();
        let mut open = std::collections::VecDeque::new();
        let (mut posted, mut done) = (0, 0);
        while done < MESSAGES {
            let before = (posted, done);
            if posted < MESSAGES
                && open.len() < SLOTS
                && let Some(request) = self.post(posted)?
            {
                open.push_back(request);
                posted += 1;
            }
            if let Some(&oldest) = open.front()
                && let Some(size) = self.net.test(oldest)?
            {
                open.pop_front();
                self.complete(done, size)?;
                done += 1;
            }
            if before == (posted, done) {
                watch
                    .wait(|| format!("{done} of {MESSAGES} messages complete, {posted} posted"))?;
            } else {
                watch.restart();
            }
        }
        Ok(())
    }
}

pub(super) fn watched(rank: &mut Rank<'_>) -> Outcome {
    let memory = rank.buffer(SLOTS * MAX_LINES * WORDS * 8);
    let pair: Pair = rank.open()?;
    let net = rank.net()?;
    let sends = rank.number == 0;
    let comm = if sends { pair.send } else { pair.receive };
    let registration = net.register(comm, memory.at(0), memory.len())?;
    let expected = [const { AtomicU64::new(u64::MAX) }; SLOTS];
    let ended = AtomicBool::new(false);
    let side = Lines { net, comm, memory: &memory, registration, expected: &expected, sends };
    let seen = std::thread::scope(|scope| {
        let reader = (!sends).then(|| scope.spawn(|| read(&memory, &expected, &ended)));
        let passed = side.run(rank);
        ended.store(true, Ordering::Relaxed);
        let seen = reader.map_or(Ok(Ok(0)), |reader| {
            reader.join().map_err(|_| "the reader panicked".to_owned())
        })?;
        passed.and(seen)
    })?;
    net.deregister(comm, registration)?;
    rank.exchange.send(&seen.to_le_bytes());
    let other = rank.exchange.receive()?;
    rank.close(pair)?;
    let other = <[u8; 8]>::try_from(other).map_or(0, u64::from_le_bytes);
    Ok(format!("{MESSAGES} messages, {} lines seen complete", seen.max(other)))
}
