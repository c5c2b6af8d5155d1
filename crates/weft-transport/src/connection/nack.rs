//! Losses that the receiver reports: IRN's selective repeat and go-back-N.
//!
//! A receiver that gets a packet too far before the first one missing says so with a NACK: an ACK that
//! asks. IRN places the packet all the same, and the sender repeats what the ACK's bitmap lacks.
//! Go-back-N refuses it, and the sender begins again at the first one missing.
//!
//! With `recovery.rewind` both do as the public ns-3 models: each NACK notifies congestion control, as does
//! a mark on a packet that the receiver already has; an IRN sender goes back to the first packet missing
//! once for each recovery and passes over what the receiver has, and a go-back-N sender goes back for every
//! NACK, stale ones too. A NACK answers a packet that arrived, so none takes a path down.

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, AckType};

use super::ack_received::{Gained, circle, first_described};
use super::in_flight::Fate;
use super::loss::Cause;
use super::reassembly::{Echo, Receiver};
use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::{PathId, PathPolicy};
use crate::pool::before;
use crate::recovery::Kind;
use crate::{ConnectionId, DropReason, RecoveryConfig};

/// What the last NACK asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nacked {
    /// The first packet missing.
    psn: u32,
    /// It is not asked for again before.
    until: Instant,
}

impl Nacked {
    pub(crate) const NONE: Self = Self { psn: 0, until: Instant::EPOCH };
}

impl Receiver {
    /// Looks at how early a packet comes: it may call for a NACK.
    ///
    /// # Errors
    /// `OutOfOrder` under go-back-N unless it is the next packet.
    #[inline]
    pub(super) fn note_order(
        &mut self,
        echo: &Echo,
        now: Instant,
        config: &RecoveryConfig,
    ) -> Result<(), DropReason> {
        match config.kind {
            Kind::PerPath | Kind::Timeout => Ok(()),
            Kind::Irn => {
                if echo.psn.wrapping_sub(self.base) > config.out_of_order.into() {
                    let interval =
                        if config.rewind { Duration::ZERO } else { config.nack_interval };
                    self.ask_for_missing(echo, self.base, now, interval);
                }
                Ok(())
            }
            Kind::GoBackN => {
                let expected = self.base.wrapping_add(self.waiting);
                if echo.psn == expected {
                    return Ok(());
                }
                self.ask_for_missing(echo, expected, now, config.nack_interval);
                Err(DropReason::OutOfOrder)
            }
        }
    }

    /// Counts the mark of a packet that was placed before, where the next ACK is to report it.
    #[inline]
    pub(super) fn note_duplicate(&mut self, echo: &Echo, config: &RecoveryConfig) {
        if echo.marked && config.rewind {
            self.placed = self.placed.wrapping_add(1);
            self.marked = self.marked.wrapping_add(1);
        }
    }

    fn ask_for_missing(&mut self, echo: &Echo, missing: u32, now: Instant, interval: Duration) {
        let acks = &mut self.acks;
        if missing != acks.nacked.psn || now >= acks.nacked.until {
            acks.nacked = Nacked { psn: missing, until: now + interval };
            acks.answer = Some((*echo, AckType::Nack));
        }
    }
}

impl Connection {
    /// Likewise at the sender: repeats what the peer asks for.
    pub(super) fn handle_nack(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        shared.stats.nacks_received += 1;
        let RecoveryConfig { kind, rewind, .. } = shared.config.recovery;
        match kind {
            _ if rewind => sender.rewind(self.id, now, shared),
            Kind::GoBackN => sender.go_back_if_overtaken(self.id, ack, now, shared),
            _ => sender.repeat_missing(self.id, first_described(ack), now, shared),
        }
        self.arm_congestion();
    }

