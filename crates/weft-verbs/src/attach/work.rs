//! Records in the rings: work requests in one direction, completions and events in the other.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use weft_rnic::{
    Completion, CompletionQueue, Data, Datagram, Event, Operation, QueuePairNumber, ReceiveRequest,
    SendRequest, Sge, SharedReceiveQueue,
};

/// The payload of a send request, or the destination of its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gathered<'a> {
    Pieces(Cow<'a, [Sge]>),
    Inline(#[serde(borrow)] &'a [u8]),
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Posted<'a> {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    #[serde(borrow)]
    pub(crate) data: Gathered<'a>,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    pub(crate) datagram: Option<Datagram>,
}

impl<'a> Posted<'a> {
    /// Returns the request with another number.
    pub(crate) fn numbered(wr_id: u64, request: &SendRequest<'a>) -> Self {
        let SendRequest { operation, data, signaled, solicited, fence, datagram, .. } = *request;
        let data = match data {
            Data::Gather(pieces) => Gathered::Pieces(Cow::Borrowed(pieces)),
            Data::Inline(bytes) => Gathered::Inline(bytes),
        };
        Self { wr_id, operation, data, signaled, solicited, fence, datagram }
    }

    /// Returns the number of bytes that it sends, or that its response has.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.data {
            Gathered::Pieces(pieces) => pieces.iter().map(|piece| u64::from(piece.length)).sum(),
            Gathered::Inline(bytes) => bytes.len() as u64,
        }
    }

    pub(crate) fn request(&self) -> SendRequest<'_> {
        let Self { wr_id, operation, ref data, signaled, solicited, fence, datagram } = *self;
        let data = match data {
            Gathered::Pieces(pieces) => Data::Gather(pieces),
            Gathered::Inline(bytes) => Data::Inline(bytes),
        };
        SendRequest { wr_id, operation, data, signaled, solicited, fence, datagram }
    }
}

/// A receive request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Awaited<'a> {
    wr_id: u64,
    pieces: Cow<'a, [Sge]>,
}

impl<'a> Awaited<'a> {
    /// Returns the request with another number.
    pub(crate) fn numbered(wr_id: u64, request: &ReceiveRequest<'a>) -> Self {
        Self { wr_id, pieces: Cow::Borrowed(request.sges) }
    }

    pub(crate) fn request(&self) -> ReceiveRequest<'_> {
        ReceiveRequest { wr_id: self.wr_id, sges: &self.pieces }
    }
}

/// A record from a process to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work<'a> {
    Send(QueuePairNumber, #[serde(borrow)] Posted<'a>),
    Receive(QueuePairNumber, Awaited<'a>),
    SharedReceive(SharedReceiveQueue, Awaited<'a>),
}

/// A record from the daemon to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Notice {
    Completion(CompletionQueue, Completion),
    Event(Event),
}
