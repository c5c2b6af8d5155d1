//! A vhost-user port, for QEMU guests and programs on DPDK's virtio-user. The port is the back end: it maps the memory
//! that contains the guest's queues.
//!
//! This module serves the front end's requests itself and not with a library's loop, because that loop waits for whole
//! messages, and because QEMU 7.2 enables queues before it sends the features that it has accepted.

mod chain;
mod device;
mod fault;
mod lending;
mod memory;
mod message;
mod receive;
mod ring;
mod socket;
mod transmit;
mod withdrawn;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{EventfdFlags, eventfd};
use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Slot, Staging, Token, Turn};

pub use self::chain::{ChainError, Descriptors, Purpose, Segment, walk};
use self::device::{Device, RECEIVES, SENDS};
pub use self::fault::{FrontEndFault, MemoryFault};
use self::message::Channel;
pub use self::ring::RingError;
use self::socket::Rendezvous;
pub use self::transmit::Custody;
use crate::readiness::{Readiness, Watch};
use crate::{Holdings, Limits, Port, PortCounters, PortError, Sent};

/// Keys of the watched descriptors; the key of a kick is its queue's number.
const LISTENER: u64 = 2;
const CHANNEL: u64 = 3;
const WAKE: u64 = 4;

/// Maximum number of requests served in one call, so that other ports are not delayed.
const MAX_REQUESTS_PER_CALL: usize = 32;

/// The interval at which unused buffers are freed.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// The side that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Front ends connect to the port, one at a time.
    Listen,
    /// The port connects to the front end's socket, and retries until it succeeds.
    Connect,
}

/// The configuration of a vhost-user port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// The side that connects.
    pub role: Role,
    /// Maximum number of the guest's frames held at a time: at most 512 of a ring of 4,096 (BIFROST, 7.4), so
    /// that the guest can continue to send while they wait for acknowledgements.
    pub window: usize,
    /// Bounds of the memory held in this process, in each direction.
    pub limits: Limits,
    /// Maximum number of memory regions that the front end may share: QEMU has one for each piece of a guest's memory,
    /// DPDK one for each file of huge pages, without its option `--single-file-segments`.
    pub max_regions: usize,
}

impl VhostConfig {
    /// The default of [`max_regions`](Self::max_regions).
    pub const MAX_REGIONS: u16 = 32;

    /// Returns the configuration of a port to which front ends connect.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            role: Role::Listen,
            window: 512,
            limits: Limits::default(),
            max_regions: Self::MAX_REGIONS.into(),
        }
    }
}

/// A tenant's vhost-user interface.
#[derive(Debug)]
pub struct VhostPort {
    name: String,
    rendezvous: Rendezvous,
    readiness: Readiness,
    channel: Option<Channel>,
    device: Device,
    /// The eventfd written when there are frames to take without a kick.
    wakes: OwnedFd,
    window: usize,
    limits: Limits,
    trimmed: Instant,
    /// The error of a queue found in a call that cannot return errors; the next flush reports it.
    fault: Option<(usize, RingError)>,
}