    /// The loss timer fired under go-back-N: the first packet's timeout decides.
    pub(super) fn go_back_on_timeout(&mut self, now: Instant, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut().filter(|sender| sender.is_waiting()) else {
            return;
        };
        let first = *sender.packet(sender.base).expect("a packet waits for its ACK");
        let due = sender.last_stamp.from_wire(first.sent_at) + sender.timeout(shared, 0);
        if first.is_in_flight() && due <= now {
            sender.go_back(self.id, Cause::Timeout, now, shared);
        }
        let next = if due > now { due } else { now + sender.timeout(shared, 0) };
        self.after_look(Some(next));
    }
}

impl Sender {
    /// Repeats the packets that an ACK says are missing, where it described 256 from `first` on.
    fn repeat_missing(&mut self, id: ConnectionId, first: u32, now: Instant, shared: &mut Shared) {
        self.note_missing(first);
        let (first, end) = self.described(first);
        for psn in circle(first, end) {
            let packet = *self.sent.slot(psn).expect("a sent packet has a slot");
            if packet.fate == Fate::Missing {
                self.lose(psn, &packet, Cause::Overtaken, now, shared);
                self.suspect(id, &packet, now, shared);
            }
        }
    }

    /// Notifies congestion control of marks on duplicates alone: of an ACK that acknowledges nothing.
    #[inline]
    pub(super) fn on_marked_duplicate(&mut self, ack: &AckHeader, now: Instant, gained: &Gained) {
        if gained.packets == 0 && gained.marks > 0 {
            let path = self.packet(ack.psn).map_or(PathId(0), |packet| packet.path);
            self.controllers.on_loss(path, now, &mut self.paths);
        }
    }

    /// Answers a NACK as the ns-3 models do. An IRN sender that has rewound does so again only when
    /// everything it had sent by then is acknowledged, or nothing is missing any more.
    fn rewind(&mut self, id: ConnectionId, now: Instant, shared: &mut Shared) {
        let Some(&first) = self.packet(self.base) else { return };
        let once = shared.config.recovery.kind == Kind::Irn;
        if once && self.rewound_to.is_some_and(|end| before(self.base, end)) {
            self.controllers.on_loss(first.path, now, &mut self.paths);
            return;
        }
        self.rewound_to = once.then_some(self.next);
        self.go_back(id, Cause::Overtaken, now, shared);
    }

    /// Begins again, unless the NACK is about packets that left before the last beginning did.
    fn go_back_if_overtaken(
        &mut self,
        id: ConnectionId,
        ack: &AckHeader,
        now: Instant,
        shared: &mut Shared,
    ) {
        let Some(&first) = self.packet(self.base) else { return };
        let overtook = self.last_stamp.from_wire(ack.timestamp_echo);
        if ack.psn_base == self.base && self.last_stamp.from_wire(first.sent_at) < overtook {
            self.go_back(id, Cause::Overtaken, now, shared);
        }
    }

    /// Sends everything from the first unacknowledged packet on again. Who decides hears of the first.
    fn go_back(&mut self, id: ConnectionId, cause: Cause, now: Instant, shared: &mut Shared) {
        let first = *self.sent.slot(self.base).expect("a packet waits for its ACK");
        self.lost.clear();
        for psn in circle(self.base, self.next) {
            let packet = *self.sent.slot(psn).expect("a sent packet has a slot");
            if packet.fate == Fate::Acked {
                continue;
            }
            if packet.is_in_flight() {
                self.leave_flight(packet.path, self.payload_len(&packet));
                cause.count(1, &mut shared.stats);
            }
            self.sent.slot_mut(psn).expect("a sent packet has a slot").fate = Fate::Lost;
            self.lost.push_back(psn);
        }
        self.paths.count_lost(first.path);
        let feedback = cause.tell(first.path, now, &mut self.controllers, &mut self.paths);
        self.policy.on_feedback(first.path, feedback, &self.paths, now);
        if cause != Cause::Overtaken || !shared.config.recovery.rewind {
            self.suspect(id, &first, now, shared);
        }
    }
}
