//! The way back to RDMA after a queue pair broke: the ends exchange offers of new queue pairs on the stream, and the one
//! with the greater token tests the connection before both switch to it as they do on command (`stream.rs`).
//!
//! | end with the greater token | the other |
//! | --- | --- |
//! | after `rdma_retry`: a new queue pair, its offer → | a new queue pair, connected |
//! | connected, an empty WRITE as a test | ← its offer |
//! | on success: the switch → | receives on the new queue pair, ← its switch |
//!
//! No frame leaves on a new queue pair before the switch. If the test fails, its end discards the queue pair and tries again
//! later. It numbers its attempts, and the answer repeats the number: an answer to an earlier offer may arrive after the next
//! one, and belongs to another queue pair. If the other end's new queue pair breaks, that end fails over again, because the peer
//! may have switched.

use weft_units::{Duration, Instant};
use weft_wire::{ChannelOffer, U24};

use super::Channel;
use crate::Config;
use crate::event::{CloseReason, ProtocolError};
use crate::verbs::Qp;

/// The state of a new queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// There is none.
    #[default]
    Idle,
    /// It waits for the peer's offer.
    Offered,
    /// It is connected, and the test has no result yet.
    Testing,
    /// It is connected, and waits for the peer's switch.
    Ready,
}

/// The attempts to return to RDMA.
#[derive(Debug, Default)]
pub(crate) struct Return {
    pub(crate) renewal: Renewal,
    /// The peer's offer, which the context handles.
    pub(crate) received: Option<ChannelOffer>,
    /// The time of the next attempt.
    pub(crate) due: Option<Instant>,
    /// The time from a failure to the next attempt.
    delay: Duration,
    /// The time of the last return.
    returned_at: Option<Instant>,
}

/// Number of times that the time between attempts may double.
const MAX_DOUBLINGS: u64 = 1 << 6;

impl Channel {
    /// Returns `true` if the channel has a queue pair, which may be one that waits for a switch.
    pub(crate) fn has_qp(&self) -> bool {
        !self.stream.rdma_lost || self.back.renewal != Renewal::Idle
    }

    /// Returns `true` if this end begins attempts to return.
    pub(crate) const fn begins_renewal(&self) -> bool {
        self.offer.token > self.peer.token
    }

    /// Schedules the next attempt. The time between attempts doubles, also if RDMA worked for less than that time.
    pub(crate) fn schedule_renewal(&mut self, now: Instant, config: &Config) {
        let first = config.rdma_retry;
        if first == Duration::ZERO || !self.begins_renewal() {
            self.back.due = None;
            return;
        }
        let lasted = self.back.returned_at.take().map(|at| now.since(at));
        let doubled = (self.back.delay * 2).max(first).min(first * MAX_DOUBLINGS);
        let stable = lasted.is_some_and(|lasted| lasted > self.back.delay);
        self.back.delay = if stable { first } else { doubled };
        self.back.due = Some(now + self.back.delay);
    }

    /// Schedules the next attempt as after a first failure: the time between attempts was set.
    pub(crate) fn restart_renewal(&mut self, now: Instant, config: &Config) {
        if self.stream.rdma_lost {
            self.back.delay = Duration::ZERO;
            self.schedule_renewal(now, config);
        }
    }

    /// Makes `qp` the new queue pair of this attempt, with receive requests to be posted, and changes the offer for the peer.
    pub(crate) fn adopt_qp(&mut self, qp: Qp, attempt: u8) {
        self.qp = qp;
        let psn: u32 = self.offer.psn.into();
        let psn = U24::truncate(psn.wrapping_add(1 << 20 | 1));
        self.offer = ChannelOffer { qp: U24::truncate(qp.0), psn, attempt, ..self.offer };
    }

    /// Handles the peer's offer of a new queue pair. It is ignored if the queue pair is not broken.
    ///
    /// # Errors
    /// It is not a valid offer.
    pub(crate) fn handle_offer(&mut self, body: &[u8]) -> Result<(), CloseReason> {
        let offer = ChannelOffer::parse(body);
        let offer = offer.map_err(|error| CloseReason::Protocol(error.into()))?;
        self.back.received = Some(offer).filter(|_| self.stream.rdma_lost);
        Ok(())
    }

    /// Applies the peer's offer. Only the numbers of the queue pair are new: the peer stays where it is.
    pub(crate) fn apply_new_offer(&mut self, offer: &ChannelOffer) {
        self.peer = ChannelOffer { qp: offer.qp, psn: offer.psn, ..self.peer };
    }

    /// Uses the new queue pair from now on.
    ///
    /// # Errors
    /// The peer must have retransmitted all large messages whose READs were cancelled, before its offer.
    pub(crate) fn return_to_rdma(&mut self, now: Instant) -> Result<(), CloseReason> {
        if !self.cancelled.is_empty() {
            return Err(CloseReason::Protocol(ProtocolError::NotRetransmitted));
        }
        self.stream.rdma_lost = false;
        self.back.renewal = Renewal::Idle;
        self.back.due = None;
        self.back.returned_at = Some(now);
        self.probing = false;
        Ok(())
    }
}
