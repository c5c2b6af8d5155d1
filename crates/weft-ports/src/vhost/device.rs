//! The network device of a front end: its memory, its pairs of queues and their states (virtio 1.2, 5.1).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vhost::vhost_user::{VhostUserProtocolFeatures as Protocol, VhostUserVirtioFeatures};
use virtio_bindings::virtio_config::VIRTIO_F_RING_PACKED;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use super::chain::Purpose;
use super::fault::FrontEndFault;
use super::log::DirtyLog;
use super::memory::Memory;
use super::receive::{self, Receive, Terms};
use super::ring::Ring;
use super::steering::Steering;
use super::transmit::{self, Transmit};
use crate::frame::Pool;
use crate::readiness::{Readiness, Watch};
use crate::{Holdings, PortCounters};

/// The feature bit that announces protocol features.
const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
/// The feature bit that is set while written pages are logged.
const LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();

/// Index within its pair of the queue into which the guest receives.
pub(super) const RECEIVES: usize = 0;
/// Index of the queue from which it sends.
pub(super) const SENDS: usize = 1;

/// The device and all state of its guest.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) memory: Memory,
    /// The log of written pages that the front end shares, kept while its feature is set.
    pub(super) log: Option<Arc<DirtyLog>>,
    /// Maximum number of memory regions that the front end may share.
    pub(super) max_regions: usize,
    /// The pairs that the front end has named so far, and the first.
    pub(super) pairs: Vec<Pair>,
    /// Maximum number of pairs.
    pub(super) max_pairs: usize,
    /// Number of frames that guests sent from and received in each pair.
    pub(super) frames: Vec<(u64, u64)>,
    pub(super) steering: Steering,
    /// `true` if the machine is to be announced: the front end requests it after a live migration, or the guest has
    /// started here.
    pub(super) announces: bool,
    pub(super) features: u64,
    pub(super) protocol: u64,
    pub(super) terms: Terms,
    pub(super) pool: Pool,
    pub(super) counters: PortCounters,
}

/// A pair of queues, and the frames in them. Queue `2 * pair` is the one into which the guest receives.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) rings: [Ring; 2],
    pub(super) sent: Transmit,
    pub(super) received: Receive,
}

impl Pair {
    fn new() -> Self {
        Self {
            rings: [Purpose::Received, Purpose::Sent].map(Ring::new),
            sent: Transmit::new(),
            received: Receive::default(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.rings.iter().all(Ring::is_running)
    }

    /// Returns `true` if it holds no frame.
    fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.received.is_empty()
    }
}

impl Device {
    pub(super) fn new(max_regions: usize, max_pairs: usize) -> Self {
        Self {
            memory: Memory::default(),
            log: None,
            max_regions,
            pairs: vec![Pair::new()],
            max_pairs,
            frames: vec![(0, 0)],
            steering: Steering::default(),
            announces: false,
            features: 0,
            protocol: 0,
            terms: Terms::default(),
            pool: Pool::default(),
            counters: PortCounters::default(),
        }
    }

    pub(super) fn transmit(&mut self, pair: usize) -> (&mut Transmit, transmit::Scene<'_>) {
        let Self { memory, pairs, pool, counters, .. } = self;
        let Pair { rings: [_, ring], sent, .. } = &mut pairs[pair];
        (sent, transmit::Scene { memory, ring, pool, counters })
    }

    pub(super) fn receive(&mut self, pair: usize) -> (&mut Receive, receive::Scene<'_>) {
        let Self { memory, pairs, pool, counters, terms, .. } = self;
        let Pair { rings: [ring, _], received, .. } = &mut pairs[pair];
        (received, receive::Scene { memory, ring, pool, counters, terms: *terms })
    }

    /// Returns the index of the queue that the front end names; its pair is created if it is new.
    pub(super) fn queue(&mut self, index: u64) -> Result<usize, FrontEndFault> {
        let count = 2 * self.max_pairs;
        let known = usize::try_from(index).ok().filter(|&queue| queue < count);
        let queue = known.ok_or(FrontEndFault::NoQueue { index, count })?;
        while self.pairs.len() <= queue / 2 {
            let mut pair = Pair::new();
            for ring in &mut pair.rings {
                ring.set_packed(self.is_packed())?;
                // Without protocol features nothing enables rings.
                ring.enabled = self.features != 0 && self.features & PROTOCOL_FEATURES == 0;
            }
            self.pairs.push(pair);
            self.frames.resize(self.frames.len().max(self.pairs.len()), (0, 0));
        }
        Ok(queue)
    }

    pub(super) fn ring(&mut self, queue: usize) -> &mut Ring {
        &mut self.pairs[queue / 2].rings[queue % 2]
    }

    /// Returns `true` if the front end has named this queue or one after it, and has not disconnected since.
    pub(super) fn has_queue(&self, queue: usize) -> bool {
        queue < self.queues()
    }

    /// Returns the number of queues of all pairs.
    fn queues(&self) -> usize {
        2 * self.pairs.len()
    }

    /// Returns the number of memory regions that the front end shares, and their maximum.
    fn regions(&self) -> (usize, usize) {
        (self.memory.regions(), self.max_regions)
    }

    pub(super) fn holdings(&self) -> Holdings {
        let running = self.pairs.iter().filter(|pair| pair.is_running()).count();
        let (regions, queue_pairs) = (self.regions(), (running, self.max_pairs));
        let mut holdings = Holdings { regions, queue_pairs, ..Holdings::default() };
        for pair in &self.pairs {
            pair.sent.add_to(&mut holdings);
            pair.received.add_to(&mut holdings);
        }
        holdings
    }

