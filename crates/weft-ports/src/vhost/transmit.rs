//! Frames that the guest sent (BIFROST, 4.4 and 7.4): they stay in the guest's buffers until they are acknowledged,
//! and are read there again for a retransmission.
//!
//! What is kept here of each is its head, so that what a switch judged is what leaves, whatever the guest
//! writes there meanwhile, and where its chain begins. The chain is walked again when it is needed.

use std::collections::VecDeque;

use slab::Slab;
use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Token};

use super::chain::Segment;
use super::memory::Memory;
use super::ring::{Ring, RingError};
use crate::frame::{Frame, Pool, within};
use crate::{HEAD_LEN, HEADER_LEN, Holdings, Limits, MAX_FRAME, PortCounters, PortError, Sent};

/// Chains of more pieces are copied at once, so that nobody has them walked again and again.
const MAX_PIECES: usize = 64;

/// Chains that hold no frame and are given back by one call, before others have their turn.
const BAD_FRAMES_A_CALL: usize = 64;

/// The states of frames that may stay with the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// Not known yet: frames stay there and are copied too, until the first retransmission compares the two.
    Probation,
    /// The guest leaves its buffers alone until it has them back: nothing is copied.
    Guest,
    /// The guest was seen to use a buffer early: frames are copied and their buffers given back at once.
    Copies,
}

/// A frame that was taken and not yet released.
#[derive(Debug)]
struct Held {
    /// Distinguishes it from earlier frames of the same token.
    serial: u32,
    len: u32,
    taken: Instant,
    /// The chain's first descriptor, while the guest has not got it back.
    head: Option<u16>,
    copy: Option<Box<Frame>>,
    first: [u8; HEAD_LEN as usize],
}

/// All of them.
#[derive(Debug)]
pub(super) struct Transmit {
    held: Slab<Held>,
    /// In the order in which they were taken; released ones leave when they come to the front.
    order: VecDeque<(Token, u32)>,
    serial: u32,
    custody: Custody,
    copied: usize,
    /// The pieces of the frame that was looked at last, and which that is.
    pieces: Vec<Segment>,
    walked: Option<u32>,
    /// `take` found too much held.
    pub(super) full: bool,
    /// `take` stopped although there may be more.
    pub(super) paused: bool,
}

/// The source of frames and the counters.
pub(super) struct Scene<'a> {
    pub(super) memory: &'a Memory,
    pub(super) ring: &'a mut Ring,
    pub(super) pool: &'a mut Pool,
    pub(super) counters: &'a mut PortCounters,
}

impl Transmit {
    pub(super) fn new() -> Self {
        Self {
            held: Slab::new(),
            order: VecDeque::new(),
            serial: 0,
            custody: Custody::Probation,
            copied: 0,
            pieces: vec![],
            walked: None,
            full: false,
            paused: false,
        }
    }

    pub(super) fn custody(&self) -> Custody {
        self.custody
    }

    /// A guest that has started anew may be another one.
    pub(super) fn forget_custody(&mut self) {
        self.custody = Custody::Probation;
    }

    pub(super) fn has_room(&self, limits: Limits) -> bool {
        self.held.len() < limits.frames && self.copied < limits.bytes
    }

    /// The next frame that the guest offers.
    pub(super) fn take(
        &mut self,
        scene: &mut Scene<'_>,
        now: Instant,
    ) -> Result<Option<Sent>, RingError> {
        for _ in 0..BAD_FRAMES_A_CALL {
            scene.ring.wants_quiet(scene.memory);
            let Some(head) = scene.ring.next_head(scene.memory)? else {
                if scene.ring.wants_kicks(scene.memory) {
                    continue;
                }
                return Ok(None);
            };
            self.pieces.clear();
            self.walked = None;
            let len = scene.ring.walk(scene.memory, head, &mut self.pieces)?;
            if !(HEADER_LEN + 14..=MAX_FRAME).contains(&len) {
                scene.counters.bad_frame += 1;
                scene.ring.give_back(scene.memory, head, 0);
                continue;
            }
            return Ok(Some(self.hold(scene, now, head, len)));
        }
        self.paused = true;
        Ok(None)
    }

