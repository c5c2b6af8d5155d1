//! When to acknowledge, and what: after so many placed packets, after a delay, or at once when a
//! packet came twice or asked for it (BIFROST, section 4.3).

use weft_units::Instant;
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS, Bitmap, U4, U5, U11};

use super::reassembly::{Echo, Receiver, Stage};
use super::{Connection, Shared};
use crate::path::PathId;
use crate::timers::Timer;

/// What the next ACK owes.
#[derive(Debug)]
pub(crate) struct AckState {
    /// The packet to echo: the latest one, or the latest marked one if any was marked, so that a
    /// mark is attributed to its path.
    echo: Option<Echo>,
    /// An ACK echoed it already. A packet that is placed late may find no other: the owner placed
    /// it after an ACK for its neighbours had left, and it needs its ACK all the same.
    echoed: bool,
    /// A packet that came though it was placed.
    pub(crate) duplicate: Option<Echo>,
    /// Packets placed since the last ACK.
    placed: u16,
    /// A packet asked for an ACK at once.
    at_once: bool,
    /// An ACK is to leave.
    due: bool,
    /// ACKs sent; decides their paths, and which block of a wide window is reported.
    sent: u32,
}

impl AckState {
    pub(crate) const fn new() -> Self {
        Self {
            echo: None,
            echoed: false,
            duplicate: None,
            placed: 0,
            at_once: false,
            due: false,
            sent: 0,
        }
    }

    /// A packet arrived; it is acknowledged once placed.
    #[inline]
    pub(crate) fn note_arrival(&mut self, echo: Echo, at_once: bool) {
        if echo.marked || self.echoed || !self.echo.is_some_and(|echo| echo.marked) {
            self.echo = Some(echo);
            self.echoed = false;
        }
        self.at_once |= at_once;
    }

    /// Whether an ACK is to leave now.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due || self.duplicate.is_some()
    }
}

impl Connection {
    /// One more packet was placed: acknowledge now, or after the delay.
    #[inline]
    pub(crate) fn acknowledge_placed(&mut self, now: Instant, shared: &Shared) {
        let acks = &mut self.receiver.acks;
        acks.placed += 1;
        if acks.at_once || acks.placed >= shared.config.ack_every {
            acks.due = true;
        } else if acks.placed == 1 {
            self.timers.arm(Timer::DelayedAck, now + shared.config.ack_delay);
        }
    }

    /// The delay has passed.
    pub(crate) fn on_ack_timer(&mut self) {
        let acks = &mut self.receiver.acks;
        acks.due |= acks.placed > 0;
    }

    /// The next ACK, and the path it takes.
    #[inline]
    pub(crate) fn poll_ack(
        &mut self,
        now: Instant,
        shared: &mut Shared,
    ) -> Option<(PathId, AckHeader)> {
        if !self.receiver.acks.is_due() {
            return self.poll_probe_answer(now, shared);
        }
        let acks = &mut self.receiver.acks;
        let (echo, ack_type) = match (acks.due, acks.duplicate.take()) {
            (_, Some(echo)) => (echo, AckType::Duplicate),
            (_, None) => (acks.echo?, AckType::Plain),
        };
        if ack_type == AckType::Plain {
            self.timers.disarm(Timer::DelayedAck);
            acks.echoed = true;
            acks.placed = 0;
            acks.at_once = false;
            acks.due = false;
        }
        shared.stats.acks_sent += 1;
        self.sent_anything_at = now;
        let (block, bitmap) = self.receiver.report(echo.psn);
        let header = AckHeader {
            path_id: echo.path_id,
            hop_count: U4::truncate(echo.hops.into()),
            block,
            ack_type,
            psn: echo.psn,
            timestamp: now.to_wire(),
            timestamp_echo: echo.timestamp,
            timestamp_nic_rx: echo.received_at.to_wire(),
            bitmap,
            ..self.ack_header()
        };
        Some((self.next_ack_path(shared), header))
    }

    /// The path of the next ACK or answer: each takes its turn. An ACK says nothing that the one
    /// after it does not say too, so a dead path back costs one ACK in so many; sent back on the
    /// paths their packets came by, they would make every path whose way back is dead look dead.
    #[inline]
    pub(crate) fn next_ack_path(&mut self, shared: &Shared) -> PathId {
        let sent = self.receiver.acks.sent;
        self.receiver.acks.sent = sent.wrapping_add(1);
        let path = sent % u32::from(shared.config.paths);
        PathId(u16::try_from(path).expect("at most 4096 paths"))
    }

    /// What every ACK says: the counts and the first packet missing.
    pub(crate) fn ack_header(&self) -> AckHeader {
        AckHeader {
            version: self.version,
            destination_cid: self.remote_cid,
            num_ack: U11::truncate(self.receiver.placed),
            num_ece: U11::truncate(self.receiver.marked),
            psn_base: self.receiver.base,
            ..AckHeader::default()
        }
    }
}

impl Receiver {
    /// Which packets of one block of 256 were placed. Every other ACK reports the block of the
    /// echoed packet; the others take turns through the window, so that a lost ACK is made up for.
    fn report(&self, echoed: u32) -> (U5, Bitmap) {
        let held = self.end.wrapping_sub(self.base);
        let mut bitmap = Bitmap::default();
        if held == 0 {
            return (U5::default(), bitmap);
        }
        let blocks = held.div_ceil(BITMAP_PACKETS);
        let ahead = echoed.wrapping_sub(self.base);
        let block = match self.acks.sent % 2 {
            _ if blocks == 1 => 0,
            0 if ahead < held => ahead / BITMAP_PACKETS,
            _ => (self.acks.sent / 2) % blocks,
        };
        let first = block * BITMAP_PACKETS;
        for index in 0..(held - first).min(BITMAP_PACKETS) {
            let psn = self.base.wrapping_add(first + index);
            if self.received.slot(psn).is_some_and(|packet| packet.stage() == Stage::Placed) {
                bitmap.set(index);
            }
        }
        (U5::truncate(block), bitmap)
    }
}
