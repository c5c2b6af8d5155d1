//! The requester half of a queue pair: acknowledgements, responses and timeouts of the requests that `begin.rs` sent, and their
//! completion in order.

use alloc::vec::Vec;

use weft_transport::{CloseReason, ConnectionId};
use weft_units::{Duration, Instant};
use weft_wire::{MissingOperands, RdmaOpcode, RdmaOperation};

use super::active::ActiveQp;
use super::teardown::failed;
use crate::completion::{Completion, Status, WorkKind};
use crate::memory::{Accessor, Emtt, Memory, Place, Right};
use crate::queue_pair::{
    ATOMIC_BYTES, Done, Flow, Incoming, Intake, QueuePair, ROUNDS, Refusal, Role, SendQueue,
    Service, State, Syndrome, rnr_delay, service,
};
use crate::work::parts;
use crate::{Event, QueuePairNumber, Sge};

impl ActiveQp<'_> {
    /// Fails the requests of a queue pair whose peer's process has exited, after the retry timeout.
    pub(super) fn fail_peer_exited(&mut self, now: Instant) {
        if self.pair.is_reliable() {
            self.pair.requester.lost = true;
            self.wait(now, self.pair.closed_timeout());
        } else {
            // An unreliable service reports success: the messages count as lost in the network.
            while self.pair.send.finish_first(Status::Success) {}
        }
    }

    /// Opens a connection to the peer.
    pub(super) fn connect(&mut self, now: Instant) {
        let Some(peer) = self.pair.peer() else { return };
        self.pair.requester.connecting_since.get_or_insert(now);
        let service = service(self.qp, QueuePairNumber(self.pair.dest_qp()));
        match self.carriers.connect(now, peer, service) {
            Ok(connection) => {
                self.prepare_connection(connection);
                self.pair.requester.flow = Some(Flow::new(connection));
                self.connections.insert(connection, (self.qp, Role::Requester));
                self.wait(now, self.pair.connect_timeout());
            }
            // The limit of connections is reached: another may have ended by the retry.
            Err(_) => self.retry_connection(now),
        }
    }

    /// Gives a connection the labels of the queue pair, and the time for which its peer may be silent.
    pub(super) fn prepare_connection(&mut self, connection: ConnectionId) {
        self.carriers.set_source_port(connection, self.pair.marking().source_port);
        self.carriers.set_peer_timeout(connection, self.pair.silence_timeout());
    }

    /// Finishes a request of this round whose packets the peer has acknowledged. A READ or an atomic finishes with its
    /// response.
    pub(super) fn on_request_sent(&mut self, now: Instant, round: u8, number: u32) {
        let pair = &mut *self.pair;
        if round == pair.requester.round % ROUNDS
            && let Some(wqe) = pair.send.numbered(number)
            && !wqe.operation.is_answered()
        {
            pair.send.finish_number(number, Status::Success);
        }
        self.pump(now);
    }

    /// Completes the requests at the head of the send queue that have a status.
    pub(super) fn retire(&mut self, now: Instant) {
        while let Some((done, status)) = self.pair.send.pop_finished() {
            let cq = self.pair.request.send_cq;
            if status == Status::Success {
                let requester = &mut self.pair.requester;
                (requester.rnr_tries, requester.tries) = (0, 0);
                let succeeded = succeeded(self.qp, &done);
                if done.signaled && !self.completing.complete(cq, succeeded) {
                    self.fail_overrun(now);
                }
                continue;
            }
            self.completing.complete(cq, failed(self.qp, done.wr_id, status, done.kind));
            if self.pair.is_reliable() {
                self.fail(now);
            } else {
                self.fail_send_queue();
            }
        }
        if self.pair.has_drained() {
            self.completing.events.push_back(Event::SendQueueDrained { qp: self.qp });
        }
    }

    /// Puts the send queue of an unreliable queue pair in error; it continues to receive.
    fn fail_send_queue(&mut self) {
        self.pair.state = State::SendQueueError;
        self.pair.requester.broken = false;
        self.flush_sends();
    }

    /// Handles the end of the requester's connection, which fails the requests in flight. If the peer closed it, they fail only
    /// after the retry timeout, as on hardware, which would retry: by then programs have often finished.
    pub(super) fn on_peer_lost(&mut self, now: Instant, reason: CloseReason) {
        use CloseReason::{LinkDown, Peer, Reset};
        let by_peer = matches!(reason, Peer | Reset | LinkDown);
        let ready = self.pair.requester.ready;
        self.end_flow(now, Role::Requester);
        if !ready {
            return self.retry_connection(now);
        }
        let pair = &mut *self.pair;
        if !pair.is_reliable() {
            pair.send.finish_in_flight();
        } else if pair.send.is_in_flight() && by_peer {
            pair.requester.lost = true;
            return self.wait(now, self.pair.closed_timeout());
        } else if pair.send.is_in_flight() {
            pair.send.finish_first(Status::RetryExceeded);
        }
        self.pump(now);
    }

    /// Schedules the next connection attempt, or fails the first request after the last one.
    fn retry_connection(&mut self, now: Instant) {
        let pair = &mut *self.pair;
        pair.requester.tries = pair.requester.tries.saturating_add(1);
        let since = pair.requester.connecting_since;
        let elapsed = since.map_or(Duration::ZERO, |since| now.since(since));
        let exhausted = pair.requester.tries > pair.attributes.retry_count.unwrap_or(7);
        if exhausted || elapsed >= pair.connect_timeout() {
            if pair.is_reliable() {
                pair.send.finish_first(Status::RetryExceeded);
            } else {
                // An unreliable service reports success: the messages count as lost in the network.
                while pair.send.finish_first(Status::Success) {}
                (pair.requester.tries, pair.requester.connecting_since) = (0, None);
            }
            return self.retire(now);
        }
        self.wait(now, self.pair.ack_timeout());
    }

    /// Handles the end of the queue pair's wait.
    pub(super) fn on_wait_expired(&mut self, now: Instant) {
        let requester = &mut self.pair.requester;
        requester.wait_until = None;
        if core::mem::take(&mut requester.lost) {
            self.pair.send.finish_first(Status::RetryExceeded);
        } else if requester.flow.is_some() && !requester.ready {
            // The peer accepted the connection, and never acknowledged that it is ready.
            self.end_flow(now, Role::Requester);
            self.retry_connection(now);
        }
        self.pump(now);
    }

    /// Pauses the send queue for `delay`.
    fn wait(&mut self, now: Instant, delay: Duration) {
        self.stop_waiting();
        let until = now + delay;
        self.pair.requester.wait_until = Some(until);
        self.waits.insert((until, self.qp));
    }

    /// Handles a response in order.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        answer: &Incoming,
        memory: &mut impl Memory,
    ) {
        let psn = answer.header.psn.get();
        let status = match answer.intake {
            Intake::Refuse(Refusal::LocalProtection) => Status::LocalProtection,
            Intake::Refuse(_) => Status::BadResponse,
            Intake::Place => Status::Success,
        };
        if status != Status::Success {
            self.pair.send.finish_first(status);
            return self.pump(now);
        }
        let status = match answer.operation {
            Ok(RdmaOperation::Acknowledge { syndrome }) => {
                return self.on_acknowledge(now, psn, Syndrome::from_byte(syndrome));
            }
            Ok(RdmaOperation::ReadResponse) => Status::Success,
            Ok(RdmaOperation::AtomicAcknowledge { value }) => {
                if self.store(psn, value, memory) {
                    Status::Success
                } else {
                    Status::LocalProtection
                }
            }
            Ok(
                RdmaOperation::Send { .. }
                | RdmaOperation::Datagram { .. }
                | RdmaOperation::Write { .. }
                | RdmaOperation::Read { .. }
                | RdmaOperation::Atomic { .. },
            )
            | Err(MissingOperands) => Status::BadResponse,
        };
        self.pair.send.finish_psn(psn, status);
        self.pump(now);
    }

    /// Stores the value of an atomic's response; returns `false` if the request's local memory is not accessible.
    fn store(&mut self, psn: u32, value: u64, memory: &mut impl Memory) -> bool {
        let (accessor, send, places) = (self.accessor(), &mut self.pair.send, &mut *self.places);
        if locate_answer(self.emtt, accessor, send, psn, (0, ATOMIC_BYTES), places).is_err() {
            return false;
        }
        write_parts(places, &value.to_ne_bytes(), memory);
        true
    }

    /// Handles an acknowledgement of the request with this PSN.
    fn on_acknowledge(&mut self, now: Instant, psn: u32, syndrome: Syndrome) {
        match syndrome {
            Syndrome::Ready => {
                let requester = &mut self.pair.requester;
                (requester.ready, requester.connecting_since) = (true, None);
                self.stop_waiting();
            }
            Syndrome::Refused(nak) => {
                self.pair.send.acknowledge_before(psn);
                self.pair.send.finish_psn(psn, nak.status());
                self.retire(now);
            }
            Syndrome::NotReady { timer } => self.on_not_ready(now, psn, timer),
        }
        self.pump(now);
    }

    /// Handles an RNR NAK: retransmits the request with this PSN and those behind it after the timer, or fails it.
    fn on_not_ready(&mut self, now: Instant, psn: u32, timer: u8) {
        self.pair.send.acknowledge_before(psn);
        let limit = self.pair.attributes.rnr_retry.unwrap_or(0);
        self.retire(now);
        let QueuePair { send, requester, .. } = &mut *self.pair;
        if limit != 7 && requester.rnr_tries >= limit {
            send.finish_psn(psn, Status::RnrRetryExceeded);
            return;
        }
        requester.rnr_tries = requester.rnr_tries.saturating_add(1);
        requester.round = requester.round.wrapping_add(1);
        // A local failure is behind the requests that are retransmitted.
        requester.broken = false;
        send.rewind(psn);
        self.wait(now, rnr_delay(timer));
    }
}

