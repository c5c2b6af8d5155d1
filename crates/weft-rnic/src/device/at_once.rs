//! A send request that leaves in the call that posts it. Nothing is decided here that is not decided elsewhere
//! (`begin.rs`, `transport.rs`): it is the same request in the same state afterwards, for which less was looked up.

use weft_units::Instant;

use super::requester::scatter;
use super::{Device, Source, Transmit};
use crate::memory::{Accessor, Right};
use crate::queue_pair::{QueuePair, State, Token, Wqe};
use crate::{Operation, QueuePairNumber};

impl Device {
    /// Begins the one request that waits, and hands its packet to `send`, where nothing holds it up and it is one
    /// packet over a link. False where not: [`Self::pump`] finds out why.
    #[inline]
    pub(super) fn begin_at_once(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        send: impl FnOnce(&Transmit, Source<'_>),
    ) -> bool {
        let Some(pair) = self.qps.get_mut(qp.0) else { return false };
        let QueuePair { context, request, state, attributes, send: queue, requester, .. } = pair;
        let connection = requester.flow.as_ref().map(|flow| flow.connection);
        let Some(connection) = connection else { return false };
        if *state != State::ReadyToSend || !requester.is_free() {
            return false;
        }
        let latest = queue.latest().map(Wqe::only_reaches);
        let Some((number, wqe)) = queue.only_upcoming() else { return false };
        let pushes = match wqe.operation {
            Operation::Send
            | Operation::SendWithImmediate(_)
            | Operation::Write(_)
            | Operation::WriteWithImmediate(..) => true,
            Operation::SendWithInvalidate(_)
            | Operation::Read(_)
            | Operation::Atomic { .. }
            | Operation::LocalInvalidate(_)
            | Operation::BindWindow { .. } => false,
        };
        let by_lease = requester.goes_by_lease(now, wqe, latest);
        if !pushes || by_lease || wqe.fence || wqe.length > self.limits.message_bytes.into() {
            return false;
        }
        let who = Accessor { domain: request.domain, qp: qp.0 };
        let piece = (0, u32::try_from(wqe.length).expect("compared just now"));
        let (places, right) = (&mut self.places, Right::LocalRead);
        if scatter(&self.emtt, who, &wqe.sges, piece, right, places).is_err() {
            return false;
        }
        let token = Token::Request { qp, round: requester.round, number };
        let message = wqe.message(token, request.service);
        let mut transmit = Transmit::default();
        let sent = self.carriers.send_at_once(now, connection, message, &mut transmit);
        let Some(payload) = sent else { return false };
        transmit.context = Some(*context);
        transmit.packet.set_rdma();
        transmit.payload_len = payload.len;
        transmit.rdma = Some(wqe.header(attributes.dest_qp.unwrap_or_default()));
        match wqe.inline.as_deref() {
            Some(bytes) => send(&transmit, Source::Inline(bytes)),
            None => send(&transmit, Source::Memory(&self.places)),
        }
        queue.advance();
        true
    }
}
