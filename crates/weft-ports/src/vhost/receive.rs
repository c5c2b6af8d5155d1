//! Frames for the guest (BIFROST, 4.2): packets are written to the guest's buffers in the order of their arrival, and
//! only the used-ring entries are written in the order of frames.
//!
//! A frame that needs an offload that the guest has not negotiated is assembled in this process and written when its
//! turn comes. The same holds for a frame that the guest must not access before it is complete, and for frames that
//! a guest has not received yet when it stops.

use std::collections::VecDeque;

use slab::Slab;
use weft_vpc::{Slot, Staging, Turn};

use super::lending::{Buffers, Lender, Lent};
use super::memory::Memory;
use super::ring::Ring;
use super::virtqueue::RingError;
use crate::finish::{Ability, Finished, Header, finish};
use crate::frame::{Frame, Pool, within};
use crate::{HEAD_LEN, HEADER_LEN, Holdings, Limits, MAX_FRAME, PortCounters, PortError};

/// The options that the guest negotiated for received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) ability: Ability,
    /// `true` if a frame may fill several buffers.
    pub(super) mergeable: bool,
}

/// The place in which a frame is assembled.
#[derive(Debug)]
enum Place {
    /// Buffers of the guest.
    Guest(Buffers),
    /// Memory of this process.
    Local(Frame),
}

/// All frames on their way to the guest.
#[derive(Debug, Default)]
pub(super) struct Receive {
    claimed: Slab<Place>,
    /// The frames completed and not yet delivered to the guest, in order.
    waiting: VecDeque<Place>,
    lender: Lender,
    /// Number of the guest's buffers that contain claimed frames.
    lent: usize,
    /// Bytes of memory of frames that are assembled in this process.
    gathered: usize,
}

/// The parts of the device that receiving needs.
pub(super) struct Scene<'a> {
    pub(super) memory: &'a Memory,
    pub(super) ring: &'a mut Ring,
    pub(super) pool: &'a mut Pool,
    pub(super) counters: &'a mut PortCounters,
    pub(super) terms: Terms,
}

impl Scene<'_> {
    /// Copies a frame from the guest's buffers to this process.
    fn fetch(&mut self, buffers: &Buffers) -> Frame {
        let (frame, whole) = buffers.fetch(self.memory, self.pool);
        self.counters.unreadable += u64::from(!whole);
        frame
    }

    /// Returns to the guest the buffers that contain a frame, with `header`.
    fn give(&mut self, buffers: &Buffers, header: Header) {
        buffers.give(self.memory, self.ring, header);
        self.counters.received_frames += 1;
        self.counters.received_bytes += u64::from(buffers.len - HEADER_LEN);
    }
}

impl Receive {
    pub(super) fn claim(
        &mut self,
        scene: &mut Scene<'_>,
        limits: Limits,
        len: u32,
        turn: Turn,
        staging: Staging,
    ) -> Result<Option<Slot>, RingError> {
        // If the tenant is slow, the next frame waits like any other.
        let is_next = turn == Turn::Next && self.waiting.is_empty();
        let room = self.has_room(limits);
        if !(HEADER_LEN + 14..=MAX_FRAME).contains(&len) || !(room || is_next) {
            return Ok(None);
        }
        let mut local = staging == Staging::Private || !scene.terms.ability.takes_any(len);
        if !local {
            match self.lend(scene, len)? {
                Lent::Buffers(buffers) => {
                    self.lent += buffers.count();
                    return Ok(Some(self.insert(Place::Guest(buffers))));
                }
                // Early frames hold most of the ring, and they may wait for this one.
                Lent::Later => local = is_next || 2 * self.lent >= scene.ring.size(),
                Lent::Never => local = true,
            }
        }
        Ok(local.then(|| {
            let frame = scene.pool.frame(len);
            self.gathered += frame.memory();
            self.insert(Place::Local(frame))
        }))
    }

    /// Returns `true` if another frame may be held within the limits.
    pub(super) fn has_room(&self, limits: Limits) -> bool {
        self.claimed.len() + self.waiting.len() < limits.frames && self.gathered < limits.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claimed.is_empty() && self.waiting.is_empty()
    }

    fn insert(&mut self, place: Place) -> Slot {
        Slot(u32::try_from(self.claimed.insert(place)).expect("limits keep slabs small"))
    }

    fn lend(&mut self, scene: &mut Scene<'_>, len: u32) -> Result<Lent, RingError> {
        self.lender.lend(scene.memory, scene.ring, scene.terms.mergeable, len)
    }

