//! The RDMA header and the payload of a packet, when the packet is sent.

use alloc::vec::Vec;

use weft_transport::Payload;
use weft_wire::{Packet, RdmaHeader, RdmaOperation, U24};

use super::Source;
use super::datagrams::datagram_header;
use super::requester::scatter;
use crate::memory::{Accessor, Emtt, Right};
use crate::queue_pair::{Answer, QueuePair, Role, Token};
use crate::{Place, QueuePairNumber, Status};

/// The RDMA header of a packet, and the source of its payload.
#[derive(Clone, Copy)]
pub(super) enum Load<'a> {
    /// The packet can be sent.
    Ready(RdmaHeader, Source<'a>),
    /// The request is completed: the peer has received the message, since its response arrived before the transport's
    /// acknowledgement. Also a datagram that can no longer be sent.
    Known,
    /// The memory is no longer accessible: the connection fails.
    Gone(Role),
}

impl Load<'_> {
    /// Returns `true` if the payload can be arbitrary bytes. Programs may deregister memory once the peer has notified them
    /// that its READ is done, possibly before the transport's acknowledgement: the peer's transport discards the
    /// retransmission. A peer that still waits for the packet finds a header without a queue pair, and closes the connection.
    pub(super) const fn is_discarded(&self, packet: &Packet) -> bool {
        let retransmitted = matches!(packet, Packet::Data(header, _) if header.retransmitted);
        match self {
            Self::Known => true,
            Self::Gone(Role::Responder) => retransmitted,
            Self::Ready(..) | Self::Gone(Role::Requester) => false,
        }
    }
}

/// Returns the RDMA header and the payload of a packet of a queue pair, which may have been destroyed. `places` is a
/// buffer for the result.
#[inline]
pub(super) fn load<'a>(
    pair: Option<&'a mut QueuePair>,
    token: Token,
    payload: &Payload,
    emtt: &Emtt,
    places: &'a mut Vec<Place>,
) -> Load<'a> {
    places.clear();
    match (token, pair) {
        (Token::Request { qp, number, .. }, Some(pair)) => {
            load_request(pair, (qp, number), payload, emtt, places)
        }
        // Only datagrams outlive their queue pair, since they share a connection.
        (Token::Request { .. }, None) => Load::Known,
        (Token::Answer { qp, number }, Some(pair)) => {
            load_answer(pair, (qp, number), payload, emtt, places)
        }
        (Token::Acknowledge { psn, syndrome, .. }, Some(pair)) => {
            let acknowledge = RdmaOperation::Acknowledge { syndrome: syndrome.to_byte() };
            let header = RdmaHeader {
                destination_qp: U24::truncate(pair.dest_qp()),
                psn: U24::truncate(psn),
                ..acknowledge.header()
            };
            Load::Ready(header, Source::Memory(&[]))
        }
        (Token::Answer { .. } | Token::Acknowledge { .. }, None) => Load::Gone(Role::Responder),
    }
}

fn load_request<'a>(
    pair: &'a mut QueuePair,
    (qp, number): (QueuePairNumber, u32),
    payload: &Payload,
    emtt: &Emtt,
    places: &'a mut Vec<Place>,
) -> Load<'a> {
    let (dest_qp, own_qkey) = (pair.dest_qp(), pair.attributes.qkey.unwrap_or_default());
    let accessor = Accessor { domain: pair.request.domain, qp: qp.0 };
    let Some(wqe) = pair.send.numbered(number) else { return Load::Known };
    let is_datagram = wqe.datagram.is_some();
    let header = if is_datagram { datagram_header(wqe, qp, own_qkey) } else { wqe.header(dest_qp) };
    if let Some(bytes) = wqe.inline.as_deref() {
        let from = payload.offset as usize;
        return Load::Ready(header, Source::Inline(&bytes[from..from + usize::from(payload.len)]));
    }
    let piece = (payload.offset, u32::from(payload.len));
    match scatter(emtt, accessor, &wqe.sges, piece, Right::LocalRead, places) {
        Ok(()) => Load::Ready(header, Source::Memory(places)),
        Err(_) if is_datagram => {
            // The connection is shared, so it continues: the datagram is sent without a destination.
            wqe.outcome.get_or_insert(Status::LocalProtection);
            Load::Known
        }
        Err(_) => Load::Gone(Role::Requester),
    }
}

fn load_answer<'a>(
    pair: &QueuePair,
    (qp, number): (QueuePairNumber, u32),
    payload: &Payload,
    emtt: &Emtt,
    places: &'a mut Vec<Place>,
) -> Load<'a> {
    let gone = Load::Gone(Role::Responder);
    let index = number.wrapping_sub(pair.responder.first_answer) as usize;
    let Some(&answer) = pair.responder.answers.get(index) else { return gone };
    let destination_qp = U24::truncate(pair.dest_qp());
    let common = RdmaHeader { destination_qp, ..answer.wire().header() };
    let psn = match answer {
        Answer::Atomic { psn, .. } => psn,
        Answer::Read { psn, key, address } => {
            let accessor = Accessor { domain: pair.request.domain, qp: qp.0 };
            let (at, len) = (address.wrapping_add(payload.offset.into()), payload.len.into());
            if len > 0 {
                match emtt.translate(accessor, key, at, len, Right::RemoteRead) {
                    Ok(place) => places.push(place),
                    Err(_) => return gone,
                }
            }
            psn
        }
    };
    Load::Ready(RdmaHeader { psn: U24::truncate(psn), ..common }, Source::Memory(places))
}