    /// Returns `true` if the driver has chosen packed rings.
    fn is_packed(&self) -> bool {
        self.features & 1 << VIRTIO_F_RING_PACKED != 0
    }

    /// Returns `true` if every request may be answered.
    pub(super) fn answers_all(&self) -> bool {
        self.protocol & Protocol::REPLY_ACK.bits() != 0
    }

    pub(super) fn is_up(&self) -> bool {
        self.pairs.iter().any(Pair::is_running)
    }

    /// Returns the pair for a frame of the flow.
    pub(super) fn pair_of(&self, flow: Option<u32>) -> usize {
        let is_running = |pair: usize| self.pairs[pair].rings[RECEIVES].is_running();
        self.steering.pair_of(flow, self.pairs.len(), is_running)
    }

    /// Updates which queues can run, after a request may have changed it.
    pub(super) fn update(&mut self) {
        let was_up = self.is_up();
        let event_idx = self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let is_logging = self.features & LOG_ALL != 0;
        self.memory.set_log(self.log.as_ref().filter(|_| is_logging));
        for queue in 0..self.queues() {
            let ring = &mut self.pairs[queue / 2].rings[queue % 2];
            let was_running = ring.is_running();
            ring.update(&self.memory, event_idx);
            if was_running && !ring.is_running() {
                // Its memory is gone: held buffers are dropped, with copies where possible.
                self.return_all(queue);
            }
        }
        self.announces |= !was_up && self.is_up();
        self.move_stranded();
    }

    /// Moves the frames that wait in a queue that does not run to one that does: a guest may use fewer queues from
    /// now on.
    fn move_stranded(&mut self) {
        let is_running = |pair: &Pair| pair.rings[RECEIVES].is_running();
        let Some(to) = self.pairs.iter().position(is_running) else { return };
        for from in 0..self.pairs.len() {
            if !is_running(&self.pairs[from]) {
                let frames = self.pairs[from].received.take_waiting();
                frames.into_iter().for_each(|frame| self.pairs[to].received.enqueue(frame));
            }
        }
    }

    /// Returns a stopped ring, whose size or index may be set.
    pub(super) fn stopped(&mut self, queue: usize) -> Result<&mut Ring, FrontEndFault> {
        let ring = self.ring(queue);
        if ring.is_running() { Err(FrontEndFault::Running) } else { Ok(ring) }
    }

    pub(super) fn set_kick(
        &mut self,
        queue: usize,
        file: OwnedFd,
        readiness: &Readiness,
    ) -> Result<(), FrontEndFault> {
        let ring = self.ring(queue);
        if let Some(old) = ring.kick.take() {
            readiness.remove(old);
        }
        // An eventfd need not be read: each kick is an edge.
        readiness.add(&file, queue as u64, Watch::Edge).map_err(FrontEndFault::Kicks)?;
        ring.kick = Some(file);
        ring.started = true;
        Ok(())
    }

    /// Enables or disables a queue. A disabled one returns all buffers to the guest.
    pub(super) fn set_enabled(&mut self, queue: usize, enabled: bool) {
        if !enabled {
            self.return_buffers(queue);
        }
        self.ring(queue).enabled = enabled;
    }

    /// Returns all buffers of a queue to the guest.
    fn return_buffers(&mut self, queue: usize) {
        if !self.ring(queue).is_running() {
            return;
        }
        self.return_all(queue);
        let ring = &mut self.pairs[queue / 2].rings[queue % 2];
        if ring.publish(&self.memory) {
            ring.interrupt();
        }
        ring.leave(&self.memory);
    }

    /// Returns all buffers of all queues to the guest.
    pub(super) fn return_all_buffers(&mut self) {
        (0..self.queues()).for_each(|queue| self.return_buffers(queue));
    }

    fn return_all(&mut self, queue: usize) {
        if queue % 2 == SENDS {
            let (sent, mut scene) = self.transmit(queue / 2);
            sent.return_buffers(&mut scene);
        } else {
            let (received, mut scene) = self.receive(queue / 2);
            received.return_buffers(&mut scene);
        }
    }

    /// Publishes the returned buffers to the guest, and interrupts it if it requests that.
    pub(super) fn publish(&mut self) {
        for ring in self.pairs.iter_mut().flat_map(|pair| &mut pair.rings) {
            if ring.is_running() && ring.publish(&self.memory) && ring.interrupt() {
                self.counters.notifications += 1;
            }
        }
    }

    pub(super) fn stop(&mut self, queue: usize) {
        self.return_buffers(queue);
        self.ring(queue).stop();
    }

    /// Resets the guest's state.
    pub(super) fn reset(&mut self, readiness: &Readiness) {
        for queue in 0..self.queues() {
            self.stop(queue);
            let purpose = if queue % 2 == SENDS { Purpose::Sent } else { Purpose::Received };
            let ring = std::mem::replace(self.ring(queue), Ring::new(purpose));
            if let Some(kick) = ring.kick {
                // The front end still has it open, so closing it here would not end the watch.
                readiness.remove(kick);
            }
        }
        self.pairs.iter_mut().for_each(|pair| pair.sent.forget_custody());
        self.steering = Steering::default();
        self.features = 0;
    }

    /// The state without a guest, after a [`reset`](Self::reset).
    pub(super) fn forget_front_end(&mut self) {
        self.memory = Memory::default();
        self.log = None;
        self.protocol = 0;
        while self.pairs.len() > 1 && self.pairs.last().is_some_and(Pair::is_empty) {
            self.pairs.pop();
        }
    }
}
