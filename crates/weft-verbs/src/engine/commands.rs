//! What objects ask of the device. This is the whole of what they know of it, so that another way to a device
//! (a daemon's, over shared memory) has these to offer and nothing else.

use std::net::{IpAddr, SocketAddr};

use weft_rnic::{
    Access, Arm, Attributes, Completion, CompletionQueue, Context, ProtectionDomain,
    QueuePairNumber, QueuePairRequest, ReceiveRequest, RegionRequest, SendRequest,
    SharedReceiveQueue, State, VerbsError, WindowKind,
};
use weft_units::Instant;

use super::{Engine, Host, OWNER, Watcher};
use crate::errno::{Errno, Outcome};

/// Memory of this process to register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) iova: u64,
    pub(crate) access: Access,
}

impl Engine {
    /// Has the device do something, and sees to what follows from it.
    fn command<T>(
        &self,
        act: impl FnOnce(&mut Host, Instant) -> Result<T, VerbsError>,
    ) -> Outcome<T> {
        let mut host = self.host()?;
        let now = host.now();
        let outcome = act(&mut host, now).map_err(Errno::from);
        host.transmit(now);
        host.tell();
        self.rouse(&host);
        outcome
    }

    pub(crate) fn open_context(&self) -> Outcome<Context> {
        self.command(|host, _| host.device.open())
    }

    /// Closes a context with all that is left in it, as the kernel does.
    pub(crate) fn close_context(&self, context: Context) -> Outcome<()> {
        self.command(|host, now| host.device.reclaim(now, context))
    }

    pub(crate) fn allocate_domain(&self, context: Context) -> Outcome<ProtectionDomain> {
        self.command(|host, _| host.device.allocate_domain(context))
    }

    pub(crate) fn deallocate_domain(&self, domain: ProtectionDomain) -> Outcome<()> {
        self.command(|host, _| host.device.deallocate_domain(domain))
    }

    pub(crate) fn register(&self, domain: ProtectionDomain, region: Region) -> Outcome<u32> {
        let Region { address, length, iova, access } = region;
        let request = RegionRequest { owner: OWNER, address, length, iova, access };
        self.command(|host, _| host.device.register(domain, &request))
    }

    /// Changes a region under its key: its domain, its place, its rights.
    pub(crate) fn reregister(
        &self,
        key: u32,
        domain: Option<ProtectionDomain>,
        place: Option<(u64, u64)>,
        access: Option<Access>,
    ) -> Outcome<()> {
        let change = |request: &mut RegionRequest| {
            if let Some((address, length)) = place {
                (request.address, request.length, request.iova) = (address, length, address);
            }
            request.access = access.unwrap_or(request.access);
        };
        self.command(|host, _| host.device.reregister(key, domain, change))
    }

    pub(crate) fn deregister(&self, key: u32) -> Outcome<()> {
        self.command(|host, _| host.device.deregister(key))
    }

    pub(crate) fn allocate_window(
        &self,
        domain: ProtectionDomain,
        kind: WindowKind,
    ) -> Outcome<u32> {
        self.command(|host, _| host.device.allocate_window(domain, kind))
    }

    pub(crate) fn deallocate_window(&self, key: u32) -> Outcome<()> {
        self.command(|host, _| host.device.deallocate_window(key))
    }

    pub(crate) fn create_cq(
        &self,
        context: Context,
        capacity: u32,
        watcher: Watcher,
    ) -> Outcome<CompletionQueue> {
        self.command(|host, _| {
            let cq = host.device.create_cq(context, capacity)?;
            host.watchers.cqs.insert(cq, watcher);
            Ok(cq)
        })
    }

    pub(crate) fn resize_cq(&self, cq: CompletionQueue, capacity: u32) -> Outcome<()> {
        self.command(|host, _| host.device.resize_cq(cq, capacity))
    }

    pub(crate) fn destroy_cq(&self, cq: CompletionQueue) -> Outcome<()> {
        self.command(|host, _| {
            host.device.destroy_cq(cq)?;
            host.watchers.cqs.remove(&cq);
            Ok(())
        })
    }

    pub(crate) fn arm_cq(&self, cq: CompletionQueue, arm: Arm) -> Outcome<()> {
        self.command(|host, _| host.device.arm_cq(cq, arm))?;
        if self.pace.will_wait() {
            self.wake();
        }
        Ok(())
    }