    fn hold(&mut self, scene: &mut Scene<'_>, now: Instant, head: u16, len: u32) -> Sent {
        self.serial = self.serial.wrapping_add(1);
        let mut held = Held {
            serial: self.serial,
            len,
            taken: now,
            head: Some(head),
            copy: None,
            first: [0; HEAD_LEN as usize],
        };
        let known = len.min(HEAD_LEN) as usize;
        let read = scene.memory.gather(&self.pieces, 0, &mut held.first[..known]);
        scene.counters.unreadable += u64::from(read.is_err());
        self.walked = Some(held.serial);
        let many = self.pieces.len() > MAX_PIECES;
        if self.custody != Custody::Guest || many {
            self.copied += copy(&mut held, &self.pieces, scene);
        }
        if self.custody == Custody::Copies || many {
            give_back(&mut held, scene);
        }
        scene.counters.sent_frames += 1;
        scene.counters.sent_bytes += u64::from(len - HEADER_LEN);
        let serial = held.serial;
        let token = Token(u32::try_from(self.held.insert(held)).expect("limits keep slabs small"));
        self.order.push_back((token, serial));
        Sent { token, len }
    }

    pub(super) fn read(
        &mut self,
        scene: &mut Scene<'_>,
        token: Token,
        offset: u32,
        out: &mut [u8],
        reading: Reading,
    ) -> Result<(), PortError> {
        if reading == Reading::Again && self.custody == Custody::Probation {
            self.decide_custody(scene, token);
        }
        let held = self.held.get(token.0 as usize).ok_or(PortError::Unknown)?;
        if let Some(copy) = &held.copy {
            return copy.read(offset, out);
        }
        within(held.len, offset, out.len()).inspect_err(|_| out.fill(0))?;
        let first = held.first[..held.len.min(HEAD_LEN) as usize].get(offset as usize..);
        let first = first.unwrap_or(&[]);
        let (known, rest) = out.split_at_mut(first.len().min(out.len()));
        known.copy_from_slice(&first[..known.len()]);
        if rest.is_empty() {
            return Ok(());
        }
        let at = offset + u32::try_from(known.len()).expect("at most HEAD_LEN");
        let read = walk_again(held, scene, &mut self.pieces, &mut self.walked)
            .and_then(|()| scene.memory.gather(&self.pieces, at, rest).map_err(RingError::from));
        read.map_err(|_| {
            rest.fill(0);
            scene.counters.unreadable += 1;
            PortError::Unreadable
        })
    }

    /// Compares a frame that is sent again with its copy (7.4). One that is in only one place says nothing.
    fn decide_custody(&mut self, scene: &mut Scene<'_>, token: Token) {
        let Some(held) = self.held.get(token.0 as usize) else { return };
        let (Some(copy), Some(_)) = (&held.copy, held.head) else { return };
        let mut now = scene.pool.frame(held.len);
        let read = walk_again(held, scene, &mut self.pieces, &mut self.walked);
        let same = read.is_ok()
            && fill(&mut now, &self.pieces, scene.memory)
            && now.pieces() == copy.pieces();
        scene.pool.put(now);
        if same {
            self.custody = Custody::Guest;
            return;
        }
        scene.counters.recycled_early += 1;
        self.custody = Custody::Copies;
        for (_, held) in &mut self.held {
            give_back(held, scene);
        }
    }

    pub(super) fn release(&mut self, scene: &mut Scene<'_>, token: Token) {
        let Some(mut held) = self.held.try_remove(token.0 as usize) else { return };
        give_back(&mut held, scene);
        match held.copy {
            Some(copy) => {
                self.copied -= copy.memory();
                scene.pool.put(*copy);
            }
            None => scene.counters.uncopied += 1,
        }
        while let Some(&(token, serial)) = self.order.front() {
            let live = self.held.get(token.0 as usize).is_some_and(|held| held.serial == serial);
            if live {
                break;
            }
            self.order.pop_front();
        }
    }

