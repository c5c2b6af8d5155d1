//! The network device of a front end: its features, the negotiation, and the action of each request
//! (QEMU's docs/interop/vhost-user.rst; virtio 1.2, 5.1).

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use vhost::vhost_user::message::{FrontendReq, VhostUserMemoryRegion};
use vhost::vhost_user::{VhostUserProtocolFeatures as Protocol, VhostUserVirtioFeatures};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
    VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
    VIRTIO_NET_F_MRG_RXBUF,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::chain::Purpose;
use super::fault::{FrontEndFault, MemoryFault};
use super::memory::Memory;
use super::message::Message;
use super::receive::{self, Receive, Terms};
use super::ring::Ring;
use super::transmit::{self, Transmit};
use crate::PortCounters;
use crate::finish::Ability;
use crate::frame::Pool;
use crate::readiness::{Readiness, Watch};

/// Index of the queue into which the guest receives.
pub(super) const RECEIVES: usize = 0;
/// Index of the queue from which it sends.
pub(super) const SENDS: usize = 1;

/// The bit of a kick, call or error request without a descriptor.
const NO_FILE: u64 = 1 << 8;

/// The bits of the features that the device offers: the ring's formats, and the offloads that either side may leave to
/// the other, if negotiated.
#[rustfmt::skip]
const OFFERED: &[u32] = &[
    VIRTIO_F_VERSION_1, VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC, VIRTIO_NET_F_MRG_RXBUF,
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_USO,
    VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN,
    VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
];

/// Returns the mask of the offered features, with the bit that announces protocol features.
fn offered() -> u64 {
    OFFERED
        .iter()
        .fold(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), |all, bit| all | 1 << bit)
}

/// Returns the mask of the offered protocol features of vhost-user.
fn offered_protocol() -> u64 {
    let all = Protocol::MQ
        | Protocol::REPLY_ACK
        | Protocol::MTU
        | Protocol::CONFIGURE_MEM_SLOTS
        | Protocol::RESET_DEVICE;
    all.bits()
}

/// The device and all state of its guest.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) memory: Memory,
    /// Maximum number of memory regions that the front end may share.
    max_regions: usize,
    pub(super) rings: [Ring; 2],
    features: u64,
    protocol: u64,
    pub(super) terms: Terms,
    pub(super) sent: Transmit,
    pub(super) received: Receive,
    pub(super) pool: Pool,
    pub(super) counters: PortCounters,
}

