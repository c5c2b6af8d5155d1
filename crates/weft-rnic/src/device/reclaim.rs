//! Reclaiming the objects of a process that exited.

use alloc::vec::Vec;

use weft_units::Instant;

use super::Device;
use crate::error::Object;
use crate::{
    CompletionQueue, Context, ProtectionDomain, QueuePairNumber, SharedReceiveQueue, VerbsError,
};

impl Device {
    /// Destroys all objects of a context in any state, and the context. Connections of its queue pairs are closed,
    /// which fails their peers' requests in flight; other contexts are not affected.
    ///
    /// # Errors
    /// The context is not open.
    pub fn reclaim(&mut self, now: Instant, context: Context) -> Result<(), VerbsError> {
        self.contexts.get(context.0).ok_or(VerbsError::Unknown(Object::Context))?;
        // Idle virtual devices have only their domain. There may be thousands, so this case scans no tables.
        if let Some(only) = self.only_domain(context) {
            self.deallocate_domain(only)?;
            return self.close_at(now, context);
        }
        let domains: Vec<_> = self
            .domains
            .iter()
            .filter(|(_, domain)| domain.context == context)
            .map(|(number, _)| ProtectionDomain(number))
            .collect();
        let qps: Vec<_> = self
            .qps
            .iter()
            .filter(|(_, pair)| domains.contains(&pair.request.domain))
            .map(|(number, _)| QueuePairNumber(number))
            .collect();
        for qp in qps {
            self.destroy_qp(now, qp)?;
        }
        let srqs = self.srqs.iter().filter(|(_, srq)| srq.context == context);
        for srq in srqs.map(|(number, _)| SharedReceiveQueue(number)).collect::<Vec<_>>() {
            self.destroy_srq(srq)?;
        }
        let cqs = self.cqs.iter().filter(|(_, cq)| cq.context == context);
        for cq in cqs.map(|(number, _)| CompletionQueue(number)).collect::<Vec<_>>() {
            self.destroy_cq(cq)?;
        }
        for key in self.emtt.windows_of(&domains) {
            self.deallocate_window(key)?;
        }
        for key in self.emtt.regions_of(&domains) {
            self.deregister(key)?;
        }
        for domain in domains {
            self.deallocate_domain(domain)?;
        }
        self.close_at(now, context)
    }

    /// Closes a context, and its idle connections for datagrams; those in use close when they become idle.
    fn close_at(&mut self, now: Instant, context: Context) -> Result<(), VerbsError> {
        self.end_datagrams(now, Some(context));
        self.close(context)
    }

    /// Destroys all objects of all contexts before the process exits; returns `true` once no peer has a connection.
    /// Call it again as packets arrive, until it returns `true` or a deadline: meanwhile the transport retransmits lost
    /// acknowledgements of executed requests.
    pub fn shut_down(&mut self, now: Instant) -> bool {
        let contexts: Vec<_> = self.contexts.iter().map(|(number, _)| Context(number)).collect();
        for context in contexts {
            let reclaimed = self.reclaim(now, context);
            debug_assert_eq!(reclaimed, Ok(()), "it is open");
        }
        self.end_datagrams(now, None);
        self.handle_transport_events(now);
        self.carriers.network.connections() == 0
    }
}