/// Returns [`Intake::Place`] for a response that matches a request in flight, or an acknowledgement without payload.
pub(super) fn expects(pair: &mut QueuePair, answer: &Incoming) -> Intake {
    let length = answer.length;
    let wqe = pair.send.with_psn(answer.header.psn.get()).filter(|wqe| wqe.outcome.is_none());
    let fits = match answer.operation {
        Ok(RdmaOperation::ReadResponse) => wqe.is_some_and(|wqe| {
            wqe.operation.kind() == WorkKind::Read && wqe.length == u64::from(length)
        }),
        Ok(RdmaOperation::AtomicAcknowledge { .. }) => {
            wqe.is_some_and(|wqe| wqe.operation.is_atomic()) && length == 0
        }
        Ok(RdmaOperation::Acknowledge { .. }) => length == 0,
        Ok(
            RdmaOperation::Send { .. }
            | RdmaOperation::Datagram { .. }
            | RdmaOperation::Write { .. }
            | RdmaOperation::Read { .. }
            | RdmaOperation::Atomic { .. },
        )
        | Err(MissingOperands) => false,
    };
    if fits { Intake::Place } else { Intake::Refuse(Refusal::InvalidRequest) }
}

/// Finds the places of the `piece.1` bytes from offset `piece.0` of a response, and stores them in `places`.
pub(super) fn locate_answer(
    emtt: &Emtt,
    accessor: Accessor,
    send: &mut SendQueue,
    psn: u32,
    piece: (u32, u32),
    places: &mut Vec<Place>,
) -> Result<(), Refusal> {
    let wqe = send.with_psn(psn).ok_or(Refusal::InvalidRequest)?;
    scatter(emtt, accessor, &wqe.sges, piece, Right::LocalWrite, places)
        .map_err(|_| Refusal::LocalProtection)
}