    /// Hands `each` the next completions, at most `most`; how many there were. When there is none, does
    /// the work at hand and looks again.
    pub(crate) fn poll_cq(
        &self,
        cq: CompletionQueue,
        most: usize,
        mut each: impl FnMut(Completion),
    ) -> Outcome<usize> {
        let mut host = self.host()?;
        self.pace.polls(host.now());
        let mut taken = 0;
        for attempt in 0..2 {
            while taken < most
                && let Some(completion) = host.device.poll_cq(cq)?
            {
                each(completion);
                taken += 1;
            }
            if taken > 0 || attempt > 0 {
                break;
            }
            host.turn();
        }
        self.rouse(&host);
        Ok(taken)
    }

    pub(crate) fn create_srq(
        &self,
        domain: ProtectionDomain,
        requests: u32,
        pieces: u32,
        watcher: Watcher,
    ) -> Outcome<SharedReceiveQueue> {
        self.command(|host, _| {
            let srq = host.device.create_srq(domain, requests, pieces)?;
            host.watchers.srqs.insert(srq, watcher);
            Ok(srq)
        })
    }

    pub(crate) fn arm_srq(&self, srq: SharedReceiveQueue, limit: u32) -> Outcome<()> {
        self.command(|host, _| host.device.arm_srq(srq, limit))
    }

    pub(crate) fn post_srq_receive(
        &self,
        srq: SharedReceiveQueue,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        self.host()?.device.post_srq_receive(srq, request).map_err(Errno::from)
    }

    pub(crate) fn destroy_srq(&self, srq: SharedReceiveQueue) -> Outcome<()> {
        self.command(|host, _| {
            host.device.destroy_srq(srq)?;
            host.watchers.srqs.remove(&srq);
            Ok(())
        })
    }

    pub(crate) fn create_qp(
        &self,
        request: &QueuePairRequest,
        watcher: Watcher,
    ) -> Outcome<QueuePairNumber> {
        self.command(|host, _| {
            let qp = host.device.create_qp(request)?;
            host.watchers.qps.insert(qp, watcher);
            Ok(qp)
        })
    }

    pub(crate) fn modify_qp(&self, qp: QueuePairNumber, attributes: &Attributes) -> Outcome<()> {
        self.command(|host, now| host.device.modify_qp(now, qp, attributes))
    }

    pub(crate) fn query_qp(&self, qp: QueuePairNumber) -> Outcome<(State, Attributes)> {
        self.host()?.device.query_qp(qp).map_err(Errno::from)
    }

    pub(crate) fn destroy_qp(&self, qp: QueuePairNumber) -> Outcome<()> {
        self.command(|host, now| {
            host.device.destroy_qp(now, qp)?;
            host.watchers.qps.remove(&qp);
            Ok(())
        })
    }

    /// Posts send requests in turn until `next` has no more, or one is refused.
    pub(crate) fn post_sends(
        &self,
        qp: QueuePairNumber,
        post: impl FnOnce(&mut dyn FnMut(&SendRequest<'_>) -> Outcome<()>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut host = self.host()?;
        let now = host.now();
        let outcome =
            post(&mut |request| host.device.post_send(now, qp, request).map_err(Errno::from));
        host.transmit(now);
        host.tell();
        self.rouse(&host);
        outcome
    }

    /// Posts all of these, or none where one is refused.
    pub(crate) fn post_all(
        &self,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Outcome<()> {
        let mut host = self.host()?;
        let now = host.now();
        let outcome = host.device.post_sends(now, qp, requests).map_err(Errno::from);
        host.transmit(now);
        host.tell();
        self.rouse(&host);
        outcome
    }

    pub(crate) fn post_receive(
        &self,
        qp: QueuePairNumber,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        let mut host = self.host()?;
        host.device.post_receive(qp, request)?;
        host.tell();
        Ok(())
    }

    /// Speaks to `peer` from the address in this row of the table.
    pub(crate) fn route(&self, peer: IpAddr, row: usize) -> Outcome<()> {
        self.host()?.links.route(peer, row).map_err(Errno::from_socket)
    }
}

/// Where the process with this queue pair receives.
pub(crate) fn address_of(ip: IpAddr, queue_pair: u32) -> SocketAddr {
    SocketAddr::new(ip, super::port_of(queue_pair))
}
