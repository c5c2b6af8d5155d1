//! A send request in its queue (WQE), and its form on the wire.

use weft_transport::Message;
use weft_wire::{RdmaHeader, RdmaOpcode, RdmaOperation, RdmaRemote, SendExtension, U24};

use super::{Service, Token};
use crate::completion::WorkKind;
use crate::work::{Inline, SgeList};
use crate::{Datagram, Operation, Remote, SendRequest, Status};

/// Bytes of memory that an atomic operates on.
pub(crate) const ATOMIC_BYTES: u32 = 8;

/// A posted send request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) sges: SgeList,
    /// Payload that was copied when the request was posted.
    pub(crate) inline: Option<Inline>,
    pub(crate) length: u64,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// The destination of a datagram.
    pub(crate) datagram: Option<Datagram>,
    /// The PSN, assigned once the request is upcoming. A request without a message has the PSN of the next one.
    pub(crate) psn: u32,
    /// Number of the receive request of the peer that it consumes, counted from the first.
    pub(super) receive: u64,
    /// The status, once it is known.
    pub(crate) outcome: Option<Status>,
}

/// The fields of a WQE that its completion needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) kind: WorkKind,
    pub(crate) signaled: bool,
    /// Bytes of the response.
    pub(crate) length: u64,
    pub(crate) outcome: Option<Status>,
}

impl Done {
    #[inline]
    pub(super) fn of(wqe: &Wqe) -> Self {
        let Wqe { wr_id, signaled, outcome, operation, .. } = wqe;
        let length = if operation.is_answered() { wqe.length } else { 0 };
        let (wr_id, signaled, outcome, kind) = (*wr_id, *signaled, *outcome, operation.kind());
        Self { wr_id, kind, signaled, length, outcome }
    }

    /// Returns the fields for the completion of a request of this length that was never queued.
    #[inline]
    pub(crate) fn at_once(request: &SendRequest<'_>, length: u32) -> Self {
        let SendRequest { wr_id, operation, .. } = request;
        let length = if operation.is_answered() { length.into() } else { 0 };
        let kind = operation.kind();
        Self { wr_id: *wr_id, kind, signaled: true, length, outcome: None }
    }
}

impl Operation {
    /// Returns the operation of the request's message on the wire; `None` for a request that sends no message.
    /// `receive` is the number of the receive request that a SEND consumes, `length` the length of a READ in bytes.
    #[inline]
    pub(crate) const fn wire(&self, receive: u64, length: u32) -> Option<RdmaOperation> {
        let extension = match *self {
            Self::Send => SendExtension::None,
            Self::SendWithImmediate(word) => SendExtension::Immediate(word),
            Self::SendWithInvalidate(key) => SendExtension::Invalidate(key),
            Self::Write(at) => return Some(write(at, None)),
            Self::WriteWithImmediate(at, word) => return Some(write(at, Some(word))),
            Self::Read(at) => return Some(RdmaOperation::Read { remote: remote(at), length }),
            Self::Atomic { remote: at, operation } => {
                return Some(RdmaOperation::Atomic { remote: remote(at), operation });
            }
            Self::LocalInvalidate(_) | Self::BindWindow { .. } => return None,
        };
        Some(RdmaOperation::Send { receive, extension })
    }

    /// Returns the operation of a datagram's message; `None` where datagrams do not have it.
    #[inline]
    pub(crate) const fn datagram(&self, source_qp: U24, qkey: u32) -> Option<RdmaOperation> {
        let immediate = match *self {
            Self::Send => None,
            Self::SendWithImmediate(word) => Some(word),
            Self::SendWithInvalidate(_)
            | Self::Write(_)
            | Self::WriteWithImmediate(..)
            | Self::Read(_)
            | Self::Atomic { .. }
            | Self::LocalInvalidate(_)
            | Self::BindWindow { .. } => return None,
        };
        Some(RdmaOperation::Datagram { source_qp, qkey, immediate })
    }

