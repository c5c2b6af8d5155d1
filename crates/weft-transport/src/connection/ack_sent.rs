//! The schedule and contents of ACKs: after `ack_every` placed packets, after a delay, or at once when a packet was a
//! duplicate or requested it (BIFROST, section 4.3).

use weft_units::Instant;
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS, Bitmap, U4, U5, U11};

use super::ack_state::{AckState, Echo};
use super::reassembly::{Receiver, Stage};
use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::{PathId, PeerPorts};
use crate::timers::Timer;

impl AckState {
    /// Records the arrival of a packet; it is acknowledged once placed.
    #[inline]
    pub(crate) fn note_arrival(&mut self, echo: Echo, at_once: bool) {
        if echo.marked || self.echoed || !self.echo.is_some_and(|echo| echo.marked) {
            self.echo = Some(echo);
            self.echoed = false;
            self.echo_is_duplicate = false;
        }
        self.at_once |= at_once;
    }

    /// Schedules a second ACK, by another path, after a duplicate: its sender has not received the first one. It does
    /// not echo a packet a second time: the silence since then would count as a round trip.
    fn follow_up(&mut self, duplicate: Echo) {
        self.due = true;
        if self.echoed {
            self.echo = Some(duplicate);
            self.echo_is_duplicate = true;
        }
    }

    /// Returns the packet to echo in an ACK that does not answer one packet at once, and the ACK's type.
    fn next_echo(&self) -> Option<(Echo, AckType)> {
        let ack_type = if self.echo_is_duplicate { AckType::Duplicate } else { AckType::Plain };
        self.echo.map(|echo| (echo, ack_type))
    }

    /// Returns `true` if an ACK must be sent now.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due || self.sweep > 0 || self.answer.is_some()
    }
}

impl Connection {
    /// Records that one more packet was placed: acknowledges it now, or after the delay.
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

    /// Handles the ACK delay timer. No more packets arrive for now, so everything is reported: a sender whose window is
    /// full may be waiting for any of it.
    pub(crate) fn on_ack_timer(&mut self) {
        let blocks = self.receiver.blocks();
        let acks = &mut self.receiver.acks;
        acks.due |= acks.placed > 0;
        if blocks > 1 && (acks.due || acks.owes_sweep) {
            acks.sweep = u8::try_from(blocks).expect("at most 32 blocks");
            acks.owes_sweep = false;
        }
    }

    /// Returns the next ACK, or the next answer to a probe if no ACK is due, and its path; `None` if neither is due.
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
        let answer = acks.answer.take();
        let answers_duplicate = matches!(answer, Some((_, AckType::Duplicate)));
        let (echo, ack_type) = answer.or_else(|| acks.next_echo())?;
        if answers_duplicate {
            acks.follow_up(echo);
        } else {
            acks.echoed = true;
            acks.placed = 0;
            acks.at_once = false;
            acks.due = false;
        }
        shared.stats.acks_sent += 1;
        self.last_sent_at = now;
        let block = match ack_type {
            AckType::Duplicate if answers_duplicate => self.receiver.block_of(echo.psn),
            AckType::Nack => 0,
            _ => self.receiver.next_block(echo.psn),
        };
        if self.receiver.acks.owes_sweep {
            self.timers.arm(Timer::DelayedAck, now + shared.config.ack_delay);
        } else if !answers_duplicate && ack_type != AckType::Nack {
            self.timers.disarm(Timer::DelayedAck);
        }
        let bitmap = self.receiver.describe(block);
        let header = AckHeader {
            path_id: echo.path_id,
            hop_count: U4::truncate(echo.hops.into()),
            block: U5::truncate(block),
            ack_type,
            psn: echo.psn,
            timestamp: now.to_wire(),
            timestamp_echo: echo.timestamp,
            timestamp_nic_rx: echo.received_at.to_wire(),
            bitmap,
            ..self.ack_header(shared)
        };
        let peer = self.peer_ports(shared);
        let next = &mut self.receiver.acks.next_ack_path;
        Some((reverse_path(next, self.sender.as_deref(), peer, shared), header))
    }

    /// Returns the ACK that a connection owes when it ends. Without it the peer would consider the packets placed since
    /// the last ACK undelivered.
    pub(crate) fn last_ack(&mut self, now: Instant, shared: &mut Shared) -> Option<AckHeader> {
        let acks = &mut self.receiver.acks;
        acks.due |= acks.placed > 0;
        let owed = acks.is_due();
        owed.then(|| self.poll_ack(now, shared)).flatten().map(|(_, ack)| ack)
    }

    /// Returns the fields common to all ACKs: the counts and the first missing packet.
    pub(crate) fn ack_header(&self, shared: &Shared) -> AckHeader {
        AckHeader {
            version: self.version,
            cc_type: shared.cc_type(),
            destination_cid: self.remote_cid,
            num_ack: U11::truncate(self.receiver.placed),
            num_ece: U11::truncate(self.receiver.marked),
            psn_base: self.receiver.base,
            ..AckHeader::default()
        }
    }
}

