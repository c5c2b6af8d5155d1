//! The control commands of a device and their replies, as values, so that the device may be in this process or in a
//! daemon. Work requests and completions are not among them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_rnic::{
    Access, Attributes, CompletionQueue, Context, Handle, ProtectionDomain, QueuePairNumber,
    QueuePairRequest, SharedReceiveQueue, State, WindowKind,
};

use crate::errno::{Errno, Outcome};

/// Memory of the program's process to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) iova: u64,
    pub(crate) access: Access,
}

/// A control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    OpenContext,
    /// Closes a context with all objects left in it, as the kernel does.
    CloseContext(Context),
    AllocateDomain(Context),
    DeallocateDomain(ProtectionDomain),
    Register(ProtectionDomain, Region),
    /// Changes a region but keeps its key: its domain, its range (address and length), its rights.
    Reregister {
        key: u32,
        domain: Option<ProtectionDomain>,
        place: Option<(u64, u64)>,
        access: Option<Access>,
    },
    Deregister(u32),
    AllocateWindow(ProtectionDomain, WindowKind),
    DeallocateWindow(u32),
    CreateCq(Context, u32),
    ResizeCq(CompletionQueue, u32),
    DestroyCq(CompletionQueue),
    CreateSrq {
        domain: ProtectionDomain,
        requests: u32,
        pieces: u32,
    },
    ArmSrq(SharedReceiveQueue, u32),
    /// Queries the number of receive requests that wait there.
    Waiting(SharedReceiveQueue),
    DestroySrq(SharedReceiveQueue),
    CreateQp(QueuePairRequest),
    ModifyQp(QueuePairNumber, Attributes),
    QueryQp(QueuePairNumber),
    DestroyQp(QueuePairNumber),
    /// Makes a context send to a host from the address in this row of the table.
    Route(Context, IpAddr, u32),
}

/// The reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// The number of the new object, or a count.
    Number(u32),
    QueuePair(State, Attributes),
}

impl Reply {
    /// Returns the number of the new object.
    ///
    /// # Errors
    /// The reply is of another kind.
    pub(crate) fn number(self) -> Outcome<u32> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Done | Self::QueuePair(..) => Err(Errno(libc::EPROTO)),
        }
    }
}

impl Command {
    /// Returns the objects it names, so that a daemon can check their owner.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        match *self {
            Self::OpenContext
            | Self::CloseContext(_)
            | Self::AllocateDomain(_)
            | Self::CreateCq(..)
            | Self::Route(..) => Vec::new(),
            Self::DeallocateDomain(domain)
            | Self::Register(domain, _)
            | Self::AllocateWindow(domain, _)
            | Self::CreateSrq { domain, .. } => vec![Handle::Domain(domain)],
            Self::Reregister { key, domain, .. } => {
                [Handle::Key(key)].into_iter().chain(domain.map(Handle::Domain)).collect()
            }
            Self::Deregister(key) | Self::DeallocateWindow(key) => vec![Handle::Key(key)],
            Self::ResizeCq(cq, _) | Self::DestroyCq(cq) => vec![Handle::CompletionQueue(cq)],
            Self::ArmSrq(srq, _) | Self::Waiting(srq) | Self::DestroySrq(srq) => {
                vec![Handle::SharedReceiveQueue(srq)]
            }
            Self::CreateQp(request) => {
                let QueuePairRequest { domain, send_cq, receive_cq, srq, .. } = request;
                let cqs = [send_cq, receive_cq].map(Handle::CompletionQueue);
                let others = srq.map(Handle::SharedReceiveQueue);
                [Handle::Domain(domain)].into_iter().chain(cqs).chain(others).collect()
            }
            Self::ModifyQp(qp, _) | Self::QueryQp(qp) | Self::DestroyQp(qp) => {
                vec![Handle::QueuePair(qp)]
            }
        }
    }

    /// Returns `true` if the command only ends an object.
    pub(crate) const fn ends_object(&self) -> bool {
        matches!(
            self,
            Self::CloseContext(_)
                | Self::DeallocateDomain(_)
                | Self::Deregister(_)
                | Self::DeallocateWindow(_)
                | Self::DestroyCq(_)
                | Self::DestroySrq(_)
                | Self::DestroyQp(_)
        )
    }

    /// Returns the context, if the command names one directly.
    pub(crate) const fn context(&self) -> Option<Context> {
        match *self {
            Self::CloseContext(context)
            | Self::AllocateDomain(context)
            | Self::CreateCq(context, _)
            | Self::Route(context, ..) => Some(context),
            _ => None,
        }
    }
}
