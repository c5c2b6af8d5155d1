//! Commands for contexts, protection domains, memory, completion queues and shared receive queues.

use super::{Device, Domain, Opened, Tenant};
use crate::completion::Cq;
use crate::error::Object;
use crate::memory::{self, Access, WindowKind};
use crate::receive_queue::{ReceiveQueue, Srq};
use crate::{
    Arm, Completion, CompletionQueue, Context, Event, ProtectionDomain, ReceiveRequest,
    RegionRequest, SharedReceiveQueue, VerbsError,
};

fn at_most(field: &'static str, got: u64, limit: u64) -> Result<(), VerbsError> {
    if got <= limit { Ok(()) } else { Err(VerbsError::OverLimit { field, got, limit }) }
}

impl Device {
    /// Opens the device for one process (`ibv_open_device`).
    ///
    /// # Errors
    /// The limit of contexts is reached.
    pub fn open(&mut self) -> Result<Context, VerbsError> {
        self.open_for(None)
    }

    pub(super) fn open_for(&mut self, tenant: Option<Tenant>) -> Result<Context, VerbsError> {
        let (object, limit) = (Object::Context, self.limits.contexts);
        let number = self.contexts.insert(Opened { tenant, ..Opened::default() });
        number.map(Context).ok_or(VerbsError::TooMany { object, limit })
    }

    pub(super) fn opened(&mut self, context: Context) -> Result<&mut Opened, VerbsError> {
        self.contexts.get_mut(context.0).ok_or(VerbsError::Unknown(Object::Context))
    }

    /// Closes a context (`ibv_close_device`).
    ///
    /// # Errors
    /// It is not open, or has objects.
    pub fn close(&mut self, context: Context) -> Result<(), VerbsError> {
        let Opened { domains, cqs, .. } = self.opened(context)?;
        let users = cqs.saturating_add(u32::try_from(domains.len()).unwrap_or(u32::MAX));
        if users > 0 {
            return Err(VerbsError::Busy { users });
        }
        self.contexts.remove(context.0);
        Ok(())
    }

    /// Creates a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// The context is not open, or the limit is reached.
    pub fn allocate_domain(&mut self, context: Context) -> Result<ProtectionDomain, VerbsError> {
        self.opened(context)?;
        let (object, limit) = (Object::ProtectionDomain, self.limits.protection_domains);
        let number = self.domains.insert(Domain { context, users: 0 });
        let domain = number.map(ProtectionDomain).ok_or(VerbsError::TooMany { object, limit })?;
        self.opened(context)?.domains.push(domain);
        Ok(domain)
    }

    /// Destroys a protection domain (`ibv_dealloc_pd`).
    ///
    /// # Errors
    /// It does not exist, or has objects.
    pub fn deallocate_domain(&mut self, domain: ProtectionDomain) -> Result<(), VerbsError> {
        let Domain { context, users } = *self.domain(domain)?;
        if users > 0 {
            return Err(VerbsError::Busy { users });
        }
        self.domains.remove(domain.0);
        let domains = &mut self.opened(context)?.domains;
        let index = domains.iter().rposition(|&other| other == domain);
        domains.swap_remove(index.expect("a context knows its domains"));
        Ok(())
    }

    pub(super) fn domain(&mut self, domain: ProtectionDomain) -> Result<&mut Domain, VerbsError> {
        self.domains.get_mut(domain.0).ok_or(VerbsError::Unknown(Object::ProtectionDomain))
    }

    /// Registers memory (`ibv_reg_mr`, `ibv_reg_mr_iova`); returns its key, which is both `lkey` and `rkey`.
    ///
    /// # Errors
    /// The rights contradict each other, the region ends past the address space, the memory is not the virtual device's, or the
    /// limit of keys is reached.
    pub fn register(
        &mut self,
        domain: ProtectionDomain,
        request: &RegionRequest,
    ) -> Result<u32, VerbsError> {
        self.check_owner(domain, request.owner)?;
        self.domain(domain)?;
        self.check_region(request)?;
        let (object, limit) = (Object::MemoryRegion, self.limits.keys);
        let key =
            self.emtt.register(domain, request).ok_or(VerbsError::TooMany { object, limit })?;
        self.domain(domain)?.users += 1;
        Ok(key)
    }

    /// Returns the length of a region in bytes; `None` if no region has this key.
    pub fn region_length(&self, key: u32) -> Option<u64> {
        self.emtt.request(key).map(|region| region.length)
    }

    fn check_region(&self, request: &RegionRequest) -> Result<(), VerbsError> {
        let RegionRequest { address, length, iova, access, .. } = *request;
        at_most("length", length, self.limits.region_bytes)?;
        let writes =
            access.contains(Access::REMOTE_WRITE) || access.contains(Access::REMOTE_ATOMIC);
        if writes && !access.contains(Access::LOCAL_WRITE) {
            return Err(VerbsError::Invalid("remote writing and atomics need local writing"));
        }
        if address.checked_add(length).is_none() || iova.checked_add(length).is_none() {
            return Err(VerbsError::Invalid("the region ends past the address space"));
        }
        Ok(())
    }