/// Writes bytes to places with the same total length.
pub(super) fn write_parts(places: &[Place], bytes: &[u8], memory: &mut impl Memory) {
    let mut rest = bytes;
    for &place in places {
        let (part, after) = rest.split_at(place.len as usize);
        memory.write(place, part);
        rest = after;
    }
}

/// Finds the places of the `piece.1` bytes from offset `piece.0` of a message in local memory, and stores them in
/// `places`.
///
/// # Errors
/// An entry's memory is not accessible with this right.
pub(super) fn scatter(
    emtt: &Emtt,
    accessor: Accessor,
    sges: &[Sge],
    piece: (u32, u32),
    right: Right,
    places: &mut Vec<Place>,
) -> Result<(), crate::AccessError> {
    places.clear();
    if let [only] = sges
        && piece.1 > 0
        && u64::from(piece.0) + u64::from(piece.1) <= only.length.into()
    {
        let address = only.address.wrapping_add(piece.0.into());
        places.push(emtt.translate(accessor, only.lkey, address, piece.1, right)?);
        return Ok(());
    }
    for part in parts(sges, piece.0, piece.1) {
        places.push(emtt.translate(accessor, part.lkey, part.address, part.length, right)?);
    }
    Ok(())
}

/// Returns the completion of a request that succeeded.
pub(super) fn succeeded(qp: QueuePairNumber, done: &Done) -> Completion {
    Completion {
        wr_id: done.wr_id,
        status: Status::Success,
        kind: done.kind,
        length: u32::try_from(done.length).expect("checked when it was begun"),
        extra: None,
        qp,
        source: None,
        solicited: false,
    }
}

/// Returns `true` if the opcode is that of a request on this service.
#[inline]
pub(super) fn is_request(opcode: RdmaOpcode, service: Service) -> bool {
    opcode.is_request() && opcode.service() == service.on_the_wire()
}
