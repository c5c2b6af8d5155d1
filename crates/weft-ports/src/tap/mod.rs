//! A TAP interface: for containers, namespaces and bare hosts.
//!
//! The kernel's end of the interface keeps nothing of a frame that was read, so a frame is kept here until it is
//! released, and one on its way in is gathered here until it is complete.

mod address;
mod config;
mod device;

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use slab::Slab;
use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Slot, Staging, Token, Turn};

pub use self::config::{Limits, TapConfig};
use self::device::Device;
use crate::finish::{Ability, Change, Finished, Header, finish};
use crate::frame::{Frame, Pool};
use crate::readiness::{Readiness, Watch};
use crate::{HEAD_LEN, HEADER_LEN, Holdings, Port, PortCounters, PortError, Sent};

/// Maximum number of invalid frames skipped by one call, so that other ports are not delayed.
const MAX_BAD_FRAMES_PER_CALL: usize = 64;

/// Length of the shortest frame, bytes: a virtio header and an Ethernet header.
const MIN_FRAME: u32 = HEADER_LEN + 14;

/// The interval at which unused buffers are freed.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// A tenant's TAP interface.
#[derive(Debug)]
pub struct TapPort {
    device: Device,
    readiness: Readiness,
    limits: Limits,
    pool: Pool,
    taken: Slab<Frame>,
    taken_memory: usize,
    claimed: Slab<Frame>,
    /// The frames completed and not yet written, in order.
    waiting: VecDeque<Frame>,
    /// Bytes of memory of claimed and waiting frames.
    claimed_memory: usize,
    watch: Watch,
    ability: Ability,
    state: State,
    trimmed: Instant,
    counters: PortCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Frames are written to the interface.
    Up,
    /// The tenant has set its interface down; writing is retried at the next `service`.
    Down,
    /// The interface was deleted.
    Gone,
}

impl TapPort {
    /// Creates the interface, or opens it if it exists and no other process uses it.
    ///
    /// # Errors
    /// `BadName`; `Io` with the refused operation: no such namespace, no privilege, interface in use.
    pub fn open(config: &TapConfig) -> Result<Self, PortError> {
        let device = device::open(config)?;
        let readiness = Readiness::new()?;
        let takes_uso = device.takes_uso;
        let ability = Ability { udp_v4: takes_uso, udp_v6: takes_uso, ..Ability::TCP };
        readiness
            .add(&device.fd, 0, Watch::Level)
            .map_err(PortError::io(format!("watch {}", device.name)))?;
        Ok(Self {
            device,
            readiness,
            limits: config.limits,
            pool: Pool::default(),
            taken: Slab::new(),
            taken_memory: 0,
            claimed: Slab::new(),
            waiting: VecDeque::new(),
            claimed_memory: 0,
            watch: Watch::Level,
            ability,
            state: State::Up,
            trimmed: Instant::EPOCH,
            counters: PortCounters::default(),
        })
    }

    /// Returns the kernel's name of it.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Watches for frames only while there is room for them.
    fn update_watch(&mut self) {
        let full = self.taken.len() >= self.limits.frames || self.taken_memory >= self.limits.bytes;
        let wanted = if full || self.state == State::Gone { Watch::Paused } else { Watch::Level };
        if wanted != self.watch && self.readiness.change(&self.device.fd, 0, wanted).is_ok() {
            self.watch = wanted;
        }
    }