    /// Changes a region and keeps its key (`ibv_rereg_mr`): moves it to another domain, and applies `change` to its request. On
    /// an error the region is unchanged.
    ///
    /// # Errors
    /// See [`Self::register`]; also if the region does not exist, or windows are bound to it.
    pub fn reregister(
        &mut self,
        key: u32,
        to: Option<ProtectionDomain>,
        change: impl FnOnce(&mut RegionRequest),
    ) -> Result<(), VerbsError> {
        let unknown = VerbsError::Unknown(Object::MemoryRegion);
        let (from, users) = self.emtt.region_use(key).ok_or(unknown)?;
        if users > 0 {
            return Err(VerbsError::Busy { users });
        }
        let to = to.unwrap_or(from);
        self.domain(to)?;
        let mut request = self.emtt.request(key).expect("found just now");
        change(&mut request);
        self.check_owner(to, request.owner)?;
        self.check_region(&request)?;
        self.emtt.change(key, to, &request);
        self.revoke(key);
        self.domain(from)?.users -= 1;
        self.domain(to)?.users += 1;
        Ok(())
    }

    /// Deregisters memory (`ibv_dereg_mr`). After this call nothing is copied from or to the region; a request that needs it
    /// fails.
    ///
    /// # Errors
    /// The region does not exist, or windows are bound to it.
    pub fn deregister(&mut self, key: u32) -> Result<(), VerbsError> {
        let unknown = VerbsError::Unknown(Object::MemoryRegion);
        let (domain, users) = self.emtt.region_use(key).ok_or(unknown)?;
        if users > 0 {
            return Err(VerbsError::Busy { users });
        }
        self.emtt.deregister(key);
        self.revoke(key);
        self.domain(domain)?.users -= 1;
        Ok(())
    }

    /// Creates an unbound memory window (`ibv_alloc_mw`); returns its key.
    /// [`Operation::BindWindow`](crate::Operation::BindWindow) binds it, which changes the key.
    ///
    /// # Errors
    /// The domain does not exist, or the limit of keys is reached.
    pub fn allocate_window(
        &mut self,
        domain: ProtectionDomain,
        kind: WindowKind,
    ) -> Result<u32, VerbsError> {
        self.domain(domain)?;
        let (object, limit) = (Object::MemoryWindow, self.limits.keys);
        let key = self.emtt.allocate_window(domain, kind);
        let key = key.ok_or(VerbsError::TooMany { object, limit })?;
        self.domain(domain)?.users += 1;
        Ok(key)
    }

    /// Destroys a memory window (`ibv_dealloc_mw`), bound or not.
    ///
    /// # Errors
    /// No window has this key.
    pub fn deallocate_window(&mut self, key: u32) -> Result<(), VerbsError> {
        let unknown = VerbsError::Unknown(Object::MemoryWindow);
        let domain = self.emtt.window_domain(key).ok_or(unknown)?;
        self.emtt.deallocate_window(key);
        self.domain(domain)?.users -= 1;
        Ok(())
    }

    /// Returns the key of a window of type 1 after its next bind. Programs receive it when they post the bind
    /// (`ibv_bind_mw`), before its execution.
    pub fn next_window_key(key: u32) -> u32 {
        memory::next_window_key(key)
    }

    /// Creates a completion queue for `capacity` completions (`ibv_create_cq`).
    ///
    /// # Errors
    /// The context is not open, the capacity is zero or above the limit, or the limit of queues is reached.
    pub fn create_cq(
        &mut self,
        context: Context,
        capacity: u32,
    ) -> Result<CompletionQueue, VerbsError> {
        self.opened(context)?;
        self.check_capacity(capacity)?;
        let (object, limit) = (Object::CompletionQueue, self.limits.completion_queues);
        let number = self.cqs.insert(Cq::new(context, capacity));
        let cq = number.map(CompletionQueue).ok_or(VerbsError::TooMany { object, limit })?;
        self.opened(context)?.cqs += 1;
        Ok(cq)
    }

    fn check_capacity(&self, capacity: u32) -> Result<(), VerbsError> {
        if capacity == 0 {
            return Err(VerbsError::Invalid("a completion queue has at least one entry"));
        }
        at_most("cqe", capacity.into(), self.limits.completions.into())
    }

    fn cq(&mut self, cq: CompletionQueue) -> Result<&mut Cq, VerbsError> {
        self.cqs.get_mut(cq.0).ok_or(VerbsError::Unknown(Object::CompletionQueue))
    }