impl VhostPort {
    /// Opens the socket.
    ///
    /// # Errors
    /// `Io` if the socket cannot be created, or another program serves it.
    pub fn open(config: &VhostConfig) -> Result<Self, PortError> {
        let name = config.socket.display().to_string();
        let rendezvous = Rendezvous::new(&config.socket, config.role)?;
        let readiness = Readiness::new()?;
        let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| PortError::io("create an eventfd")(errno.into()))?;
        let watched = readiness.add(&wakes, WAKE, Watch::Edge).and_then(|()| {
            let listener = rendezvous.listener();
            listener.map_or(Ok(()), |listener| readiness.add(listener, LISTENER, Watch::Level))
        });
        watched.map_err(PortError::io(format!("watch {name}")))?;
        let limits = config.limits;
        Ok(Self {
            name,
            rendezvous,
            readiness,
            channel: None,
            device: Device::new(config.max_regions),
            wakes,
            window: config.window,
            limits,
            trimmed: Instant::EPOCH,
            fault: None,
        })
    }

    /// Returns the place in which frames are kept until they are acknowledged.
    pub fn custody(&self) -> Custody {
        self.device.sent.custody()
    }

    /// Returns the bounds of held frames that the guest sent.
    fn window(&self) -> Limits {
        Limits { frames: self.window, bytes: self.limits.bytes }
    }

    /// Connects a front end that waits, if none is connected.
    fn connect_front_end(&mut self) -> Result<(), PortError> {
        if self.channel.is_some() {
            return Ok(());
        }
        let failed = || PortError::io(format!("meet the front end at {}", self.name));
        let Some(stream) = self.rendezvous.accept_or_connect().map_err(failed())? else {
            return Ok(());
        };
        let channel = Channel::new(stream).map_err(failed())?;
        self.readiness.add(&channel, CHANNEL, Watch::Level).map_err(failed())?;
        self.channel = Some(channel);
        self.watch_listener(Watch::Paused)
    }

    /// Sets whether the listener is watched: other front ends wait until the connected one is gone.
    fn watch_listener(&self, watch: Watch) -> Result<(), PortError> {
        let Some(listener) = self.rendezvous.listener() else { return Ok(()) };
        let changed = self.readiness.change(listener, LISTENER, watch);
        changed.map_err(PortError::io(format!("watch {}", self.name)))
    }

    fn serve(&mut self) -> Result<(), PortError> {
        for _ in 0..MAX_REQUESTS_PER_CALL {
            let Some(channel) = &mut self.channel else { return Ok(()) };
            let message = match channel.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.disconnect(FrontEndFault::Gone(error))),
            };
            let (request, need_reply) = (message.request, message.need_reply);
            let (answer, refusal) = match self.device.handle(message, &self.readiness) {
                Ok(answer) => (answer, None),
                Err(fault) => (None, Some(self.front_end(fault))),
            };
            // If REPLY_ACK was negotiated, a request without its own reply is answered with its success.
            let verdict = u64::from(refusal.is_some()).to_ne_bytes().to_vec();
            let wants_verdict = need_reply && self.device.answers_all();
            let body = answer.or_else(|| wants_verdict.then_some(verdict));
            if let Some(body) = body {
                let replied = self.channel.as_ref().map(|channel| channel.reply(request, &body));
                if let Some(Err(error)) = replied {
                    return Err(self.disconnect(FrontEndFault::Answers(error)));
                }
            }
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn front_end(&self, what: FrontEndFault) -> PortError {
        PortError::FrontEnd { port: self.name.clone(), what }
    }

    /// Disconnects the front end. Frames that it sent stay readable, and frames for it wait for the next one.
    fn disconnect(&mut self, why: FrontEndFault) -> PortError {
        if let Some(channel) = self.channel.take() {
            self.readiness.remove(&channel);
        }
        self.device.reset(&self.readiness);
        self.device.forget_front_end();
        match self.watch_listener(Watch::Level) {
            Ok(()) => self.front_end(why),
            Err(error) => error,
        }
    }

    /// Stops a queue whose driver violated virtio, and returns its buffers. vhost-user has no device status for
    /// this, so the queue's error descriptor notifies the front end.
    fn stop_broken(&mut self, queue: usize, source: RingError) -> PortError {
        self.device.counters.bad_chain += 1;
        self.device.stop(queue);
        self.device.rings[queue].notify_error();
        let queue = if queue == SENDS { "sending" } else { "receiving" };
        PortError::Ring { port: self.name.clone(), queue, source }
    }

    /// Makes the port's descriptor readable, for work without a kick.
    fn wake(&self) {
        let _ = rustix::io::write(&self.wakes, &1_u64.to_ne_bytes());
    }

    fn check_memory(&mut self) -> Result<(), PortError> {
        if self.device.memory.is_withdrawn() {
            return Err(self.disconnect(MemoryFault::Withdrawn.into()));
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), PortError> {
        if !self.device.rings[RECEIVES].is_running() {
            return Ok(());
        }
        let (received, mut scene) = self.device.receive();
        received.deliver(&mut scene).map_err(|error| self.stop_broken(RECEIVES, error))
    }
}