    /// Returns one frame from the kernel; `None` if none waits.
    fn read_frame(&mut self) -> io::Result<Option<Frame>> {
        let fd = &self.device.fd;
        let fill = |room: &mut [IoSliceMut<'_>]| rustix::io::readv(fd, room);
        match self.pool.frame_from(fill) {
            Ok(mut frame) => {
                // The kernel fills ten of the header's bytes and leaves `num_buffers` unchanged.
                let _ = frame.write(HEADER_LEN - 2, &[0, 0]);
                Ok(Some(frame))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Handles the deletion of the interface: stops watching it, drops waiting frames and returns the error to report.
    fn on_deleted(&mut self, error: io::Error) -> PortError {
        self.state = State::Gone;
        self.readiness.remove(&self.device.fd);
        self.watch = Watch::Paused;
        self.counters.lost += self.waiting.len() as u64;
        while let Some(frame) = self.waiting.pop_front() {
            self.put_claimed(frame);
        }
        PortError::io(format!("reach {}: remove the port and add it again", self.device.name))(
            error,
        )
    }

    fn put_claimed(&mut self, frame: Frame) {
        self.claimed_memory -= frame.memory();
        self.pool.put(frame);
    }

    /// Queues a frame under the header for the tenant.
    fn enqueue(&mut self, mut frame: Frame, header: Header) {
        frame.write(0, &header).expect("every frame has a header");
        self.waiting.push_back(frame);
    }

    /// Queues the frames made of one.
    fn enqueue_changed(&mut self, frame: Frame, change: &Change) {
        let (first, rest) = frame.pieces();
        let whole = [&first[HEADER_LEN as usize..], rest].concat();
        for bytes in change.apply(whole) {
            let len = HEADER_LEN + u32::try_from(bytes.len()).expect("parts of a frame");
            let mut part = self.pool.frame(len);
            part.write(HEADER_LEN, &bytes).expect("it was made for these bytes");
            self.claimed_memory += part.memory();
            self.enqueue(part, Header::default());
        }
        self.counters.segmented += 1;
        self.put_claimed(frame);
    }

    fn write_waiting(&mut self) -> Result<(), PortError> {
        while let Some(frame) = self.waiting.front() {
            match rustix::io::writev(&self.device.fd, &frame.io_slices()) {
                Ok(_) => {
                    self.counters.received_frames += 1;
                    self.counters.received_bytes += u64::from(frame.len() - HEADER_LEN);
                    self.counters.notifications += 1;
                    self.state = State::Up;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => return Ok(()),
                Err(Errno::IO) => {
                    self.state = State::Down;
                    return Ok(());
                }
                // The kernel found that the header does not fit the frame.
                Err(Errno::INVAL) => self.counters.bad_header += 1,
                Err(errno @ (Errno::BADFD | Errno::NXIO | Errno::NODEV)) => {
                    return Err(self.on_deleted(errno.into()));
                }
                Err(_) => self.counters.lost += 1,
            }
            let frame = self.waiting.pop_front().expect("it was looked at");
            self.put_claimed(frame);
        }
        Ok(())
    }
}

impl Port for TapPort {
    fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    fn service(&mut self, now: Instant) -> Result<(), PortError> {
        if now.since(self.trimmed) >= TRIM_INTERVAL {
            self.trimmed = now;
            self.pool.trim();
            // It may have been set up again.
            return self.write_waiting();
        }
        self.flush()
    }

    fn is_up(&self) -> bool {
        self.state == State::Up
    }

    fn take(&mut self, _now: Instant) -> Result<Option<Sent>, PortError> {
        if self.watch == Watch::Paused {
            return Ok(None);
        }
        for _ in 0..MAX_BAD_FRAMES_PER_CALL {
            let frame = match self.read_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.on_deleted(error)),
            };
            if frame.len() < MIN_FRAME {
                self.counters.bad_frame += 1;
                self.pool.put(frame);
                continue;
            }
            let len = frame.len();
            self.counters.sent_frames += 1;
            self.counters.sent_bytes += u64::from(len - HEADER_LEN);
            self.taken_memory += frame.memory();
            let token = Token(key(self.taken.insert(frame)));
            self.update_watch();
            return Ok(Some(Sent { token, len }));
        }
        Ok(None)
    }

    fn read(
        &mut self,
        token: Token,
        offset: u32,
        out: &mut [u8],
        _reading: Reading,
    ) -> Result<(), PortError> {
        let frame = self.taken.get(token.0 as usize).ok_or(PortError::Unknown)?;
        frame.read(offset, out)
    }

    fn release(&mut self, token: Token) {
        if let Some(frame) = self.taken.try_remove(token.0 as usize) {
            self.taken_memory -= frame.memory();
            self.pool.put(frame);
            self.update_watch();
        }
    }

    /// The kernel frees its buffers as soon as a frame is read.
    fn release_overdue(&mut self, _now: Instant, _after: Duration) -> usize {
        0
    }

    /// The kernel does not see a frame before it is written, so all are private.
    fn claim(&mut self, len: u32, turn: Turn, _staging: Staging, _head: &[u8]) -> Option<Slot> {
        let (spare, spare_memory) = match turn {
            Turn::Next => (0, 0),
            Turn::OutOfOrder => (1, crate::MAX_FRAME as usize),
        };
        let held = self.claimed.len() + self.waiting.len() + spare;
        let memory = self.claimed_memory + spare_memory;
        let full = held >= self.limits.frames || memory >= self.limits.bytes;
        if full || self.state != State::Up || !(MIN_FRAME..=crate::MAX_FRAME).contains(&len) {
            self.counters.no_buffer += 1;
            return None;
        }
        let frame = self.pool.frame(len);
        self.claimed_memory += frame.memory();
        Some(Slot(key(self.claimed.insert(frame))))
    }

    fn place(&mut self, slot: Slot, offset: u32, bytes: &[u8]) -> Result<(), PortError> {
        let frame = self.claimed.get_mut(slot.0 as usize).ok_or(PortError::Unknown)?;
        frame.write(offset, bytes)
    }

    fn peek(&mut self, slot: Slot, out: &mut [u8]) -> usize {
        let Some(frame) = self.claimed.get(slot.0 as usize) else { return 0 };
        let count = out.len().min(frame.len() as usize);
        frame.read(0, &mut out[..count]).map_or(0, |()| count)
    }

    fn complete(&mut self, slot: Slot) {
        let Some(frame) = self.claimed.try_remove(slot.0 as usize) else { return };
        let (first, _) = frame.pieces();
        let known = first.len().min(HEAD_LEN as usize);
        match finish(&first[..known], frame.len() - HEADER_LEN, self.ability) {
            Some(Finished::AsIs(header)) => self.enqueue(frame, header),
            Some(Finished::Changed(change)) => self.enqueue_changed(frame, &change),
            None => {
                self.counters.bad_header += 1;
                self.put_claimed(frame);
            }
        }
    }

    fn cancel(&mut self, slot: Slot) {
        if let Some(frame) = self.claimed.try_remove(slot.0 as usize) {
            self.put_claimed(frame);
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match self.state {
            State::Up => self.write_waiting(),
            State::Down | State::Gone => Ok(()),
        }
    }

    fn return_buffers(&mut self) {
        let _ = self.write_waiting();
        for frame in std::mem::take(&mut self.claimed) {
            self.put_claimed(frame.1);
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn holdings(&self) -> Holdings {
        Holdings {
            taken: self.taken.len(),
            claimed: self.claimed.len(),
            waiting: self.waiting.len(),
            taken_memory: self.taken_memory,
            claimed_memory: self.claimed_memory,
            regions: (0, 0),
            queue_pairs: (1, 1),
        }
    }
}

/// Returns a slab's key as a token.
fn key(index: usize) -> u32 {
    u32::try_from(index).expect("limits keep slabs small")
}