    /// Returns the opcode of the request's message; `None` where the service does not have the operation.
    #[inline]
    pub(crate) fn opcode(&self, service: Service) -> Option<RdmaOpcode> {
        let operation = match service {
            Service::ReliableConnected | Service::UnreliableConnected => self.wire(0, 0),
            Service::UnreliableDatagram => self.datagram(U24::default(), 0),
        };
        operation?.opcode(service.on_the_wire())
    }

    /// Returns the kind of request that its completion reports.
    pub(crate) const fn kind(&self) -> WorkKind {
        match self {
            Self::Send | Self::SendWithImmediate(_) | Self::SendWithInvalidate(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteWithImmediate(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::Atomic { operation, .. } => WorkKind::Atomic(operation.kind()),
            Self::LocalInvalidate(_) => WorkKind::LocalInvalidate,
            Self::BindWindow { .. } => WorkKind::BindWindow,
        }
    }

    /// Returns the direction in which the request transfers bytes.
    #[inline]
    pub(crate) const fn transfer(&self) -> Transfer {
        match self {
            Self::Send | Self::SendWithImmediate(_) | Self::SendWithInvalidate(_) => {
                Transfer::Payload { takes_receive: true }
            }
            Self::Write(_) => Transfer::Payload { takes_receive: false },
            Self::WriteWithImmediate(..) => Transfer::Payload { takes_receive: true },
            Self::Read(_) => Transfer::Response,
            Self::Atomic { .. } => Transfer::Word,
            Self::LocalInvalidate(_) | Self::BindWindow { .. } => Transfer::Local,
        }
    }

    /// Returns `true` if the request sends a message to the peer.
    #[inline]
    pub(crate) const fn sends_message(&self) -> bool {
        !matches!(self.transfer(), Transfer::Local)
    }

    /// Returns `true` if the peer's response carries data.
    #[inline]
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self.transfer(), Transfer::Response | Transfer::Word)
    }

    /// Returns `true` for an atomic.
    #[inline]
    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self.transfer(), Transfer::Word)
    }

    /// Returns `true` if the request carries payload to the peer.
    #[inline]
    pub(crate) const fn sends_payload(&self) -> bool {
        matches!(self.transfer(), Transfer::Payload { .. })
    }

    /// Returns `true` if it consumes one of the peer's receive requests.
    pub(super) const fn takes_receive(&self) -> bool {
        matches!(self.transfer(), Transfer::Payload { takes_receive: true })
    }
}

/// The transfer of a send request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// In the request; `takes_receive` is `true` if it consumes a receive request of the peer.
    Payload { takes_receive: bool },
    /// In the response; the request gives their number.
    Response,
    /// In the response, eight bytes.
    Word,
    /// None: this device executes the request.
    Local,
}

const fn remote(Remote { address, rkey }: Remote) -> RdmaRemote {
    RdmaRemote { address, rkey }
}

const fn write(at: Remote, immediate: Option<u32>) -> RdmaOperation {
    RdmaOperation::Write { remote: remote(at), immediate }
}

impl Wqe {
    /// Returns the number of bytes in the request's message.
    pub(crate) fn payload(&self) -> u64 {
        if self.operation.is_answered() { 0 } else { self.length }
    }

    /// Returns the message that carries the request.
    #[inline]
    pub(crate) fn message(&self, token: Token, service: Service) -> Message {
        let opcode = self.operation.opcode(service).expect("checked when it was posted");
        let length = u32::try_from(self.payload()).expect("checked when it was begun");
        Message { token: token.pack(), opcode: opcode as u8, tag: 0, length }
    }

    /// Returns the RDMA header of the request's packets.
    #[inline]
    pub(crate) fn header(&self, destination_qp: u32) -> RdmaHeader {
        let length = u32::try_from(self.length).expect("checked when it was begun");
        let operation = self.operation.wire(self.receive, length);
        RdmaHeader {
            solicited: self.solicited,
            destination_qp: U24::truncate(destination_qp),
            psn: U24::truncate(self.psn),
            ..operation.expect("only requests with a message have packets").header()
        }
    }
}
