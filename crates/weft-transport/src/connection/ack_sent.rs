//! When to acknowledge, and what: after so many placed packets, after a delay, or at once when a
//! packet came twice or asked for it (BIFROST, section 4.3).

use weft_units::Instant;
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS, Bitmap, U4, U5, U11};

use super::nack::Nacked;
use super::reassembly::{Echo, Receiver, Stage};
use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::{PathId, PeerPorts};
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
    /// That packet was placed before it came.
    of_copy: bool,
    /// A packet that is answered at once: it came though it was placed, or too early.
    pub(super) answer: Option<(Echo, AckType)>,
    /// The last NACK.
    pub(super) nacked: Nacked,
    /// Packets placed since the last ACK.
    placed: u16,
    /// A packet asked for an ACK at once.
    at_once: bool,
    /// An ACK is to leave.
    due: bool,
    /// The path whose turn it is to take an ACK.
    pub(super) turn: PathId,
    /// Likewise an answer to a probe. Had they turns in common, an ACK and an answer that always alternate
    /// would each keep to one half of the paths, and never leave it where that half is dead.
    pub(super) turn_of_answers: PathId,
    /// Blocks of a wide window reported; decides which is next.
    reported: u32,
    /// Blocks of a wide window that get an ACK each, the last first.
    sweep: u8,
    /// Of a wide window only some blocks were described since anything was placed.
    owes_sweep: bool,
}

impl AckState {
    pub(crate) const fn new() -> Self {
        Self {
            echo: None,
            echoed: false,
            of_copy: false,
            answer: None,
            nacked: Nacked::NONE,
            placed: 0,
            at_once: false,
            due: false,
            turn: PathId(0),
            turn_of_answers: PathId(0),
            reported: 0,
            sweep: 0,
            owes_sweep: false,
        }
    }

    /// A packet arrived; it is acknowledged once placed.
    #[inline]
    pub(crate) fn note_arrival(&mut self, echo: Echo, at_once: bool) {
        if echo.marked || self.echoed || !self.echo.is_some_and(|echo| echo.marked) {
            self.echo = Some(echo);
            self.echoed = false;
            self.of_copy = false;
        }
        self.at_once |= at_once;
    }

    /// A packet that was placed came again: whoever sent it has not heard so. One ACK more leaves, by
    /// another path. What it would echo a second time it does not: all of the silence since would count as
    /// a round trip.
    fn follow_up(&mut self, copy: Echo) {
        self.due = true;
        if self.echoed {
            self.echo = Some(copy);
            self.of_copy = true;
        }
    }

    /// Returns the echo of an ACK that does not answer one packet at once.
    fn next_echo(&self) -> Option<(Echo, AckType)> {
        let ack_type = if self.of_copy { AckType::Duplicate } else { AckType::Plain };
        self.echo.map(|echo| (echo, ack_type))
    }

    /// Whether an ACK is to leave now.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due || self.sweep > 0 || self.answer.is_some()
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

    /// The delay has passed: nothing more comes for now, so everything is reported, as a sender whose
    /// window is full may be waiting for any of it.
    pub(crate) fn on_ack_timer(&mut self) {
        let blocks = self.receiver.blocks();
        let acks = &mut self.receiver.acks;
        acks.due |= acks.placed > 0;
        if blocks > 1 && (acks.due || acks.owes_sweep) {
            acks.sweep = u8::try_from(blocks).expect("at most 32 blocks");
            acks.owes_sweep = false;
        }
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
        let answer = acks.answer.take();
        let answers_copy = matches!(answer, Some((_, AckType::Duplicate)));
        let (echo, ack_type) = answer.or_else(|| acks.next_echo())?;
        if answers_copy {
            acks.follow_up(echo);
        } else {
            acks.echoed = true;
            acks.placed = 0;
            acks.at_once = false;
            acks.due = false;
        }
        shared.stats.acks_sent += 1;
        self.sent_anything_at = now;
        let block = match ack_type {
            AckType::Duplicate if answers_copy => self.receiver.block_of(echo.psn),
            AckType::Nack => 0,
            _ => self.receiver.next_block(echo.psn),
        };
        if self.receiver.acks.owes_sweep {
            self.timers.arm(Timer::DelayedAck, now + shared.config.ack_delay);
        } else if !answers_copy && ack_type != AckType::Nack {
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
        let turn = &mut self.receiver.acks.turn;
        Some((way_back(turn, self.sender.as_deref(), peer, shared), header))
    }

    /// The ACK that a connection owes when it ends. Without it the peer would take for undone what was
    /// placed since the last.
    pub(crate) fn last_ack(&mut self, now: Instant, shared: &mut Shared) -> Option<AckHeader> {
        let acks = &mut self.receiver.acks;
        acks.due |= acks.placed > 0;
        let owed = acks.is_due();
        owed.then(|| self.poll_ack(now, shared)).flatten().map(|(_, ack)| ack)
    }

    /// What every ACK says: the counts and the first packet missing.
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

/// The path of the next ACK or answer: each path has its turn. An ACK says
/// nothing that the one after it does not say too, so a dead path back costs one ACK in so many; sent
/// back on the paths their packets came by, they would make every path whose way back is dead look
/// dead. A path that this end's own packets found to be down loses its turn.
#[inline]
pub(super) fn way_back(
    turn: &mut PathId,
    sender: Option<&Sender>,
    peer: PeerPorts,
    shared: &Shared,
) -> PathId {
    let paths = shared.config.paths;
    let is_up = |path| {
        sender.is_none_or(|sender| sender.paths.is_up(path))
            && !shared.peer_paths.is_closed(peer, path)
    };
    let path = (turn.0..paths).chain(0..turn.0).map(PathId).find(|&path| is_up(path));
    let path = path.unwrap_or(*turn);
    *turn = PathId(if path.0 + 1 < paths { path.0 + 1 } else { 0 });
    path
}

impl Receiver {
    /// Blocks of 256 packets from the first one missing to the last one placed.
    fn blocks(&self) -> u32 {
        self.end.wrapping_sub(self.base).div_ceil(BITMAP_PACKETS)
    }

    /// Which block the next ACK describes: that of the echoed packet, the first, which the sender's
    /// window waits for, and one block after another, so that a lost ACK is made up for.
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

    /// The block of a packet; the first where it is behind or beyond all that is held.
    fn block_of(&self, psn: u32) -> u32 {
        let block = psn.wrapping_sub(self.base) / BITMAP_PACKETS;
        if block < self.blocks() { block } else { 0 }
    }

    /// Which packets of a block were placed.
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
