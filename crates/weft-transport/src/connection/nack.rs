//! Loss recovery by NACK: IRN's selective repeat and go-back-N.
//!
//! A receiver answers a packet too far beyond the first missing one with a NACK: an ACK that requests retransmission.
//! IRN still places the packet, and the sender retransmits the packets that the ACK's bitmap lacks. Go-back-N refuses
//! it, and the sender resumes from the first missing one.
//!
//! With `recovery.rewind` both behave as the public ns-3 models: each NACK notifies congestion control, as does a mark
//! on a packet that the receiver already has; an IRN sender goes back to the first missing packet once per recovery and
//! skips packets that the receiver has, and a go-back-N sender goes back for every NACK, stale ones too. A NACK answers
//! a packet that arrived, so none takes a path down.

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, AckType};

use super::ack_received::{NewlyAcked, first_described, psn_range};
use super::ack_state::{Echo, Nacked};
use super::in_flight::PacketState;
use super::loss::Cause;
use super::reassembly::Receiver;
use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::{PathId, PathPolicy};
use crate::pool::before;
use crate::recovery::Kind;
use crate::{ConnectionId, DropReason, RecoveryConfig};

impl Receiver {
    /// Checks how early a packet comes, and queues a NACK if it is too early.
    ///
    /// # Errors
    /// [`DropReason::OutOfOrder`] under go-back-N unless it is the next packet.
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
                    self.queue_nack(echo, self.base, now, interval);
                }
                Ok(())
            }
            Kind::GoBackN => {
                let expected = self.base.wrapping_add(self.waiting);
                if echo.psn == expected {
                    return Ok(());
                }
                self.queue_nack(echo, expected, now, config.nack_interval);
                Err(DropReason::OutOfOrder)
            }
        }
    }

    /// Counts the mark of a duplicate, if the next ACK must report it.
    #[inline]
    pub(super) fn note_duplicate(&mut self, echo: &Echo, config: &RecoveryConfig) {
        if echo.marked && config.rewind {
            self.placed = self.placed.wrapping_add(1);
            self.marked = self.marked.wrapping_add(1);
        }
    }

    /// Queues a NACK for `missing`, at most once in `interval`.
    fn queue_nack(&mut self, echo: &Echo, missing: u32, now: Instant, interval: Duration) {
        let acks = &mut self.acks;
        if missing != acks.nacked.psn || now >= acks.nacked.until {
            acks.nacked = Nacked { psn: missing, until: now + interval };
            acks.answer = Some((*echo, AckType::Nack));
        }
    }
}

impl Connection {
    /// Handles a NACK at the sender: retransmits the packets it requests.
    pub(super) fn handle_nack(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        shared.stats.nacks_received += 1;
        let RecoveryConfig { kind, rewind, .. } = shared.config.recovery;
        match kind {
            _ if rewind => sender.rewind(self.id, now, shared),
            Kind::GoBackN => sender.go_back_if_overtaken(self.id, ack, now, shared),
            _ => sender.retransmit_missing(self.id, first_described(ack), now, shared),
        }
        self.arm_congestion();
    }

    /// Handles the loss timer under go-back-N: the first packet's timeout decides. The first may wait for retransmission
    /// while packets that the receiver refuses fill the window: a switch trimmed it, and NACKs were lost.
    pub(super) fn go_back_on_timeout(&mut self, now: Instant, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut().filter(|sender| sender.is_waiting()) else {
            return;
        };
        let first = *sender.packet(sender.base).expect("a packet waits for its ACK");
        let due = sender.last_stamp.from_wire(first.sent_at) + sender.timeout(shared, 0);
        if (first.is_in_flight() || sender.in_flight > 0) && due <= now {
            sender.go_back(self.id, Cause::Timeout, now, shared);
        }
        let next = if due > now { due } else { now + sender.timeout(shared, 0) };
        self.arm_loss_timers(Some(next));
    }
}

impl Sender {
    /// Retransmits the packets that an ACK reports as missing, where it described 256 from `first` on.
    fn retransmit_missing(
        &mut self,
        id: ConnectionId,
        first: u32,
        now: Instant,
        shared: &mut Shared,
    ) {
        self.note_missing(first);
        let (first, end) = self.described(first);
        for psn in psn_range(first, end) {
            let packet = *self.sent.slot(psn).expect("a sent packet has a slot");
            if packet.state == PacketState::Missing {
                self.declare_lost(psn, &packet, Cause::Overtaken, now, shared);
                self.note_path_loss(id, &packet, now, shared);
            }
        }
    }

    /// Notifies congestion control of marks on duplicates only: of an ACK that acknowledges nothing.
    #[inline]
    pub(super) fn on_marked_duplicate(
        &mut self,
        ack: &AckHeader,
        now: Instant,
        newly_acked: &NewlyAcked,
    ) {
        if newly_acked.packets == 0 && newly_acked.marks > 0 {
            let path = self.packet(ack.psn).map_or(PathId(0), |packet| packet.path);
            self.controllers.on_loss(path, now, &mut self.paths);
        }
    }

    /// Handles a NACK as the ns-3 models do. An IRN sender that has rewound does so again only when all packets it had
    /// sent by then are acknowledged, or no packet is missing.
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

    /// Goes back, unless the NACK is about packets that left before the last rewind.
    fn go_back_if_overtaken(
        &mut self,
        id: ConnectionId,
        ack: &AckHeader,
        now: Instant,
        shared: &mut Shared,
    ) {
        let Some(&first) = self.packet(self.base) else { return };
        let echoed_sent_at = self.last_stamp.from_wire(ack.timestamp_echo);
        if ack.psn_base == self.base && self.last_stamp.from_wire(first.sent_at) < echoed_sent_at {
            self.go_back(id, Cause::Overtaken, now, shared);
        }
    }

    /// Retransmits everything from the first unacknowledged packet on. Congestion control and path policy are notified
    /// of the first packet only.
    fn go_back(&mut self, id: ConnectionId, cause: Cause, now: Instant, shared: &mut Shared) {
        let first = *self.sent.slot(self.base).expect("a packet waits for its ACK");
        self.lost.clear();
        for psn in psn_range(self.base, self.next) {
            let packet = *self.sent.slot(psn).expect("a sent packet has a slot");
            if packet.state == PacketState::Acked {
                continue;
            }
            if packet.is_in_flight() {
                self.remove_in_flight(packet.path, self.payload_len(&packet));
                cause.count(1, &mut shared.stats);
            }
            self.sent.slot_mut(psn).expect("a sent packet has a slot").state = PacketState::Lost;
            self.lost.push_back(psn);
        }
        self.paths.count_lost(first.path, true);
        cause.notify(first.path, now, &mut self.controllers, &mut self.paths);
        self.policy.on_feedback(first.path, cause.feedback(), &self.paths, now);
        if cause != Cause::Overtaken || !shared.config.recovery.rewind {
            self.note_path_loss(id, &first, now, shared);
        }
    }
}
