//! Receive requests of one queue pair, or shared by several, and their memory.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use weft_units::Rng;

use super::image::Image;
use super::network::{BASE, Network};
use super::side::{len32, split_sge};
use crate::{Owner, QueuePairNumber, ReceiveRequest, Sge, SharedReceiveQueue};

/// Bytes of a receive request's buffers.
pub(super) const SLOT: usize = 1024;
/// Maximum number of receive requests in a pool.
pub(super) const SLOTS: usize = 16;

/// The queue to which requests are posted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    Of(QueuePairNumber),
    Shared(SharedReceiveQueue),
}

/// A queue of receive requests, and the model of their memory.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) host: usize,
    pub(super) queue: Queue,
    pub(super) owner: Owner,
    pub(super) key: u32,
    pub(super) image: Image,
    /// The numbers and slots of requests that are not completed, in order.
    pub(super) posted: VecDeque<(u64, usize)>,
    next: u64,
    /// Messages of which bytes may be in any slot: their execution is unknown, or they consumed another request when
    /// they were retransmitted.
    pub(super) left: Vec<Vec<u8>>,
    /// Messages in flight that consume a request.
    pub(super) in_flight: usize,
    /// `true` while the case posts no requests.
    pub(super) starved: bool,
}

impl Pool {
    pub(super) fn new(host: usize, queue: Queue, owner: Owner, key: u32, memory: &[u8]) -> Self {
        let (image, posted, left) = (Image::of(memory), VecDeque::new(), Vec::new());
        Self { host, queue, owner, key, image, posted, next: 0, left, in_flight: 0, starved: false }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self.queue, Queue::Shared(_))
    }

    /// Starts over after its queue pair was reset or replaced.
    pub(super) fn reset_or_replace(&mut self, qp: QueuePairNumber) {
        self.posted.clear();
        self.starved = false;
        self.queue = Queue::Of(qp);
    }

    /// Returns `true` if the next message certainly finds a request.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.posted.len() && !self.starved
    }

    /// Posts a request, unless all slots are used; returns `true` if it did.
    pub(super) fn post(&mut self, network: &mut Network, rng: &mut Rng) -> bool {
        let taken: Vec<_> = self.posted.iter().map(|posted| posted.1).collect();
        let free: Vec<_> = (0..SLOTS).filter(|slot| !taken.contains(slot)).collect();
        if free.is_empty() || self.starved {
            return false;
        }
        let slot = free[rng.index(free.len())];
        self.post_slot(network, rng, slot, self.key);
        true
    }

    /// Posts a request for a slot with this key.
    fn post_slot(&mut self, network: &mut Network, rng: &mut Rng, slot: usize, lkey: u32) {
        let address = BASE + (slot * SLOT) as u64;
        let sges = split_sge(Sge { address, length: len32(SLOT), lkey }, rng);
        let request = ReceiveRequest { wr_id: self.next, sges: &sges };
        let device = &mut network.hosts[self.host].device;
        match self.queue {
            Queue::Of(qp) => device.post_receive(qp, &request),
            Queue::Shared(srq) => device.post_srq_receive(srq, &request),
        }
        .expect("there is room");
        self.posted.push_back((self.next, slot));
        self.next += 1;
    }

    /// Posts a request whose memory is not writable; returns `false` if no slot is free.
    pub(super) fn post_bad(&mut self, network: &mut Network, rng: &mut Rng) -> bool {
        let free = (0..SLOTS).find(|slot| self.posted.iter().all(|posted| posted.1 != *slot));
        free.map(|slot| self.post_slot(network, rng, slot, self.key ^ 0x55)).is_some()
    }

    /// Takes a completed request, which must be the first one unless the queue is shared; returns its slot.
    pub(super) fn take(&mut self, wr_id: u64) -> Option<usize> {
        let index = self.posted.iter().position(|posted| posted.0 == wr_id)?;
        (index == 0 || self.is_shared()).then(|| self.posted.remove(index).expect("found").1)
    }

    /// Returns the first byte with a value that is not allowed.
    pub(super) fn differs(&self, network: &Network) -> Option<usize> {
        let memory = self.memory(network);
        self.image.differs(memory, |at| {
            let byte = Some(&memory[at]);
            self.left.iter().any(|message| message.get(at % SLOT) == byte)
        })
    }

    /// Sets the model to the present contents of memory.
    pub(super) fn adopt(&mut self, network: &Network) {
        self.image = Image::of(self.memory(network));
        self.left.clear();
    }

    /// Returns the memory of the pool.
    pub(super) fn memory<'a>(&self, network: &'a Network) -> &'a [u8] {
        &network.hosts[self.host].memory.bytes[&self.owner]
    }
}

/// Returns the memory of an owner.
pub(super) fn memory_of(network: &Network, host: usize, owner: Owner) -> &[u8] {
    let bytes: &BTreeMap<_, Vec<u8>> = &network.hosts[host].memory.bytes;
    &bytes[&owner]
}
