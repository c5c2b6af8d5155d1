//! Virtual devices (STELLAR, sections 4 and 9): created for guests and destroyed while others run. Each is a context
//! with a protection domain and a doorbell page of its own, and may register the memory of its guest and its GPUs. It
//! needs no address on the PCIe bus; an idle one occupies only its entries in the device's tables.

use alloc::boxed::Box;

use weft_units::Instant;

use super::{Device, Opened};
use crate::error::Object;
use crate::{
    CompletionQueue, Context, Doorbell, Owner, ProtectionDomain, QueuePairNumber,
    SharedReceiveQueue, VerbsError,
};

/// The virtual device of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualDevice {
    /// The context of its objects.
    pub context: Context,
    /// Its protection domain, whose memory other virtual devices' queue pairs cannot access.
    pub domain: ProtectionDomain,
    /// The page to which the guest writes to ring the doorbell.
    pub doorbell: Doorbell,
}

/// The handle by which a program names an object.
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

/// The memory that a virtual device may register.
#[derive(Debug)]
pub(super) struct Tenant {
    guest: u32,
    gpus: Box<[u32]>,
}

impl Tenant {
    /// Returns `true` if the virtual device may register memory of this owner.
    pub(super) fn has(&self, owner: Owner) -> bool {
        match owner {
            Owner::Host(_) => false,
            Owner::Guest(guest) => guest == self.guest,
            Owner::Gpu(gpu) => self.gpus.contains(&gpu),
        }
    }
}

impl Device {
    /// Creates a virtual device, ready for use, for a guest with these GPUs.
    ///
    /// # Errors
    /// The limit of contexts or protection domains is reached.
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

    /// Destroys a virtual device with all its objects, in any state ([`Self::reclaim`]). Its doorbell page must be unmapped.
    ///
    /// # Errors
    /// The virtual device does not exist.
    pub fn destroy_virtual(&mut self, now: Instant, context: Context) -> Result<(), VerbsError> {
        match self.opened(context)?.tenant {
            Some(_) => self.reclaim(now, context),
            None => Err(VerbsError::Unknown(Object::Context)),
        }
    }

    /// Handles a guest's write of a queue pair number to a doorbell page.
    ///
    /// # Errors
    /// The queue pair does not belong to the virtual device with this page.
    pub fn ring(&self, doorbell: Doorbell, qp: QueuePairNumber) -> Result<(), VerbsError> {
        let context = self.context_of(Handle::QueuePair(qp)).filter(|&context| {
            let opened = self.contexts.get(context.0);
            opened.is_some_and(|opened| opened.tenant.is_some())
                && self.doorbell_of(context) == doorbell
        });
        context.map(|_| ()).ok_or(VerbsError::Unknown(Object::QueuePair))
    }

    /// Checks that an object belongs to this context. Owners that serve several contexts check before a command.
    ///
    /// # Errors
    /// The object does not exist, or belongs to another context.
    pub fn check(&self, context: Context, handle: Handle) -> Result<(), VerbsError> {
        let owned = self.context_of(handle) == Some(context);
        if owned { Ok(()) } else { Err(VerbsError::Unknown(handle.object())) }
    }

    /// Checks that memory of this owner may be registered in a domain.
    ///
    /// # Errors
    /// The domain belongs to a virtual device that does not have this memory.
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

    /// Returns the domain of a context that has no other object.
    pub(super) fn only_domain(&self, context: Context) -> Option<ProtectionDomain> {
        let Opened { domains, cqs: 0, .. } = self.contexts.get(context.0)? else { return None };
        let &[only] = &domains[..] else { return None };
        self.domains.get(only.0).filter(|domain| domain.users == 0).map(|_| only)
    }

    /// Returns the context of an object; `None` if the object does not exist.
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