/// The integers of a request's body.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn u32(&self, at: usize) -> Result<u32, FrontEndFault> {
        let bytes = self.0.get(at..at + 4).ok_or(FrontEndFault::TooShort)?;
        Ok(u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
    }

    fn u64(&self, at: usize) -> Result<u64, FrontEndFault> {
        let bytes = self.0.get(at..at + 8).ok_or(FrontEndFault::TooShort)?;
        Ok(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn region(&self, at: usize) -> Result<VhostUserMemoryRegion, FrontEndFault> {
        let [guest, len, user, offset] = [0, 8, 16, 24].map(|field| self.u64(at + field));
        Ok(VhostUserMemoryRegion::new(guest?, len?, user?, offset?))
    }

    /// Returns the queue that a request names, and the integer after it.
    fn queue(&self) -> Result<(usize, u32), FrontEndFault> {
        Ok((queue(u64::from(self.u32(0)?))?, self.u32(4)?))
    }
}

fn queue(index: u64) -> Result<usize, FrontEndFault> {
    match index {
        0 => Ok(RECEIVES),
        1 => Ok(SENDS),
        _ => Err(FrontEndFault::NoQueue(index)),
    }
}

impl Device {
    pub(super) fn new(max_regions: usize) -> Self {
        Self {
            memory: Memory::default(),
            max_regions,
            rings: [Ring::new(Purpose::Received), Ring::new(Purpose::Sent)],
            features: 0,
            protocol: 0,
            terms: Terms::default(),
            sent: Transmit::new(),
            received: Receive::default(),
            pool: Pool::default(),
            counters: PortCounters::default(),
        }
    }

    pub(super) fn transmit(&mut self) -> (&mut Transmit, transmit::Scene<'_>) {
        let Self { memory, rings: [_, ring], sent, pool, counters, .. } = self;
        (sent, transmit::Scene { memory, ring, pool, counters })
    }

    pub(super) fn receive(&mut self) -> (&mut Receive, receive::Scene<'_>) {
        let Self { memory, rings: [ring, _], received, pool, counters, terms, .. } = self;
        (received, receive::Scene { memory, ring, pool, counters, terms: *terms })
    }

    /// Executes a request. Returns its answer, if that is more than success.
    ///
    /// # Errors
    /// The fault of the front end's request.
    pub(super) fn handle(
        &mut self,
        message: Message,
        readiness: &Readiness,
    ) -> Result<Option<Vec<u8>>, FrontEndFault> {
        let request = FrontendReq::try_from(message.request);
        let body = Body(&message.body);
        let mut files = message.files.into_iter();
        let number = |value: u64| Ok(Some(value.to_ne_bytes().to_vec()));
        match request {
            Ok(FrontendReq::GET_FEATURES) => return number(offered()),
            Ok(FrontendReq::GET_PROTOCOL_FEATURES) => return number(offered_protocol()),
            Ok(FrontendReq::GET_QUEUE_NUM) => return number(1),
            Ok(FrontendReq::GET_MAX_MEM_SLOTS) => return number(self.max_regions as u64),
            Ok(FrontendReq::GET_VRING_BASE) => {
                let (queue, _) = body.queue()?;
                self.stop(queue);
                let base = [body.u32(0)?, u32::from(self.rings[queue].base())];
                return Ok(Some(base.map(u32::to_ne_bytes).concat()));
            }
            Ok(FrontendReq::SET_FEATURES) => self.set_features(body.u64(0)?)?,
            Ok(FrontendReq::SET_PROTOCOL_FEATURES) => {
                self.protocol = body.u64(0)? & offered_protocol();
            }
            Ok(FrontendReq::RESET_OWNER | FrontendReq::RESET_DEVICE) => self.reset(readiness),
            Ok(FrontendReq::SET_MEM_TABLE) => {
                self.memory = Memory::map(table(&body, files)?, self.max_regions)?;
            }
            Ok(FrontendReq::ADD_MEM_REG) => {
                let file = files.next().ok_or(MemoryFault::NoDescriptor)?;
                self.memory.add(&body.region(8)?, File::from(file), self.max_regions)?;
            }
            Ok(FrontendReq::REM_MEM_REG) => self.memory.remove(&body.region(8)?)?,
            Ok(FrontendReq::SET_VRING_NUM) => {
                let (queue, size) = body.queue()?;
                self.stopped(queue)?.set_size(size)?;
            }
            Ok(FrontendReq::SET_VRING_BASE) => {
                let (queue, base) = body.queue()?;
                let base = u16::try_from(base).map_err(|_| FrontEndFault::Base(base))?;
                self.stopped(queue)?.set_base(base);
            }
            Ok(FrontendReq::SET_VRING_ADDR) => {
                let (queue, _) = body.queue()?;
                let (table, used, offered) = (body.u64(8)?, body.u64(16)?, body.u64(24)?);
                self.rings[queue].set_places(table, offered, used);
            }
            Ok(FrontendReq::SET_VRING_ENABLE) => {
                let (queue, enable) = body.queue()?;
                if enable == 0 {
                    self.return_buffers(queue);
                }
                self.rings[queue].enabled = enable != 0;
            }
            Ok(FrontendReq::SET_VRING_KICK) => {
                let (queue, file) = event(&body, files.next())?;
                let file = file.ok_or(FrontEndFault::NoKicks)?;
                self.set_kick(queue, file, readiness)?;
            }
            Ok(FrontendReq::SET_VRING_CALL) => {
                let (queue, file) = event(&body, files.next())?;
                self.rings[queue].call = file;
                // Interrupts that the old descriptor no longer carried would be lost.
                self.rings[queue].interrupt();
            }
            Ok(FrontendReq::SET_VRING_ERR) => {
                let (queue, file) = event(&body, files.next())?;
                self.rings[queue].error = file;
            }
            Ok(FrontendReq::SET_OWNER | FrontendReq::NET_SET_MTU | FrontendReq::SEND_RARP) => {}
            Ok(other) => return Err(FrontEndFault::NotOffered(format!("{other:?}"))),
            Err(_) => return Err(FrontEndFault::UnknownRequest(message.request)),
        }
        self.update();
        Ok(None)
    }

    /// Returns the number of memory regions that the front end shares, and their maximum.
    pub(super) fn regions(&self) -> (usize, usize) {
        (self.memory.regions(), self.max_regions)
    }

    /// Returns `true` if every request may be answered.
    pub(super) fn answers_all(&self) -> bool {
        self.protocol & Protocol::REPLY_ACK.bits() != 0
    }

    pub(super) fn is_up(&self) -> bool {
        self.rings.iter().all(Ring::is_running)
    }

    /// Updates which queues can run, after a request may have changed it.
    fn update(&mut self) {
        let event_idx = self.has(VIRTIO_RING_F_EVENT_IDX);
        for queue in [RECEIVES, SENDS] {
            let was_running = self.rings[queue].is_running();
            self.rings[queue].update(&self.memory, event_idx);
            if was_running && !self.rings[queue].is_running() {
                // Its memory is gone: held buffers are dropped, with copies where possible.
                self.return_all(queue);
            }
        }
    }

    fn has(&self, bit: u32) -> bool {
        self.features & 1 << bit != 0
    }

    fn set_features(&mut self, features: u64) -> Result<(), FrontEndFault> {
        if features & !offered() != 0 {
            return Err(FrontEndFault::Features(features));
        }
        self.features = features;
        self.terms = Terms {
            ability: Ability {
                checksum: self.has(VIRTIO_NET_F_GUEST_CSUM),
                tcp_v4: self.has(VIRTIO_NET_F_GUEST_TSO4),
                tcp_v6: self.has(VIRTIO_NET_F_GUEST_TSO6),
                ecn: self.has(VIRTIO_NET_F_GUEST_ECN),
                udp_v4: self.has(VIRTIO_NET_F_GUEST_USO4),
                udp_v6: self.has(VIRTIO_NET_F_GUEST_USO6),
            },
            mergeable: self.has(VIRTIO_NET_F_MRG_RXBUF),
        };
        // If a front end does not negotiate protocol features, its rings are enabled from the
        // start.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            self.rings.iter_mut().for_each(|ring| ring.enabled = true);
        }
        Ok(())
    }

    /// Returns a stopped ring, whose size or index may be set.
    fn stopped(&mut self, queue: usize) -> Result<&mut Ring, FrontEndFault> {
        let ring = &mut self.rings[queue];
        if ring.is_running() { Err(FrontEndFault::Running) } else { Ok(ring) }
    }

    fn set_kick(
        &mut self,
        queue: usize,
        file: OwnedFd,
        readiness: &Readiness,
    ) -> Result<(), FrontEndFault> {
        let ring = &mut self.rings[queue];
        if let Some(old) = ring.kick.take() {
            readiness.remove(old);
        }
        // An eventfd need not be read: each kick is an edge.
        readiness.add(&file, queue as u64, Watch::Edge).map_err(FrontEndFault::Kicks)?;
        ring.kick = Some(file);
        ring.started = true;
        Ok(())
    }

    /// Returns all buffers of a queue to the guest.
    pub(super) fn return_buffers(&mut self, queue: usize) {
        if !self.rings[queue].is_running() {
            return;
        }
        self.return_all(queue);
        if self.rings[queue].publish(&self.memory) {
            self.rings[queue].interrupt();
        }
    }

    fn return_all(&mut self, queue: usize) {
        if queue == SENDS {
            let (sent, mut scene) = self.transmit();
            sent.return_buffers(&mut scene);
        } else {
            let (received, mut scene) = self.receive();
            received.return_buffers(&mut scene);
        }
    }

    /// Publishes the returned buffers to the guest, and interrupts it if it requests that.
    pub(super) fn publish(&mut self) {
        for ring in &mut self.rings {
            if ring.is_running() && ring.publish(&self.memory) && ring.interrupt() {
                self.counters.notifications += 1;
            }
        }
    }

    pub(super) fn stop(&mut self, queue: usize) {
        self.return_buffers(queue);
        self.rings[queue].stop();
    }

    /// Resets the guest's state.
    pub(super) fn reset(&mut self, readiness: &Readiness) {
        for (queue, purpose) in [(RECEIVES, Purpose::Received), (SENDS, Purpose::Sent)] {
            self.stop(queue);
            if let Some(kick) = self.rings[queue].kick.take() {
                // The front end still has it open, so closing it here would not end the watch.
                readiness.remove(kick);
            }
            self.rings[queue] = Ring::new(purpose);
        }
        self.sent.forget_custody();
        self.features = 0;
    }

    /// The state without a guest, after a [`reset`](Self::reset).
    pub(super) fn forget_front_end(&mut self) {
        self.memory = Memory::default();
        self.protocol = 0;
    }
}

