//! The control commands of a device and their replies, as values, so that the device may be in this process or in a
//! daemon. Work requests and completions are not among them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_rnic::{
    Access, Attributes, CompletionQueue, Context, Handle, Owner, ProtectionDomain, QueuePairNumber,
    QueuePairRequest, RegionRequest, SharedReceiveQueue, State, WindowKind,
};
use weft_units::Instant;

use super::Host;
use crate::errno::{EINVAL, Errno, Outcome};

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

impl Host {
    /// Executes a process's command; `owner` is the process's memory.
    pub(crate) fn execute(
        &mut self,
        now: Instant,
        owner: Owner,
        command: &Command,
    ) -> Outcome<Reply> {
        let device = &mut self.device;
        match *command {
            Command::OpenContext => {
                let opened = match owner {
                    Owner::Guest(guest) => {
                        device.create_virtual(guest, &[]).map(|made| made.context)
                    }
                    Owner::Host(_) | Owner::Gpu(_) => device.open(),
                };
                return Ok(Reply::Number(opened?.0));
            }
            Command::AllocateDomain(context) => {
                return Ok(Reply::Number(device.allocate_domain(context)?.0));
            }
            Command::Register(domain, Region { address, length, iova, access }) => {
                let request = RegionRequest { owner, address, length, iova, access };
                return Ok(Reply::Number(device.register(domain, &request)?));
            }
            Command::AllocateWindow(domain, kind) => {
                return Ok(Reply::Number(device.allocate_window(domain, kind)?));
            }
            Command::CreateCq(context, capacity) => {
                return Ok(Reply::Number(device.create_cq(context, capacity)?.0));
            }
            Command::CreateSrq { domain, requests, pieces } => {
                return Ok(Reply::Number(device.create_srq(domain, requests, pieces)?.0));
            }
            Command::Waiting(srq) => return Ok(Reply::Number(device.srq_waiting(srq)?)),
            Command::CreateQp(request) => return Ok(Reply::Number(device.create_qp(&request)?.0)),
            Command::QueryQp(qp) => {
                let (state, attributes) = device.query_qp(qp)?;
                return Ok(Reply::QueuePair(state, attributes));
            }
            Command::Reregister { key, domain, place, access } => {
                device.reregister(key, domain, |request| {
                    if let Some((address, length)) = place {
                        (request.address, request.length, request.iova) =
                            (address, length, address);
                    }
                    request.access = access.unwrap_or(request.access);
                })?;
            }
            Command::CloseContext(context) => self.close(now, context)?,
            Command::DeallocateDomain(domain) => device.deallocate_domain(domain)?,
            Command::Deregister(key) => device.deregister(key)?,
            Command::DeallocateWindow(key) => device.deallocate_window(key)?,
            Command::ResizeCq(cq, capacity) => device.resize_cq(cq, capacity)?,
            Command::DestroyCq(cq) => device.destroy_cq(cq)?,
            Command::ArmSrq(srq, limit) => device.arm_srq(srq, limit)?,
            Command::DestroySrq(srq) => device.destroy_srq(srq)?,
            Command::ModifyQp(qp, ref attributes) => {
                attributes.destination.into_iter().for_each(|peer| self.meet(peer));
                if attributes.state == Some(State::Error) {
                    self.ingest_arrived(now);
                }
                self.device.modify_qp(now, qp, attributes)?;
            }
            Command::DestroyQp(qp) => device.destroy_qp(now, qp)?,
            Command::Route(context, peer, row) => {
                let row = usize::try_from(row).map_err(|_| EINVAL)?;
                if !self.driver.sockets.may_route(context, peer) {
                    return Err(Errno(libc::ENOSPC));
                }
                self.driver.sockets.route(context, peer, row).map_err(Errno::from_socket)?;
            }
        }
        Ok(Reply::Done)
    }

    /// Closes a context with every object in it.
    ///
    /// # Errors
    /// It is not open.
    pub(crate) fn close(&mut self, now: Instant, context: Context) -> Outcome<()> {
        self.driver.sockets.forget(context);
        Ok(self.device.reclaim(now, context)?)
    }
}