    /// Frees guest buffers when frames behind the next one hold them all: one such frame is assembled in this process
    /// from now on. Returns `true` if there was one.
    fn evict(&mut self, scene: &mut Scene<'_>) -> bool {
        // Prefer a frame that is not complete; otherwise take the last one in order.
        let claimed = self.claimed.iter_mut().map(|(_, place)| place);
        let mut places = claimed.chain(self.waiting.iter_mut().rev());
        let Some(place) = places.find(|place| matches!(place, Place::Guest(_))) else {
            return false;
        };
        let Place::Guest(buffers) = place else { return false };
        let frame = scene.fetch(buffers);
        self.gathered += frame.memory();
        let buffers = std::mem::take(buffers);
        *place = Place::Local(frame);
        self.lender.put_back(buffers);
        self.lent = self.claimed.iter().map(|(_, place)| place.chains()).sum();
        true
    }

    pub(super) fn place(
        &mut self,
        memory: &Memory,
        slot: Slot,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), PortError> {
        match self.claimed.get_mut(slot.0 as usize).ok_or(PortError::Unknown)? {
            Place::Local(frame) => frame.write(offset, bytes),
            Place::Guest(buffers) => {
                within(buffers.len, offset, bytes.len())?;
                let written = memory.scatter(&buffers.segments, offset, bytes);
                written.map_err(|_| PortError::Unreadable)
            }
        }
    }

    pub(super) fn peek(&self, memory: &Memory, slot: Slot, out: &mut [u8]) -> usize {
        let Some(place) = self.claimed.get(slot.0 as usize) else { return 0 };
        let count = out.len().min(place.len() as usize);
        let out = &mut out[..count];
        let read = match place {
            Place::Local(frame) => frame.read(0, out).is_ok(),
            Place::Guest(buffers) => memory.gather(&buffers.segments, 0, out).is_ok(),
        };
        if read { count } else { 0 }
    }

    pub(super) fn complete(&mut self, slot: Slot) {
        let place = self.claimed.try_remove(slot.0 as usize);
        if let Some(Place::Guest(buffers)) = &place {
            self.lent -= buffers.count();
        }
        self.waiting.extend(place);
    }

    /// Takes a claimed frame that is assembled in this process, to complete it elsewhere.
    pub(super) fn take_local(&mut self, slot: Slot) -> Option<Frame> {
        let Place::Local(_) = self.claimed.get(slot.0 as usize)? else { return None };
        let Place::Local(frame) = self.claimed.remove(slot.0 as usize) else { return None };
        self.gathered -= frame.memory();
        Some(frame)
    }

    /// Takes all frames that wait in this process.
    pub(super) fn take_waiting(&mut self) -> Vec<Frame> {
        let mut frames = vec![];
        for place in std::mem::take(&mut self.waiting) {
            match place {
                Place::Local(frame) => {
                    self.gathered -= frame.memory();
                    frames.push(frame);
                }
                Place::Guest(_) => self.waiting.push_back(place),
            }
        }
        frames
    }

    /// Appends a complete frame of this process to those that wait.
    pub(super) fn enqueue(&mut self, frame: Frame) {
        self.gathered += frame.memory();
        self.waiting.push_back(Place::Local(frame));
    }

    pub(super) fn cancel(&mut self, pool: &mut Pool, slot: Slot) {
        match self.claimed.try_remove(slot.0 as usize) {
            Some(Place::Guest(buffers)) => {
                self.lent -= buffers.count();
                self.lender.put_back(buffers);
            }
            Some(Place::Local(frame)) => self.forget(pool, frame),
            None => {}
        }
    }

    fn forget(&mut self, pool: &mut Pool, frame: Frame) {
        self.gathered -= frame.memory();
        pool.put(frame);
    }

