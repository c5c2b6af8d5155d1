//! The frames of a vhost-user port: taken from and delivered to its pairs of queues.

use std::os::fd::BorrowedFd;

use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Slot, Staging, Token, Turn};

use super::device::{Device, RECEIVES, SENDS};
use super::steering::flow_of;
use super::{CHANNEL, LISTENER, VhostPort};
use crate::{HEAD_LEN, HEADER_LEN, Holdings, Limits, Port, PortCounters, PortError, Sent};

/// Maximum number of frames taken from a pair of queues before the next pair is served.
const MAX_BURST: usize = 64;

/// The bits of a token or slot that number a frame within its pair of queues; the higher ones number the pair.
const FRAME_BITS: u32 = 24;

/// Minimum time between two announcements: each is sent to all hosts, and front end and guest can request any number.
/// QEMU requests five, 50 ms and more apart.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which unused buffers are freed.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

impl VhostPort {
    /// Returns the bounds of held frames that the guest sent from one of its queues.
    fn window(&self) -> Limits {
        Limits { frames: self.window, ..self.limits_of_pair() }
    }

    /// Returns the bounds of held frames of one pair of queues: all pairs share the port's memory.
    fn limits_of_pair(&self) -> Limits {
        Limits { bytes: self.limits.bytes / self.device.pairs.len(), ..self.limits }
    }

    /// Returns the next frame that the guest sent from a pair of queues.
    fn take_from(&mut self, pair: usize, now: Instant) -> Result<Option<Sent>, PortError> {
        if !self.device.pairs[pair].rings[SENDS].is_running() {
            return Ok(None);
        }
        let window = self.window();
        let (sent, mut scene) = self.device.transmit(pair);
        if !sent.has_room(window) {
            sent.full = true;
            return Ok(None);
        }
        let taken = sent.take(&mut scene, now);
        if std::mem::take(&mut sent.paused) {
            self.wake();
        }
        let taken = taken.map_err(|error| self.stop_broken(2 * pair + SENDS, error))?;
        let Some(Sent { token, len }) = taken else { return Ok(None) };
        self.device.frames[pair].0 += 1;
        if self.device.pairs.len() > 1 {
            let Device { pairs, steering, .. } = &mut self.device;
            let flow = flow_of(pairs[pair].sent.head(token), len - HEADER_LEN);
            flow.into_iter().for_each(|flow| steering.record(flow, pair));
        }
        Ok(Some(Sent { token: Token(join(pair, token.0)), len }))
    }

    /// Serves the next pair of queues from now on.
    fn serve_next_pair(&mut self) {
        self.next = (self.next + 1) % self.device.pairs.len();
        self.burst = 0;
    }

    /// Returns the pair of queues into which the guest receives a frame of `len` bytes with the virtio header, whose
    /// first bytes after that are `head`.
    fn receiving_pair(&self, head: &[u8], len: u32) -> usize {
        if self.device.pairs.len() == 1 {
            return 0;
        }
        self.device.pair_of(flow_of(head, len.saturating_sub(HEADER_LEN)))
    }

    /// Returns the pair of queues that a token or slot names, and its number there.
    fn split(&self, number: u32) -> Option<(usize, u32)> {
        let pair = (number >> FRAME_BITS) as usize;
        (pair < self.device.pairs.len()).then_some((pair, number & ((1 << FRAME_BITS) - 1)))
    }

    fn deliver(&mut self) -> Result<(), PortError> {
        let mut delivered = Ok(());
        for pair in 0..self.device.pairs.len() {
            if self.device.pairs[pair].rings[RECEIVES].is_running() {
                let before = self.device.counters.received_frames;
                let (received, mut scene) = self.device.receive(pair);
                if let Err(error) = received.deliver(&mut scene) {
                    delivered = Err(self.stop_broken(2 * pair + RECEIVES, error));
                }
                self.device.frames[pair].1 += self.device.counters.received_frames - before;
            }
        }
        delivered
    }
}

impl Port for VhostPort {
    fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    fn service(&mut self, now: Instant) -> Result<(), PortError> {
        if now.since(self.trimmed) >= TRIM_INTERVAL {
            self.trimmed = now;
            self.device.pool.trim();
        }
        // Kicks and wakes are edge-triggered: it is enough to read them, and the queues are processed next.
        let is_ready = self.readiness.poll(&[LISTENER, CHANNEL]);
        self.check_memory()?;
        if is_ready || self.channel.is_none() {
            self.connect_front_end()?;
            self.serve()?;
        }
        // A kick may have announced buffers for which frames wait.
        self.flush()
    }

    fn is_up(&self) -> bool {
        self.device.is_up()
    }

    fn take(&mut self, now: Instant) -> Result<Option<Sent>, PortError> {
        self.check_memory()?;
        if self.next >= self.device.pairs.len() {
            self.next = 0;
        }
        for _ in 0..self.device.pairs.len() {
            if let Some(sent) = self.take_from(self.next, now)? {
                self.burst += 1;
                if self.burst == MAX_BURST {
                    self.serve_next_pair();
                }
                return Ok(Some(sent));
            }
            self.serve_next_pair();
        }
        Ok(None)
    }

