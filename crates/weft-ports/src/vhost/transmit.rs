//! Frames from the guest (BIFROST, 4.4 and 7.4): they stay in the guest's buffers until they are acknowledged, and are
//! read there again for a retransmission.
//!
//! This module keeps a copy of each frame's head, so that the bytes that the switch checked are the bytes sent,
//! whatever the guest writes there meanwhile; and the chain's first descriptor. The chain is walked again when needed.

use std::collections::VecDeque;

use slab::Slab;
use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Token};

use super::chain::Segment;
use super::memory::Memory;
use super::ring::Ring;
use super::virtqueue::RingError;
use crate::frame::{Frame, Pool, within};
use crate::{HEAD_LEN, HEADER_LEN, Holdings, Limits, MAX_FRAME, PortCounters, PortError, Sent};

/// Maximum number of pieces of a chain that stays in the guest's buffers; longer chains are copied at once, so that
/// a guest cannot cause repeated long walks.
const MAX_PIECES: usize = 64;

/// Maximum number of invalid frames returned in one call, so that other ports are not delayed.
const MAX_BAD_FRAMES_PER_CALL: usize = 64;

/// The place in which the guest's frames are kept until they are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// Undecided: frames stay in the guest's buffers and are also copied; the first retransmission compares both.
    Probation,
    /// The guest does not change its buffers before they return: nothing is copied.
    Guest,
    /// The guest has changed a buffer early: frames are copied and their buffers returned at once.
    Copies,
}

/// A frame that was taken and not yet released.
#[derive(Debug)]
struct Held {
    /// The number that distinguishes the frame from earlier ones with the same token.
    serial: u32,
    len: u32,
    taken: Instant,
    /// The chain's first descriptor; `None` after the chain was returned.
    head: Option<u16>,
    copy: Option<Box<Frame>>,
    first: [u8; HEAD_LEN as usize],
}

/// All frames that were taken and not yet released.
#[derive(Debug)]
pub(super) struct Transmit {
    held: Slab<Held>,
    /// The frames in the order in which they were taken; released ones are removed at the front.
    order: VecDeque<(Token, u32)>,
    serial: u32,
    custody: Custody,
    copied: usize,
    /// The pieces of the frame that was walked last; `walked` has its serial number.
    pieces: Vec<Segment>,
    walked: Option<u32>,
    /// `true` if `take` stopped because too many frames are held.
    pub(super) full: bool,
    /// `true` if `take` stopped although there may be more frames.
    pub(super) paused: bool,
}

/// The parts of the device that sending needs.
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

    /// Returns the first bytes of a held frame, without the virtio header.
    pub(super) fn head(&self, token: Token) -> &[u8] {
        let head = |held: &Held| HEADER_LEN as usize..held.len.min(HEAD_LEN) as usize;
        self.held.get(token.0 as usize).map_or(&[], |held| &held.first[head(held)])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Resets the decision about the guest's buffers: after a restart it may be another guest.
    pub(super) fn forget_custody(&mut self) {
        self.custody = Custody::Probation;
    }

    pub(super) fn has_room(&self, limits: Limits) -> bool {
        self.held.len() < limits.frames && self.copied < limits.bytes
    }

    /// Takes the next frame of the guest.
    pub(super) fn take(
        &mut self,
        scene: &mut Scene<'_>,
        now: Instant,
    ) -> Result<Option<Sent>, RingError> {
        for _ in 0..MAX_BAD_FRAMES_PER_CALL {
            scene.ring.suppress_kicks(scene.memory);
            let Some(head) = scene.ring.next_head(scene.memory)? else {
                if scene.ring.enable_kicks(scene.memory) {
                    continue;
                }
                return Ok(None);
            };
            self.pieces.clear();
            self.walked = None;
            let len = scene.ring.walk(scene.memory, head, &mut self.pieces)?;
            if !(HEADER_LEN + 14..=MAX_FRAME).contains(&len) {
                scene.counters.bad_frame += 1;
                scene.ring.push_used(scene.memory, head, 0);
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
        let is_long = self.pieces.len() > MAX_PIECES;
        if self.custody != Custody::Guest || is_long {
            self.copied += copy(&mut held, &self.pieces, scene);
        }
        if self.custody == Custody::Copies || is_long {
            return_chain(&mut held, scene);
        }
        scene.counters.sent_frames += 1;
        scene.counters.sent_bytes += u64::from(len - HEADER_LEN);
        let serial = held.serial;
        let token = Token(u32::try_from(self.held.insert(held)).expect("limits keep slabs small"));
        self.order.push_back((token, serial));
        Sent { token, len }
    }

    /// Holds a frame of the port's own, which is in no buffer of the guest.
    pub(super) fn hold_own(&mut self, scene: &mut Scene<'_>, now: Instant, bytes: &[u8]) -> Sent {
        self.serial = self.serial.wrapping_add(1);
        let len = u32::try_from(bytes.len()).expect("a short frame");
        let mut frame = scene.pool.frame(len);
        frame.write(0, bytes).expect("a frame of its length");
        self.copied += frame.memory();
        let mut first = [0; HEAD_LEN as usize];
        first[..bytes.len()].copy_from_slice(bytes);
        let (serial, copy) = (self.serial, Some(Box::new(frame)));
        let held = Held { serial, len, taken: now, head: None, copy, first };
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
        if reading == Reading::Retransmission && self.custody == Custody::Probation {
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

    /// Compares a retransmitted frame with its copy (7.4). A frame in only one place gives no information.
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
            return_chain(held, scene);
        }
    }

    pub(super) fn release(&mut self, scene: &mut Scene<'_>, token: Token) {
        let Some(mut held) = self.held.try_remove(token.0 as usize) else { return };
        return_chain(&mut held, scene);
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

    /// Copies the frames taken longer than `after` ago, and returns their buffers. Returns the number of frames.
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
                self.move_to_copy(scene, token);
            }
            // The frame holds no guest buffer any more, so it need not stay in this list.
            self.order.pop_front();
        }
        scene.counters.overdue += count as u64;
        count
    }

    /// Returns all buffers to the guest, which is about to stop or disconnect.
    pub(super) fn return_buffers(&mut self, scene: &mut Scene<'_>) {
        while let Some((token, _)) = self.order.pop_front() {
            self.move_to_copy(scene, token);
        }
        self.walked = None;
    }

    /// Copies a frame and returns its buffer: it is read from the copy from now on.
    fn move_to_copy(&mut self, scene: &mut Scene<'_>, token: Token) {
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
        return_chain(held, scene);
    }

    pub(super) fn add_to(&self, holdings: &mut Holdings) {
        holdings.taken += self.held.len();
        let lists = self.held.capacity() * size_of::<Held>()
            + self.order.capacity() * size_of::<(Token, u32)>();
        holdings.taken_memory += self.copied + lists;
    }
}

/// Sets `pieces` to the pieces of the frame.
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
        // The guest has changed the chain since the frame was taken.
        return Err(RingError::Missing);
    }
    *walked = Some(held.serial);
    Ok(())
}

/// Copies the frame and returns the copy's bytes of memory. Its head is the one that the switch checked.
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
    // Read both, so that both are filled also if one fails.
    let read = (memory.gather(pieces, 0, first), memory.gather(pieces, at, rest));
    read.0.is_ok() && read.1.is_ok()
}

/// Returns a held frame's chain to the guest, if that was not done before.
fn return_chain(held: &mut Held, scene: &mut Scene<'_>) {
    if let Some(head) = held.head.take() {
        scene.ring.push_used(scene.memory, head, 0);
    }
}