    /// Delivers completed frames to the guest in order, as far as it has room.
    pub(super) fn deliver(&mut self, scene: &mut Scene<'_>) -> Result<(), RingError> {
        while let Some(place) = self.waiting.pop_front() {
            match place {
                Place::Guest(buffers) => self.deliver_there(scene, buffers),
                Place::Local(frame) => match self.deliver_local(scene, &frame) {
                    Ok(Delivery::Done) => self.forget(scene.pool, frame),
                    Ok(Delivery::Never) => {
                        scene.counters.lost += 1;
                        self.forget(scene.pool, frame);
                    }
                    Ok(Delivery::Later) => {
                        self.waiting.push_front(Place::Local(frame));
                        // A kick announces new room, unless there is some already.
                        let again = self.evict(scene) || scene.ring.enable_kicks(scene.memory);
                        if !again {
                            return Ok(());
                        }
                    }
                    Err(error) => {
                        // The frame waits until the queue is set up again.
                        self.waiting.push_front(Place::Local(frame));
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }

    /// Delivers a frame that is in the guest's buffers. If the frame needs an offload that the guest lacks, it is
    /// copied back to this process.
    fn deliver_there(&mut self, scene: &mut Scene<'_>, buffers: Buffers) {
        let mut head = [0; HEAD_LEN as usize];
        let known = head.len().min(buffers.len as usize);
        let read = scene.memory.gather(&buffers.segments, 0, &mut head[..known]);
        let len = buffers.len - HEADER_LEN;
        let finished = read.ok().and_then(|()| finish(&head[..known], len, scene.terms.ability));
        match finished {
            Some(Finished::AsIs(header)) => {
                scene.give(&buffers, header);
                self.lender.recycle(buffers);
            }
            Some(Finished::Changed(_)) => {
                let frame = scene.fetch(&buffers);
                self.gathered += frame.memory();
                self.lender.put_back(buffers);
                self.waiting.push_front(Place::Local(frame));
            }
            None => {
                scene.counters.bad_header += 1;
                self.lender.put_back(buffers);
            }
        }
    }

    /// Delivers a frame of this process, whole or segmented: all of it or nothing, so that partial progress need not be
    /// recorded.
    fn deliver_local(
        &mut self,
        scene: &mut Scene<'_>,
        frame: &Frame,
    ) -> Result<Delivery, RingError> {
        let (first, rest) = frame.pieces();
        let known = first.len().min(HEAD_LEN as usize);
        let len = frame.len() - HEADER_LEN;
        let frames = match finish(&first[..known], len, scene.terms.ability) {
            None => {
                scene.counters.bad_header += 1;
                return Ok(Delivery::Done);
            }
            Some(Finished::AsIs(header)) => return self.deliver_as_is(scene, frame, header),
            Some(Finished::Changed(change)) => {
                change.apply([&first[HEADER_LEN as usize..], rest].concat())
            }
        };
        let mut lent = Vec::with_capacity(frames.len());
        for one in &frames {
            let len = HEADER_LEN + u32::try_from(one.len()).expect("parts of a frame");
            let lacking = match self.lend(scene, len) {
                Ok(Lent::Buffers(buffers)) => {
                    lent.push(buffers);
                    continue;
                }
                Ok(Lent::Later) if frames.len() <= scene.ring.size() => Ok(Delivery::Later),
                Ok(Lent::Later | Lent::Never) => Ok(Delivery::Never),
                Err(error) => Err(error),
            };
            lent.into_iter().for_each(|buffers| self.lender.put_back(buffers));
            return lacking;
        }
        for (one, buffers) in frames.iter().zip(lent) {
            let _ = scene.memory.scatter(&buffers.segments, HEADER_LEN, one);
            scene.give(&buffers, [0; HEADER_LEN as usize]);
            self.lender.recycle(buffers);
        }
        scene.counters.segmented += 1;
        Ok(Delivery::Done)
    }

    /// Delivers a frame of this process unchanged, with `header`.
    fn deliver_as_is(
        &mut self,
        scene: &mut Scene<'_>,
        frame: &Frame,
        header: Header,
    ) -> Result<Delivery, RingError> {
        let buffers = match self.lend(scene, frame.len())? {
            Lent::Buffers(buffers) => buffers,
            Lent::Later => return Ok(Delivery::Later),
            Lent::Never => return Ok(Delivery::Never),
        };
        let (first, rest) = frame.pieces();
        let offset = u32::try_from(first.len()).expect("a small buffer");
        // Bytes for memory that the guest has withdrawn are dropped.
        let _ = scene.memory.scatter(&buffers.segments, 0, first);
        let _ = scene.memory.scatter(&buffers.segments, offset, rest);
        scene.give(&buffers, header);
        self.lender.recycle(buffers);
        Ok(Delivery::Done)
    }

    /// Returns all buffers to the guest, which is about to stop or disconnect, and copies their frames to this process.
    pub(super) fn return_buffers(&mut self, scene: &mut Scene<'_>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let claimed = self.claimed.iter_mut().map(|(_, place)| place);
        for place in claimed.chain(&mut waiting) {
            let Place::Guest(buffers) = place else { continue };
            let frame = scene.fetch(buffers);
            self.gathered += frame.memory();
            buffers.return_unwritten(scene.memory, scene.ring);
            *place = Place::Local(frame);
        }
        self.waiting = waiting;
        self.lent = 0;
        self.lender.return_buffers(scene.memory, scene.ring);
    }

    pub(super) fn add_to(&self, holdings: &mut Holdings) {
        holdings.claimed += self.claimed.len();
        holdings.waiting += self.waiting.len();
        holdings.claimed_memory += self.gathered;
    }
}

/// The result of delivering a frame to the guest.
enum Delivery {
    Done,
    Later,
    Never,
}

impl Place {
    /// Returns the number of the guest's buffers that it fills.
    fn chains(&self) -> usize {
        match self {
            Self::Guest(buffers) => buffers.count(),
            Self::Local(_) => 0,
        }
    }

    fn len(&self) -> u32 {
        match self {
            Self::Guest(buffers) => buffers.len,
            Self::Local(frame) => frame.len(),
        }
    }
}
