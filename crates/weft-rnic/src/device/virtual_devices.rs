//! Virtual devices (STELLAR, sections 4 and 9): one for each guest that wants one, made and ended while
//! others run. Each is a context with a protection domain and a doorbell page of its own, and reaches the
//! memory of its guest and its GPUs. None needs an address on the PCIe bus, and an idle one costs what its
//! entries in the device's tables do.

use alloc::boxed::Box;

use weft_units::Instant;

use super::{Context, Device, Opened, ProtectionDomain};
use crate::error::Object;
use crate::{CompletionQueue, Doorbell, Owner, QueuePairNumber, SharedReceiveQueue, VerbsError};

/// One guest's virtual device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualDevice {
    /// What its objects are made in.
    pub context: Context,
    /// Its protection domain: queue pairs of other virtual devices reach nothing that is in it.
    pub domain: ProtectionDomain,
    /// The page its guest writes to when work is to be done.
    pub doorbell: Doorbell,
}

/// An object as a program names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handle {
    /// A protection domain.
    Domain(ProtectionDomain),
    /// A completion queue.
    CompletionQueue(CompletionQueue),
    /// A shared receive queue.
    SharedReceiveQueue(SharedReceiveQueue),
    /// A queue pair.
    QueuePair(QueuePairNumber),
    /// A memory region or window, by its key.
    Key(u32),
}

impl Handle {
    const fn object(self) -> Object {
        match self {
            Self::Domain(_) => Object::ProtectionDomain,
            Self::CompletionQueue(_) => Object::CompletionQueue,
            Self::SharedReceiveQueue(_) => Object::SharedReceiveQueue,
            Self::QueuePair(_) => Object::QueuePair,
            Self::Key(_) => Object::MemoryRegion,
        }
    }
}

/// Whose memory a virtual device may reach.
#[derive(Debug)]
pub(super) struct Tenant {
    guest: u32,
    gpus: Box<[u32]>,
}

impl Tenant {
    pub(super) fn has(&self, owner: Owner) -> bool {
        match owner {
            Owner::Host(_) => false,
            Owner::Guest(guest) => guest == self.guest,
            Owner::Gpu(gpu) => self.gpus.contains(&gpu),
        }
    }
}

impl Device {
    /// Makes a virtual device for a guest with these GPUs. It is ready at once.
    ///
    /// # Errors
    /// There are as many contexts or protection domains as may be.
    pub fn create_virtual(
        &mut self,
        guest: u32,
        gpus: &[u32],
    ) -> Result<VirtualDevice, VerbsError> {
        let context = self.open_for(Some(Tenant { guest, gpus: gpus.into() }))?;
        let domain = self.allocate_domain(context).inspect_err(|_| {
            self.contexts.remove(context.0);
        })?;
        Ok(VirtualDevice { context, domain, doorbell: self.doorbell_of(context) })
    }

    /// Ends a virtual device with everything that was made on it, whatever it is doing; see
    /// [`Self::reclaim`]. Its doorbell page must not be mapped any more.
    ///
    /// # Errors
    /// There is no such virtual device.
    pub fn destroy_virtual(&mut self, now: Instant, context: Context) -> Result<(), VerbsError> {
        match self.opened(context)?.tenant {
            Some(_) => self.reclaim(now, context),
            None => Err(VerbsError::Unknown(Object::Context)),
        }
    }

    /// A guest wrote a queue pair's number to a doorbell page.
    ///
    /// # Errors
    /// The queue pair is not of the virtual device that has this page.
    pub fn ring(&self, doorbell: Doorbell, qp: QueuePairNumber) -> Result<(), VerbsError> {
        let context = self.context_of(Handle::QueuePair(qp)).filter(|&context| {
            let opened = self.contexts.get(context.0);
            opened.is_some_and(|opened| opened.tenant.is_some())
                && self.doorbell_of(context) == doorbell
        });
        context.map(|_| ()).ok_or(VerbsError::Unknown(Object::QueuePair))
    }

    /// Whether an object is of this context: who serves several asks before doing with an object what one
    /// of them says.
    ///
    /// # Errors
    /// There is no such object, or it is another's.
    pub fn check(&self, context: Context, handle: Handle) -> Result<(), VerbsError> {
        let owned = self.context_of(handle) == Some(context);
        if owned { Ok(()) } else { Err(VerbsError::Unknown(handle.object())) }
    }

    /// Whether memory of this owner may be registered in a domain, if there is one.
    pub(super) fn check_owner(
        &self,
        domain: ProtectionDomain,
        owner: Owner,
    ) -> Result<(), VerbsError> {
        let context = self.context_of(Handle::Domain(domain));
        let opened = context.and_then(|context| self.contexts.get(context.0));
        match opened.and_then(|opened| opened.tenant.as_ref()) {
            Some(tenant) if !tenant.has(owner) => Err(VerbsError::ForeignMemory(owner)),
            _ => Ok(()),
        }
    }

    /// The domain of a context with which nothing else was made.
    pub(super) fn only_domain(&self, context: Context) -> Option<ProtectionDomain> {
        let Opened { domains, cqs: 0, .. } = self.contexts.get(context.0)? else { return None };
        let &[only] = &domains[..] else { return None };
        self.domains.get(only.0).filter(|domain| domain.users == 0).map(|_| only)
    }

    /// Whose an object is, if it is there.
    pub fn context_of(&self, handle: Handle) -> Option<Context> {
        let of_domain =
            |domain: ProtectionDomain| self.domains.get(domain.0).map(|domain| domain.context);
        match handle {
            Handle::Domain(domain) => of_domain(domain),
            Handle::CompletionQueue(cq) => self.cqs.get(cq.0).map(|cq| cq.context),
            Handle::SharedReceiveQueue(srq) => self.srqs.get(srq.0).map(|srq| srq.context),
            Handle::QueuePair(qp) => of_domain(self.qps.get(qp.0)?.request.domain),
            Handle::Key(key) => of_domain(self.emtt.domain_of(key)?),
        }
    }

    fn doorbell_of(&self, context: Context) -> Doorbell {
        let slot = self.contexts.slot_of(context.0);
        Doorbell(u32::try_from(slot).expect("a slot is part of a number"))
    }
}
