//! The fast path of a send request that is transmitted in the call that posts it. It makes the same decisions as
//! `begin.rs` and `transport.rs`, with fewer lookups, and results in the same state.

use weft_units::Instant;

use super::active::ActiveQp;
use super::requester::scatter;
use super::{Source, Transmit};
use crate::Operation;
use crate::memory::Right;
use crate::queue_pair::{QueuePair, State, Token, Wqe};

impl ActiveQp<'_> {
    /// Starts the only waiting request and passes its packet to `send`, if it can be sent now as one packet over a link. Returns
    /// `false` otherwise; the caller then uses [`Self::pump`].
    #[inline]
    pub(super) fn begin_at_once(
        &mut self,
        now: Instant,
        send: impl FnOnce(&Transmit, Source<'_>),
    ) -> bool {
        let (qp, accessor) = (self.qp, self.accessor());
        let QueuePair { context, request, state, attributes, send: queue, requester, .. } =
            &mut *self.pair;
        let connection = requester.flow.as_ref().map(|flow| flow.connection);
        let Some(connection) = connection else { return false };
        if *state != State::ReadyToSend || !requester.can_send() {
            return false;
        }
        let latest = queue.latest().map(Wqe::is_leasable);
        let Some((number, wqe)) = queue.only_upcoming() else { return false };
        let carries_payload = match wqe.operation {
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
        let uses_lease = requester.uses_lease(now, wqe, latest);
        if !carries_payload
            || uses_lease
            || wqe.fence
            || wqe.length > self.limits.message_bytes.into()
        {
            return false;
        }
        let piece = (0, u32::try_from(wqe.length).expect("compared just now"));
        let (places, right) = (&mut *self.places, Right::LocalRead);
        if scatter(self.emtt, accessor, &wqe.sges, piece, right, places).is_err() {
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
            None => send(&transmit, Source::Memory(self.places)),
        }
        queue.advance();
        true
    }
}