/// Returns the regions of a memory table and their files.
fn table(
    body: &Body<'_>,
    files: impl Iterator<Item = OwnedFd>,
) -> Result<Vec<(VhostUserMemoryRegion, File)>, FrontEndFault> {
    let count = body.u32(0)? as usize;
    let files: Vec<OwnedFd> = files.collect();
    if count != files.len() {
        let descriptors = files.len();
        return Err(MemoryFault::Descriptors { regions: count, descriptors }.into());
    }
    let region = |(at, file)| Ok((body.region(8 + 32 * at)?, File::from(file)));
    files.into_iter().enumerate().map(region).collect()
}

/// Returns the queue and the eventfd of a request that carries one.
fn event(
    body: &Body<'_>,
    file: Option<OwnedFd>,
) -> Result<(usize, Option<OwnedFd>), FrontEndFault> {
    let value = body.u64(0)?;
    let queue = queue(value & (NO_FILE - 1))?;
    if value & NO_FILE != 0 {
        return Ok((queue, None));
    }
    let file = file.ok_or(FrontEndFault::NoDescriptor)?;
    // A write to anything else could block, and a read from it could have any effect.
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if !link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]") {
        return Err(FrontEndFault::NoEventfd);
    }
    let nonblocking =
        fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    nonblocking.map_err(FrontEndFault::Eventfd)?;
    Ok((queue, Some(file)))
}