impl Port for VhostPort {
    fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    fn service(&mut self, now: Instant) -> Result<(), PortError> {
        if now.since(self.trimmed) >= TRIM_INTERVAL {
            self.trimmed = now;
            self.device.pool.trim();
        }
        // Kicks and wakes are edge-triggered: it is enough to read them, and the queues are processed next.
        let is_ready = self.readiness.poll(&[LISTENER, CHANNEL]);
        self.check_memory()?;
        if is_ready || self.channel.is_none() {
            self.connect_front_end()?;
            self.serve()?;
        }
        // A kick may have announced buffers for which frames wait.
        self.flush()
    }

    fn is_up(&self) -> bool {
        self.device.is_up()
    }

    fn take(&mut self, now: Instant) -> Result<Option<Sent>, PortError> {
        self.check_memory()?;
        if !self.device.rings[SENDS].is_running() {
            return Ok(None);
        }
        let window = self.window();
        let (sent, mut scene) = self.device.transmit();
        if !sent.has_room(window) {
            sent.full = true;
            return Ok(None);
        }
        let taken = sent.take(&mut scene, now);
        if std::mem::take(&mut sent.paused) {
            self.wake();
        }
        taken.map_err(|error| self.stop_broken(SENDS, error))
    }

    fn read(
        &mut self,
        token: Token,
        offset: u32,
        out: &mut [u8],
        reading: Reading,
    ) -> Result<(), PortError> {
        let (sent, mut scene) = self.device.transmit();
        sent.read(&mut scene, token, offset, out, reading)
    }

    fn release(&mut self, token: Token) {
        let window = self.window();
        let (sent, mut scene) = self.device.transmit();
        sent.release(&mut scene, token);
        if sent.full && sent.has_room(window) {
            sent.full = false;
            self.wake();
        }
    }

    fn release_overdue(&mut self, now: Instant, after: Duration) -> usize {
        let (sent, mut scene) = self.device.transmit();
        let count = sent.release_overdue(&mut scene, now, after);
        if count > 0 {
            // The guest waits for these buffers.
            self.device.publish();
        }
        count
    }

    fn claim(&mut self, len: u32, turn: Turn, staging: Staging) -> Option<Slot> {
        let limits = self.limits;
        let claimed = if self.device.is_up() {
            let (received, mut scene) = self.device.receive();
            received.claim(&mut scene, limits, len, turn, staging)
        } else {
            Ok(None)
        };
        let slot = claimed.unwrap_or_else(|error| {
            // The next flush reports the error.
            self.fault = Some((RECEIVES, error));
            None
        });
        self.device.counters.no_buffer += u64::from(slot.is_none());
        slot
    }

    fn place(&mut self, slot: Slot, offset: u32, bytes: &[u8]) -> Result<(), PortError> {
        self.device.received.place(&self.device.memory, slot, offset, bytes)
    }

    fn peek(&mut self, slot: Slot, out: &mut [u8]) -> usize {
        self.device.received.peek(&self.device.memory, slot, out)
    }

    fn complete(&mut self, slot: Slot) {
        self.device.received.complete(slot);
    }

    fn cancel(&mut self, slot: Slot) {
        self.device.received.cancel(&mut self.device.pool, slot);
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.check_memory()?;
        let delivered = match self.fault.take() {
            Some((queue, error)) => Err(self.stop_broken(queue, error)),
            None => self.deliver(),
        };
        self.device.publish();
        delivered
    }

    fn return_buffers(&mut self) {
        let _ = self.deliver();
        for queue in [RECEIVES, SENDS] {
            self.device.return_buffers(queue);
        }
    }

    fn counters(&self) -> PortCounters {
        self.device.counters
    }

    fn holdings(&self) -> Holdings {
        let mut holdings = Holdings { regions: self.device.regions(), ..Holdings::default() };
        self.device.sent.add_to(&mut holdings);
        self.device.received.add_to(&mut holdings);
        holdings
    }
}

impl Drop for VhostPort {
    fn drop(&mut self) {
        self.return_buffers();
    }
}