    /// Changes the capacity of a completion queue (`ibv_resize_cq`).
    ///
    /// # Errors
    /// The queue does not exist, or the capacity is zero, above the limit, or less than the number of queued completions.
    pub fn resize_cq(&mut self, cq: CompletionQueue, capacity: u32) -> Result<(), VerbsError> {
        self.check_capacity(capacity)?;
        self.cq(cq)?.completions.resize(capacity)
    }

    /// Destroys a completion queue (`ibv_destroy_cq`).
    ///
    /// # Errors
    /// It does not exist, or queue pairs complete to it.
    pub fn destroy_cq(&mut self, cq: CompletionQueue) -> Result<(), VerbsError> {
        let Cq { context, users, ready, .. } = *self.cq(cq)?;
        if users > 0 {
            return Err(VerbsError::Busy { users });
        }
        self.cqs.remove(cq.0);
        if ready {
            self.ready.retain(|&other| other != cq);
        }
        self.opened(context)?.cqs -= 1;
        Ok(())
    }

    /// Takes the next completion (`ibv_poll_cq`).
    ///
    /// # Errors
    /// The queue does not exist, or is empty and overran.
    pub fn poll_cq(&mut self, cq: CompletionQueue) -> Result<Option<Completion>, VerbsError> {
        self.cq(cq)?.completions.poll()
    }

    /// Returns a completion queue to which a completion was added since the last call that returned it; `None` if there
    /// is none. For owners that forward completions to programs in other processes.
    pub fn poll_ready(&mut self) -> Option<CompletionQueue> {
        let cq = self.ready.pop_front()?;
        self.cqs.get_mut(cq.0).expect("queues that end are not listed").ready = false;
        Some(cq)
    }

    /// Requests one [`Event::Completion`] for the next matching completion (`ibv_req_notify_cq`).
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn arm_cq(&mut self, cq: CompletionQueue, arm: Arm) -> Result<(), VerbsError> {
        self.cq(cq)?.completions.arm(arm);
        Ok(())
    }

    /// Creates a shared receive queue for `max_requests` requests of at most `max_sge` scatter/gather entries
    /// (`ibv_create_srq`).
    ///
    /// # Errors
    /// The domain does not exist, a size is above its limit, or the limit of queues is reached.
    pub fn create_srq(
        &mut self,
        domain: ProtectionDomain,
        max_requests: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue, VerbsError> {
        at_most("max_wr", max_requests.into(), self.limits.work_requests.into())?;
        at_most("max_sge", max_sge.into(), self.limits.scatter_gather.into())?;
        let context = self.domain(domain)?.context;
        let queue = ReceiveQueue::new(max_requests, max_sge);
        let srq = Srq { context, domain, queue, low_water: 0, users: 0 };
        let (object, limit) = (Object::SharedReceiveQueue, self.limits.shared_receive_queues);
        let number = self.srqs.insert(srq).ok_or(VerbsError::TooMany { object, limit })?;
        self.domain(domain)?.users += 1;
        Ok(SharedReceiveQueue(number))
    }

    pub(super) fn srq(&mut self, srq: SharedReceiveQueue) -> Result<&mut Srq, VerbsError> {
        self.srqs.get_mut(srq.0).ok_or(VerbsError::Unknown(Object::SharedReceiveQueue))
    }

    /// Requests one [`Event::SrqLimitReached`] when the queue has fewer than `limit` requests (`ibv_modify_srq`).
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn arm_srq(&mut self, srq: SharedReceiveQueue, limit: u32) -> Result<(), VerbsError> {
        let queue = self.srq(srq)?;
        queue.low_water = limit;
        if queue.queue.len() < limit {
            queue.low_water = 0;
            self.events.push_back(Event::SrqLimitReached { srq });
        }
        Ok(())
    }

    /// Posts a receive request to a shared queue (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// The queue does not exist or is full, or the request has too many scatter/gather entries.
    pub fn post_srq_receive(
        &mut self,
        srq: SharedReceiveQueue,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), VerbsError> {
        self.srq(srq)?.queue.post(request)
    }

    /// Returns the number of receive requests in a shared queue.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn srq_waiting(&self, srq: SharedReceiveQueue) -> Result<u32, VerbsError> {
        let queue = self.srqs.get(srq.0).map(|srq| srq.queue.len());
        queue.ok_or(VerbsError::Unknown(Object::SharedReceiveQueue))
    }

    /// Destroys a shared receive queue (`ibv_destroy_srq`).
    ///
    /// # Errors
    /// It does not exist, or queue pairs receive from it.
    pub fn destroy_srq(&mut self, srq: SharedReceiveQueue) -> Result<(), VerbsError> {
        let Srq { domain, users, .. } = *self.srq(srq)?;
        if users > 0 {
            return Err(VerbsError::Busy { users });
        }
        self.srqs.remove(srq.0);
        self.domain(domain)?.users -= 1;
        Ok(())
    }
}
