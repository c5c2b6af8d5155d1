//! Execution of control commands on the device.

use weft_rnic::{Attributes, Context, Handle, Owner, QueuePairNumber, RegionRequest, State};
use weft_units::Instant;

use super::Host;
use crate::engine::command::{Command, Region, Reply};
use crate::errno::{EINVAL, Errno, Outcome};

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
                self.claim_source_port(qp, attributes)?;
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

    /// Opens the source port that a program chose for a queue pair, if it did.
    ///
    /// # Errors
    /// The queue pair has no peer, or its host cannot send from the port.
    fn claim_source_port(&mut self, qp: QueuePairNumber, attributes: &Attributes) -> Outcome<()> {
        let Some(port) = attributes.marking.and_then(|marking| marking.source_port) else {
            return Ok(());
        };
        let known = self.device.query_qp(qp)?.1.destination;
        let peer = attributes.destination.or(known).ok_or(EINVAL)?;
        let context = self.device.context_of(Handle::QueuePair(qp)).ok_or(EINVAL)?;
        self.driver.sockets.claim_port(context, peer.ip(), port)
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
