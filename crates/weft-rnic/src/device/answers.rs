//! The messages of a responder: responses to READs and atomics, and acknowledgements.

use weft_transport::Message;
use weft_units::Instant;
use weft_wire::{AtomicOperation, RdmaOpcode, RdmaRemote, RdmaService, U24};

use super::active::ActiveQp;
use crate::memory::{Access, Memory, Right};
use crate::queue_pair::{ATOMIC_BYTES, Answer, Flow, QueuePair, Refusal, Role, Syndrome, Token};

/// Largest number of responses in flight on one queue pair. The limit that the requester observes is lower, but cannot be
/// enforced exactly: a response that it has received may still be unacknowledged here.
const MAX_ANSWERS: usize = 1024;

impl ActiveQp<'_> {
    /// Checks a READ and sends its response.
    pub(super) fn answer_read(
        &mut self,
        now: Instant,
        psn: U24,
        RdmaRemote { address, rkey: key }: RdmaRemote,
        length: u32,
    ) -> Result<(), Refusal> {
        let accessor = self.accessor();
        if length > self.limits.message_bytes {
            return Err(Refusal::InvalidRequest);
        }
        let place = self.emtt.translate(accessor, key, address, length, Right::RemoteRead);
        if !self.pair.allows(Access::REMOTE_READ) || length > 0 && place.is_err() {
            return Err(Refusal::Access);
        }
        if length > 0 {
            self.grant_lease(key);
        }
        self.answer(now, Answer::Read { psn: psn.get(), key, address }, length)
    }

    /// Checks and executes an atomic, and sends its response.
    pub(super) fn answer_atomic(
        &mut self,
        now: Instant,
        psn: U24,
        RdmaRemote { address, rkey: key }: RdmaRemote,
        operation: AtomicOperation,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let accessor = self.accessor();
        if !address.is_multiple_of(ATOMIC_BYTES.into()) {
            return Err(Refusal::InvalidRequest);
        }
        let place = self.emtt.translate(accessor, key, address, ATOMIC_BYTES, Right::RemoteAtomic);
        let place = place.ok().filter(|_| self.pair.allows(Access::REMOTE_ATOMIC));
        let place = place.ok_or(Refusal::Access)?;
        if !has_room(self.pair) {
            return Err(Refusal::InvalidRequest);
        }
        let value = memory.atomic(place, operation);
        self.answer(now, Answer::Atomic { psn: psn.get(), value }, 0)
    }

    /// Sends a response with data.
    fn answer(&mut self, now: Instant, answer: Answer, length: u32) -> Result<(), Refusal> {
        let pair = &mut *self.pair;
        if !has_room(pair) {
            return Err(Refusal::InvalidRequest);
        }
        let responder = &mut pair.responder;
        let waiting = u32::try_from(responder.answers.len()).expect("at most the limit");
        let number = responder.first_answer.wrapping_add(waiting);
        responder.answers.push_back(answer);
        let connection = responder.flow.as_ref().expect("its turn came on it").connection;
        let opcode = answer.wire().opcode(RdmaService::Rc).expect("RC has all responses");
        let token = Token::Answer { qp: self.qp, number }.pack();
        let message = Message { token, opcode: opcode as u8, tag: 0, length };
        self.carriers.submit(now, connection, message).map_err(|_| Refusal::InvalidRequest)
    }

    /// Sends an acknowledgement. The transport acknowledges the packet `withheld` only after the acknowledgement has
    /// arrived, so that the peer receives the reason of a refusal first.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        psn: u32,
        syndrome: Syndrome,
        withheld: Option<u32>,
    ) {
        let responder = &mut self.pair.responder;
        let Some(Flow { connection, .. }) = responder.flow else { return };
        let token = Token::Acknowledge { qp: self.qp, psn, syndrome }.pack();
        let opcode = RdmaOpcode::RcAcknowledge as u8;
        let message = Message { token, opcode, tag: 0, length: 0 };
        if self.carriers.submit(now, connection, message).is_ok() {
            responder.acknowledgements.push_back(withheld);
        }
    }

    /// Handles the arrival of the first response in flight at the peer.
    pub(super) fn on_answer_sent(&mut self) {
        let responder = &mut self.pair.responder;
        responder.answers.pop_front();
        responder.first_answer = responder.first_answer.wrapping_add(1);
    }

    /// Handles the arrival of the first acknowledgement in flight at the peer.
    pub(super) fn on_acknowledgement_sent(&mut self, now: Instant) {
        let responder = &mut self.pair.responder;
        let Some(Flow { connection, .. }) = responder.flow else { return };
        let withheld = responder.acknowledgements.pop_front().flatten();
        if responder.closing && responder.acknowledgements.is_empty() {
            return self.end_flow(now, Role::Responder);
        }
        if let Some(psn) = withheld.filter(|_| !responder.closing) {
            let _ = self.carriers.placed(now, connection, psn);
        }
    }
}

/// Returns `true` if the queue pair accepts READs and atomics, and the limit of responses in flight is not reached.
fn has_room(pair: &QueuePair) -> bool {
    pair.attributes.max_dest_rd_atomic.unwrap_or(0) > 0
        && pair.responder.answers.len() < MAX_ANSWERS
}