    fn take_announcement(&mut self, now: Instant) -> Option<Sent> {
        // A guest that has stopped may run elsewhere by now; one that starts is announced anew.
        self.device.announces &= self.is_up();
        let mac = self.mac.filter(|_| self.device.announces)?;
        if self.announced.is_some_and(|last| now.since(last) < ANNOUNCEMENT_INTERVAL) {
            return None;
        }
        self.device.announces = false;
        self.announced = Some(now);
        let (sent, mut scene) = self.device.transmit(0);
        Some(sent.hold_own(&mut scene, now, &reverse_arp(mac)))
    }

    fn read(
        &mut self,
        token: Token,
        offset: u32,
        out: &mut [u8],
        reading: Reading,
    ) -> Result<(), PortError> {
        let (pair, number) = self.split(token.0).ok_or(PortError::Unknown)?;
        let (sent, mut scene) = self.device.transmit(pair);
        sent.read(&mut scene, Token(number), offset, out, reading)
    }

    fn release(&mut self, token: Token) {
        let Some((pair, number)) = self.split(token.0) else { return };
        let window = self.window();
        let (sent, mut scene) = self.device.transmit(pair);
        sent.release(&mut scene, Token(number));
        if sent.full && sent.has_room(window) {
            sent.full = false;
            self.wake();
        }
    }

    fn release_overdue(&mut self, now: Instant, after: Duration) -> usize {
        let mut count = 0;
        for pair in 0..self.device.pairs.len() {
            let (sent, mut scene) = self.device.transmit(pair);
            count += sent.release_overdue(&mut scene, now, after);
        }
        if count > 0 {
            // The guest waits for these buffers.
            self.device.publish();
        }
        count
    }

    fn claim(&mut self, len: u32, turn: Turn, staging: Staging, head: &[u8]) -> Option<Slot> {
        let pair = self.receiving_pair(head, len);
        // A frame whose flow is not known yet is assembled here, until its queue is.
        let unknown = head.is_empty() && self.device.pairs.len() > 1;
        let staging = if unknown { Staging::Private } else { staging };
        let limits = self.limits_of_pair();
        let claimed = if self.device.pairs[pair].is_running() {
            let (received, mut scene) = self.device.receive(pair);
            received.claim(&mut scene, limits, len, turn, staging)
        } else {
            Ok(None)
        };
        let slot = claimed.unwrap_or_else(|error| {
            // The next flush reports the error.
            self.fault = Some((2 * pair + RECEIVES, error));
            None
        });
        self.device.counters.no_buffer += u64::from(slot.is_none());
        slot.map(|slot| Slot(join(pair, slot.0)))
    }

    fn place(&mut self, slot: Slot, offset: u32, bytes: &[u8]) -> Result<(), PortError> {
        let (pair, number) = self.split(slot.0).ok_or(PortError::Unknown)?;
        let Device { memory, pairs, .. } = &mut self.device;
        pairs[pair].received.place(memory, Slot(number), offset, bytes)
    }

    fn peek(&mut self, slot: Slot, out: &mut [u8]) -> usize {
        let Some((pair, number)) = self.split(slot.0) else { return 0 };
        self.device.pairs[pair].received.peek(&self.device.memory, Slot(number), out)
    }

    fn complete(&mut self, slot: Slot) {
        let Some((pair, number)) = self.split(slot.0) else { return };
        if self.device.pairs.len() > 1
            && let Some(frame) = self.device.pairs[pair].received.take_local(Slot(number))
        {
            let (first, _) = frame.pieces();
            let known = HEADER_LEN as usize..first.len().min(HEAD_LEN as usize);
            let own = self.receiving_pair(&first[known], frame.len());
            // The limits of the pair that claimed it were checked; those of a pair that the guest does not serve bind too.
            let has_room = self.device.pairs[own].received.has_room(self.limits_of_pair());
            let to = if has_room { own } else { pair };
            return self.device.pairs[to].received.enqueue(frame);
        }
        self.device.pairs[pair].received.complete(Slot(number));
    }

    fn cancel(&mut self, slot: Slot) {
        let Some((pair, number)) = self.split(slot.0) else { return };
        let Device { pairs, pool, .. } = &mut self.device;
        pairs[pair].received.cancel(pool, Slot(number));
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.check_memory()?;
        let delivered = match self.fault.take() {
            Some((queue, error)) if self.device.has_queue(queue) => {
                Err(self.stop_broken(queue, error))
            }
            _ => self.deliver(),
        };
        self.device.publish();
        delivered
    }

    fn return_buffers(&mut self) {
        let _ = self.deliver();
        self.device.return_all_buffers();
    }

    fn counters(&self) -> PortCounters {
        self.device.counters
    }

    fn holdings(&self) -> Holdings {
        self.device.holdings()
    }
}

/// Returns the frame by which a machine announces itself after a live migration, with a virtio header: a request of
/// RARP for its own address (RFC 903), as QEMU sends it.
fn reverse_arp(mac: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_LEN as usize];
    frame.extend([0xff; 6]);
    frame.extend(mac);
    // RARP; Ethernet and IPv4, with addresses of 6 and 4 bytes; a reverse request.
    frame.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    for _ in ["sender", "target"] {
        frame.extend(mac);
        frame.extend([0; 4]);
    }
    frame.resize(HEADER_LEN as usize + 60, 0);
    frame
}

/// Returns the token or slot of a frame by its pair of queues and its number there.
fn join(pair: usize, number: u32) -> u32 {
    debug_assert!(number < 1 << FRAME_BITS, "limits keep slabs small");
    u32::try_from(pair).expect("at most 16") << FRAME_BITS | number
}