/// Returns the path of the next ACK or probe answer: the paths take turns. The next ACK repeats the contents of the one
/// before it, so a dead reverse path only costs one ACK in each round over the paths; sent back on the paths of their
/// packets, ACKs would make every path with a dead reverse direction look dead. A path that this end's own packets
/// found to be down is skipped.
#[inline]
pub(super) fn reverse_path(
    next: &mut PathId,
    sender: Option<&Sender>,
    peer: PeerPorts,
    shared: &Shared,
) -> PathId {
    let paths = shared.config.paths;
    let is_up = |path| {
        sender.is_none_or(|sender| sender.paths.is_up(path))
            && !shared.peer_paths.is_closed(peer, path)
    };
    let path = (next.0..paths).chain(0..next.0).map(PathId).find(|&path| is_up(path));
    let path = path.unwrap_or(*next);
    *next = PathId(if path.0 + 1 < paths { path.0 + 1 } else { 0 });
    path
}

impl Receiver {
    /// Returns the number of blocks of 256 packets from the first missing packet to the last placed one.
    fn blocks(&self) -> u32 {
        self.end.wrapping_sub(self.base).div_ceil(BITMAP_PACKETS)
    }

    /// Returns the block that the next ACK describes: the echoed packet's, the first one, which the sender's window
    /// waits for, and the others in turn, so that later ACKs repeat the report of a lost one.
    fn next_block(&mut self, echoed: u32) -> u32 {
        let (blocks, acks) = (self.blocks(), &mut self.acks);
        if acks.sweep > 0 {
            acks.sweep -= 1;
            return u32::from(acks.sweep).min(blocks.saturating_sub(1));
        }
        acks.owes_sweep = blocks > 1;
        if blocks < 2 {
            return 0;
        }
        acks.reported = acks.reported.wrapping_add(1);
        match acks.reported % 3 {
            0 => self.block_of(echoed),
            1 => acks.reported / 3 % blocks,
            _ => 0,
        }
    }

    /// Returns the block of a packet; the first block if the packet is before or after those that the blocks cover.
    fn block_of(&self, psn: u32) -> u32 {
        let block = psn.wrapping_sub(self.base) / BITMAP_PACKETS;
        if block < self.blocks() { block } else { 0 }
    }

    /// Returns the bitmap of the placed packets of a block.
    fn describe(&self, block: u32) -> Bitmap {
        let mut bitmap = Bitmap::default();
        let first = block * BITMAP_PACKETS;
        let held = self.end.wrapping_sub(self.base);
        for index in 0..held.saturating_sub(first).min(BITMAP_PACKETS) {
            let psn = self.base.wrapping_add(first + index);
            if self.received.slot(psn).is_some_and(|packet| packet.stage() == Stage::Placed) {
                bitmap.set(index);
            }
        }
        bitmap
    }
}
