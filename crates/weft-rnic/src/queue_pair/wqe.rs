//! A send request as it waits in its queue, and what it is on the wire.

use weft_transport::Message;
use weft_wire::{AtomicOperands, RdmaHeader, RdmaOperation, U24};

use super::{Service, Token};
use crate::completion::WorkKind;
use crate::work::{Inline, Pieces};
use crate::{Datagram, Operation, Remote, Status};

/// Bytes an atomic works on.
pub(crate) const ATOMIC: u32 = 8;

/// A posted send request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) sges: Pieces,
    /// Payload that was taken when the request was posted.
    pub(crate) inline: Option<Inline>,
    pub(crate) length: u64,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// Where a datagram goes.
    pub(crate) datagram: Option<Datagram>,
    /// Number of the request on the wire, once it is upcoming. One that stays here has the number of the next.
    pub(crate) psn: u32,
    /// Which of the peer's receive requests it takes, counted from the first.
    pub(super) receive: u64,
    /// What became of it, once that is known.
    pub(crate) outcome: Option<Status>,
}

/// What a request that is taken from the queue leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) kind: WorkKind,
    pub(crate) signaled: bool,
    /// Bytes that came with the answer.
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
}

impl Operation {
    /// Whether it goes to the peer.
    pub(crate) const fn travels(&self) -> bool {
        !matches!(self, Self::LocalInvalidate(_) | Self::BindWindow { .. })
    }

    /// Whether the peer answers with data.
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self, Self::Read(_) | Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// Whether it takes one of the peer's receive requests.
    pub(super) const fn takes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendWithImmediate(_)
                | Self::SendWithInvalidate(_)
                | Self::WriteWithImmediate(..)
        )
    }

    /// What it is on the wire; `None` where the service does not have it.
    pub(crate) const fn on_the_wire(&self, service: Service) -> Option<RdmaOperation> {
        use Service::{
            ReliableConnected as Rc, UnreliableConnected as Uc, UnreliableDatagram as Ud,
        };
        Some(match (self, service) {
            (Self::Send, Rc) => RdmaOperation::RcSend,
            (Self::Send, Uc) => RdmaOperation::UcSend,
            (Self::Send, Ud) => RdmaOperation::UdSend,
            (Self::SendWithImmediate(_), Rc) => RdmaOperation::RcSendWithImmediate,
            (Self::SendWithImmediate(_), Uc) => RdmaOperation::UcSendWithImmediate,
            (Self::SendWithImmediate(_), Ud) => RdmaOperation::UdSendWithImmediate,
            (Self::SendWithInvalidate(_), Rc) => RdmaOperation::RcSendWithInvalidate,
            (Self::Write(_), Rc) => RdmaOperation::RcWrite,
            (Self::Write(_), Uc) => RdmaOperation::UcWrite,
            (Self::WriteWithImmediate(..), Rc) => RdmaOperation::RcWriteWithImmediate,
            (Self::WriteWithImmediate(..), Uc) => RdmaOperation::UcWriteWithImmediate,
            (Self::Read(_), Rc) => RdmaOperation::RcReadRequest,
            (Self::FetchAdd { .. }, Rc) => RdmaOperation::RcFetchAdd,
            (Self::CompareSwap { .. }, Rc) => RdmaOperation::RcCompareSwap,
            _ => return None,
        })
    }

    /// What its completion says it was.
    pub(crate) const fn kind(&self) -> WorkKind {
        match self {
            Self::Send | Self::SendWithImmediate(_) | Self::SendWithInvalidate(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteWithImmediate(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
            Self::CompareSwap { .. } => WorkKind::CompareSwap,
            Self::LocalInvalidate(_) => WorkKind::LocalInvalidate,
            Self::BindWindow { .. } => WorkKind::BindWindow,
        }
    }

    const fn remote(&self) -> Option<Remote> {
        match self {
            Self::Write(remote)
            | Self::WriteWithImmediate(remote, _)
            | Self::Read(remote)
            | Self::FetchAdd { remote, .. }
            | Self::CompareSwap { remote, .. } => Some(*remote),
            _ => None,
        }
    }
}

impl Wqe {
    /// Bytes that travel with the request.
    pub(crate) fn payload(&self) -> u64 {
        if self.operation.is_answered() { 0 } else { self.length }
    }

    /// The message that carries it.
    #[inline]
    pub(crate) fn message(&self, token: Token, service: Service) -> Message {
        let operation = self.operation.on_the_wire(service).expect("checked when it was posted");
        let length = u32::try_from(self.payload()).expect("checked when it was begun");
        Message { token: token.pack(), opcode: operation as u8, tag: 0, length }
    }

    /// What its packets say beside their place in the message.
    pub(crate) fn header(&self, destination_qp: u32) -> RdmaHeader {
        let operands = match self.operation {
            Operation::FetchAdd { add, .. } => {
                Some(AtomicOperands { swap_or_add: add, compare: 0 })
            }
            Operation::CompareSwap { compare, swap, .. } => {
                Some(AtomicOperands { swap_or_add: swap, compare })
            }
            _ => None,
        };
        let immediate = match self.operation {
            Operation::SendWithImmediate(word)
            | Operation::SendWithInvalidate(word)
            | Operation::WriteWithImmediate(_, word) => word,
            Operation::Read(_) => u32::try_from(self.length).expect("checked when it was begun"),
            _ => 0,
        };
        let remote = self.operation.remote();
        RdmaHeader {
            solicited: self.solicited,
            destination_qp: U24::truncate(destination_qp),
            psn: U24::truncate(self.psn),
            address: remote.map_or(self.receive, |remote| remote.address),
            key: remote.map_or(0, |remote| remote.rkey),
            immediate,
            operands,
        }
    }
}
