//! The operations of the device that the objects call. The objects do not depend on its place: this process, or a
//! daemon that is reached over shared memory.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_rnic::{
    Access, Arm, Attributes, Completion, CompletionQueue, Context, ProtectionDomain,
    QueuePairNumber, QueuePairRequest, ReceiveRequest, SendRequest, SharedReceiveQueue, State,
    WindowKind,
};

use super::command::{Command, Region, Reply};
use super::events::EventQueue;
use super::planned::Planned;
use super::{Asynchronous, Engine, Watcher, Watchers};
use crate::errno::{EOPNOTSUPP, Errno, Outcome};

/// Passes requests to the device one by one.
pub(crate) type Post<'a> = &'a mut dyn FnMut(&SendRequest<'_>) -> Outcome<()>;

/// Makes the same call on either kind of engine.
macro_rules! either {
    ($engine:expr, $way:ident => $call:expr) => {
        match $engine {
            Engine::Embedded($way) => $call,
            Engine::Attached($way) => $call,
        }
    };
}

impl Engine {
    fn control(&self, command: Command) -> Outcome<Reply> {
        either!(self, way => way.control(&command))
    }

    /// Executes a command without a result.
    fn execute(&self, command: Command) -> Outcome<()> {
        self.control(command).map(|_| ())
    }

    /// Returns the UDP port at which the device receives; 0 for one in a daemon, which others use too.
    pub(crate) fn receive_port(&self) -> u16 {
        match self {
            Self::Embedded(embedded) => embedded.receive_port(),
            Self::Attached(_) => 0,
        }
    }

    /// Makes packets leave from the source ports of this table from now on.
    ///
    /// # Errors
    /// `EINVAL`: it is not a port table; `EOPNOTSUPP`: the device is in a daemon; or a port is taken.
    pub(crate) fn plan_ports(&self, table: &str) -> Outcome<()> {
        let planned = Planned::parse(table)?;
        match self {
            Self::Embedded(embedded) => embedded.plan(&planned),
            Self::Attached(_) => Err(EOPNOTSUPP),
        }
    }

    fn watch(&self, change: impl FnOnce(&mut Watchers)) -> Outcome<()> {
        either!(self, way => way.watch(change))
    }

    /// Opens a context; `events` receives the events about the whole context.
    pub(crate) fn open_context(&self, events: Arc<EventQueue<Asynchronous>>) -> Outcome<Context> {
        let context = Context(self.control(Command::OpenContext)?.number()?);
        self.watch(|watchers| drop(watchers.contexts.insert(context, events)))?;
        Ok(context)
    }

    pub(crate) fn close_context(&self, context: Context) -> Outcome<()> {
        self.watch(|watchers| drop(watchers.contexts.remove(&context)))?;
        self.execute(Command::CloseContext(context))
    }

    pub(crate) fn allocate_domain(&self, context: Context) -> Outcome<ProtectionDomain> {
        self.control(Command::AllocateDomain(context))?.number().map(ProtectionDomain)
    }

    pub(crate) fn deallocate_domain(&self, domain: ProtectionDomain) -> Outcome<()> {
        self.execute(Command::DeallocateDomain(domain))
    }

    pub(crate) fn register(&self, domain: ProtectionDomain, region: Region) -> Outcome<u32> {
        self.control(Command::Register(domain, region))?.number()
    }

    /// Changes a region but keeps its key: its domain, its range, its rights.
    pub(crate) fn reregister(
        &self,
        key: u32,
        domain: Option<ProtectionDomain>,
        place: Option<(u64, u64)>,
        access: Option<Access>,
    ) -> Outcome<()> {
        self.execute(Command::Reregister { key, domain, place, access })
    }

    pub(crate) fn deregister(&self, key: u32) -> Outcome<()> {
        self.execute(Command::Deregister(key))
    }

    pub(crate) fn allocate_window(
        &self,
        domain: ProtectionDomain,
        kind: WindowKind,
    ) -> Outcome<u32> {
        self.control(Command::AllocateWindow(domain, kind))?.number()
    }

    pub(crate) fn deallocate_window(&self, key: u32) -> Outcome<()> {
        self.execute(Command::DeallocateWindow(key))
    }

    pub(crate) fn create_cq(
        &self,
        context: Context,
        capacity: u32,
        watcher: Watcher,
    ) -> Outcome<CompletionQueue> {
        let cq = self.control(Command::CreateCq(context, capacity))?.number()?;
        let cq = CompletionQueue(cq);
        self.watch(|watchers| drop(watchers.cqs.insert(cq, watcher)))?;
        Ok(cq)
    }

    pub(crate) fn resize_cq(&self, cq: CompletionQueue, capacity: u32) -> Outcome<()> {
        self.execute(Command::ResizeCq(cq, capacity))
    }

    pub(crate) fn destroy_cq(&self, cq: CompletionQueue) -> Outcome<()> {
        self.execute(Command::DestroyCq(cq))?;
        self.watch(|watchers| drop(watchers.cqs.remove(&cq)))
    }

    pub(crate) fn arm_cq(&self, cq: CompletionQueue, arm: Arm) -> Outcome<()> {
        either!(self, way => way.arm_cq(cq, arm))
    }

    /// Passes the next completions to `each`, at most `max`; returns their number. If there is none, runs the engine's
    /// pending work and checks again.
    pub(crate) fn poll_cq(
        &self,
        cq: CompletionQueue,
        max: usize,
        each: impl FnMut(Completion),
    ) -> Outcome<usize> {
        either!(self, way => way.poll_cq(cq, max, each))
    }

    pub(crate) fn create_srq(
        &self,
        domain: ProtectionDomain,
        requests: u32,
        pieces: u32,
        watcher: Watcher,
    ) -> Outcome<SharedReceiveQueue> {
        let srq = self.control(Command::CreateSrq { domain, requests, pieces })?.number()?;
        let srq = SharedReceiveQueue(srq);
        self.watch(|watchers| drop(watchers.srqs.insert(srq, watcher)))?;
        Ok(srq)
    }

    pub(crate) fn arm_srq(&self, srq: SharedReceiveQueue, limit: u32) -> Outcome<()> {
        self.execute(Command::ArmSrq(srq, limit))
    }

    pub(crate) fn post_srq_receive(
        &self,
        srq: SharedReceiveQueue,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        either!(self, way => way.post_srq_receive(srq, request))
    }

    pub(crate) fn destroy_srq(&self, srq: SharedReceiveQueue) -> Outcome<()> {
        self.execute(Command::DestroySrq(srq))?;
        self.watch(|watchers| drop(watchers.srqs.remove(&srq)))
    }

    pub(crate) fn create_qp(
        &self,
        request: &QueuePairRequest,
        watcher: Watcher,
    ) -> Outcome<QueuePairNumber> {
        let qp = QueuePairNumber(self.control(Command::CreateQp(*request))?.number()?);
        self.watch(|watchers| drop(watchers.qps.insert(qp, watcher)))?;
        Ok(qp)
    }

    pub(crate) fn modify_qp(&self, qp: QueuePairNumber, attributes: &Attributes) -> Outcome<()> {
        self.execute(Command::ModifyQp(qp, *attributes))
    }

    pub(crate) fn query_qp(&self, qp: QueuePairNumber) -> Outcome<(State, Attributes)> {
        match self.control(Command::QueryQp(qp))? {
            Reply::QueuePair(state, attributes) => Ok((state, attributes)),
            Reply::Done | Reply::Number(_) => Err(Errno(libc::EPROTO)),
        }
    }

    /// Returns `true` if a connected queue pair has unsent requests, or completions that wait to be polled.
    pub(crate) fn has_unseen(&self, qp: QueuePairNumber) -> Outcome<bool> {
        either!(self, way => way.has_unseen(qp))
    }

    pub(crate) fn destroy_qp(&self, qp: QueuePairNumber) -> Outcome<()> {
        self.execute(Command::DestroyQp(qp))?;
        self.watch(|watchers| drop(watchers.qps.remove(&qp)))
    }

    /// Posts send requests until `next` has no more, or one is refused.
    pub(crate) fn post_sends(
        &self,
        qp: QueuePairNumber,
        next: impl FnOnce(Post<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        either!(self, way => way.post_sends(qp, next))
    }

    /// Posts all of these, or none if one is refused.
    pub(crate) fn post_all(
        &self,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Outcome<()> {
        either!(self, way => way.post_all(qp, requests))
    }

    pub(crate) fn post_receive(
        &self,
        qp: QueuePairNumber,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        either!(self, way => way.post_receive(qp, request))
    }

    /// Makes a context send to `peer` from the address in this row of the table.
    pub(crate) fn route(&self, context: Context, peer: IpAddr, row: usize) -> Outcome<()> {
        let row = u32::try_from(row).map_err(|_| crate::errno::EINVAL)?;
        self.execute(Command::Route(context, peer, row))
    }
}

/// Returns the address at which the process with this queue pair receives.
pub(crate) fn address_of(ip: IpAddr, queue_pair: u32) -> SocketAddr {
    SocketAddr::new(ip, super::port_of(queue_pair))
}