    /// Copies the frames that were taken longer than `after` ago, and gives their buffers back.
    pub(super) fn release_overdue(
        &mut self,
        scene: &mut Scene<'_>,
        now: Instant,
        after: Duration,
    ) -> usize {
        let mut count = 0;
        while let Some(&(token, serial)) = self.order.front() {
            let held = self.held.get(token.0 as usize).filter(|held| held.serial == serial);
            if let Some(held) = held {
                if now.since(held.taken) < after {
                    break;
                }
                count += usize::from(held.head.is_some());
                self.take_home(scene, token);
            }
            // It has no buffer of the guest's any more, so nobody need look for it here.
            self.order.pop_front();
        }
        scene.counters.overdue += count as u64;
        count
    }

    /// Gives all buffers back to the guest, which is about to stop or to go.
    pub(super) fn return_buffers(&mut self, scene: &mut Scene<'_>) {
        while let Some((token, _)) = self.order.pop_front() {
            self.take_home(scene, token);
        }
        self.walked = None;
    }

    /// From now on this frame is read from a copy.
    fn take_home(&mut self, scene: &mut Scene<'_>, token: Token) {
        let Some(held) = self.held.get_mut(token.0 as usize) else { return };
        if held.head.is_none() {
            return;
        }
        if held.copy.is_none() {
            let walked = walk_again(held, scene, &mut self.pieces, &mut self.walked);
            if walked.is_err() {
                self.pieces.clear();
            }
            self.copied += copy(held, &self.pieces, scene);
        }
        give_back(held, scene);
    }

    pub(super) fn add_to(&self, holdings: &mut Holdings) {
        holdings.taken = self.held.len();
        let lists = self.held.capacity() * size_of::<Held>()
            + self.order.capacity() * size_of::<(Token, u32)>();
        holdings.taken_memory = self.copied + lists;
    }
}

/// Has `pieces` be those of the frame.
fn walk_again(
    held: &Held,
    scene: &Scene<'_>,
    pieces: &mut Vec<Segment>,
    walked: &mut Option<u32>,
) -> Result<(), RingError> {
    if *walked == Some(held.serial) {
        return Ok(());
    }
    let head = held.head.ok_or(RingError::Missing)?;
    pieces.clear();
    *walked = None;
    let len = scene.ring.walk(scene.memory, head, pieces)?;
    if len < held.len {
        // The guest has changed the chain under us.
        return Err(RingError::Missing);
    }
    *walked = Some(held.serial);
    Ok(())
}

/// Copies the frame; how much memory that takes. Its head is the one that was judged.
fn copy(held: &mut Held, pieces: &[Segment], scene: &mut Scene<'_>) -> usize {
    let mut frame = scene.pool.frame(held.len);
    if !fill(&mut frame, pieces, scene.memory) {
        scene.counters.unreadable += 1;
    }
    let first = &held.first[..held.len.min(HEAD_LEN) as usize];
    frame.write(0, first).expect("the head of a frame lies within it");
    let memory = frame.memory();
    held.copy = Some(Box::new(frame));
    memory
}

/// Reads the whole frame; missing bytes are zero. Returns `true` if none was missing.
fn fill(frame: &mut Frame, pieces: &[Segment], memory: &Memory) -> bool {
    let (first, rest) = frame.pieces_mut();
    let whole = pieces
        .last()
        .is_some_and(|last| last.start as usize + last.len as usize >= first.len() + rest.len());
    if !whole {
        first.fill(0);
        rest.fill(0);
        return false;
    }
    let at = u32::try_from(first.len()).expect("a small buffer");
    // Both, so that both are filled.
    let read = (memory.gather(pieces, 0, first), memory.gather(pieces, at, rest));
    read.0.is_ok() && read.1.is_ok()
}

fn give_back(held: &mut Held, scene: &mut Scene<'_>) {
    if let Some(head) = held.head.take() {
        scene.ring.give_back(scene.memory, head, 0);
    }
}
