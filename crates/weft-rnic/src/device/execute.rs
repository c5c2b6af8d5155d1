//! Execution of requests by a responder, in the order of their PSNs.

use weft_units::Instant;
use weft_wire::{MissingOperands, RdmaOperation, SendExtension};

use super::active::ActiveQp;
use super::intake::Destination;
use super::responder::Outcome;
use crate::Event;
use crate::completion::{Completion, Extra, Status, WorkKind};
use crate::memory::Memory;
use crate::queue_pair::{Incoming, Intake, Refusal};
use crate::receive_queue::Receive;

impl ActiveQp<'_> {
    /// Executes a request, if its PSN is the expected one.
    pub(super) fn execute_in_order(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Outcome {
        let pair = &mut *self.pair;
        if !pair.is_reliable() {
            // The service has no retransmissions: a gap in the PSNs is a loss.
            pair.responder.expected = incoming.header.psn.get();
        } else if incoming.header.psn.get() != pair.responder.expected {
            let rewinds = pair.responder.rewinds;
            return if rewinds { Outcome::Stale } else { Outcome::WrongPsn };
        }
        pair.responder.rewinds = false;
        let done = match incoming.intake {
            Intake::Place => self.execute(now, incoming, memory),
            Intake::Refuse(refusal) => Err(refusal),
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(refusal) if self.pair.is_reliable() => Outcome::Refused(refusal),
            Err(refusal) => Outcome::Dropped(refusal),
        }
    }

    /// Executes a request whose payload was placed.
    fn execute(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let psn = incoming.header.psn;
        match incoming.operation {
            Ok(RdmaOperation::Send { receive, extension }) => {
                self.receive_send(incoming, receive, extension, memory)
            }
            Ok(RdmaOperation::Write { immediate, .. }) => {
                self.finish_write(incoming, immediate, memory)
            }
            Ok(RdmaOperation::Read { remote, length }) => {
                self.answer_read(now, psn, remote, length)
            }
            Ok(RdmaOperation::Atomic { remote, operation }) => {
                self.answer_atomic(now, psn, remote, operation, memory)
            }
            Ok(
                RdmaOperation::Datagram { .. }
                | RdmaOperation::ReadResponse
                | RdmaOperation::AtomicAcknowledge { .. }
                | RdmaOperation::Acknowledge { .. },
            )
            | Err(MissingOperands) => Err(Refusal::InvalidRequest),
        }
    }

    /// Completes the receive request of a SEND whose payload is placed.
    fn receive_send(
        &mut self,
        incoming: &mut Incoming,
        number: u64,
        extension: SendExtension,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Incoming { header, length, .. } = *incoming;
        let (accessor, pair) = (self.accessor(), &*self.pair);
        let numbered = pair.is_reliable() && pair.request.srq.is_none();
        if numbered && number != pair.receive.head() {
            return Err(Refusal::InvalidRequest);
        }
        if pair.drops_messages() {
            let held = core::mem::take(&mut incoming.held);
            self.place_waiting(&header, Destination::Receive { number }, length, held, memory)?;
        }
        let extra = match extension {
            SendExtension::None => None,
            SendExtension::Immediate(word) => Some(Extra::Immediate(word)),
            SendExtension::Invalidate(key) => {
                self.emtt.invalidate(accessor, key).map_err(|_| Refusal::Access)?;
                Some(Extra::Invalidated(key))
            }
        };
        let receive = incoming.receive.take().or_else(|| self.pair.receive.take());
        let receive = receive.ok_or(Refusal::NotReady)?;
        self.complete_receive(&receive, WorkKind::Receive, length, extra, header.solicited);
        Ok(())
    }

    /// Completes a receive request that a message consumed.
    fn complete_receive(
        &mut self,
        receive: &Receive,
        kind: WorkKind,
        length: u32,
        extra: Option<Extra>,
        solicited: bool,
    ) {
        let cq = self.pair.request.receive_cq;
        let (wr_id, status) = (receive.wr_id, Status::Success);
        let source = None;
        let qp = self.qp;
        self.completing
            .complete(cq, Completion { wr_id, status, kind, length, extra, qp, source, solicited });
    }

    /// Places the last packet of a WRITE, and consumes a receive request for its immediate data.
    fn finish_write(
        &mut self,
        incoming: &mut Incoming,
        immediate: Option<u32>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Incoming { header, length, .. } = *incoming;
        let pair = &*self.pair;
        let srq = pair.request.srq;
        let available = match srq {
            Some(srq) => self.srqs.get(srq.0).map_or(0, |queue| queue.queue.len()),
            None => pair.receive.len(),
        };
        if immediate.is_some() && available == 0 {
            return Err(Refusal::NotReady);
        }
        if let Some(part) = incoming.held.pop() {
            let flow = self.pair.responder.flow.as_ref();
            let message = flow.expect("its turn came on it").inbox.last_taken();
            let destination = Destination::of(&incoming.operation);
            self.release(message, &header, destination, part, memory)?;
        }
        if let Some(word) = immediate {
            let receive = self.take_receive().ok_or(Refusal::NotReady)?;
            let (kind, extra) = (WorkKind::ReceiveWriteWithImmediate, Some(Extra::Immediate(word)));
            self.complete_receive(&receive, kind, length, extra, header.solicited);
        }
        Ok(())
    }

    /// Takes the next receive request, of the shared or the own queue.
    pub(super) fn take_receive(&mut self) -> Option<Receive> {
        let Some(srq) = self.pair.request.srq else { return self.pair.receive.take() };
        let (receive, low) = self.srqs.get_mut(srq.0)?.take()?;
        if low {
            self.completing.events.push_back(Event::SrqLimitReached { srq });
        }
        Some(receive)
    }
}
