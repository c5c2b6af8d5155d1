//! A vhost-user port, for QEMU guests and programs on DPDK's virtio-user. The port is the back end: it maps the memory
//! that contains the guest's queues.
//!
//! This module serves the front end's requests itself and not with a library's loop, because that loop waits for whole
//! messages, and because QEMU 7.2 enables queues before it sends the features that it has accepted.

mod body;
mod chain;
mod device;
mod fault;
mod features;
mod file_kind;
mod frames;
mod lending;
mod log;
mod memory;
mod message;
mod packed;
mod receive;
mod requests;
mod ring;
mod socket;
mod split;
mod steering;
mod transmit;
mod virtqueue;
mod withdrawn;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::event::{EventfdFlags, eventfd};
use vhost::vhost_user::message::FrontendReq;
use weft_units::Instant;

pub use self::chain::{
    ChainError, Descriptors, PackedChain, Position, Purpose, Segment, walk, walk_packed,
};
use self::device::{Device, SENDS};
pub use self::fault::{FrontEndFault, MemoryFault};
use self::message::Channel;
use self::socket::Rendezvous;
pub use self::transmit::Custody;
pub use self::virtqueue::RingError;
use crate::readiness::{Readiness, Watch};
use crate::{Limits, Port, PortError};

/// Keys of the watched descriptors; the key of a kick is its queue's number.
const LISTENER: u64 = 256;
const CHANNEL: u64 = 257;
const WAKE: u64 = 258;

/// Maximum number of requests served in one call, so that other ports are not delayed.
const MAX_REQUESTS_PER_CALL: usize = 32;

/// The number of the request that shares a log of written pages.
const SET_LOG_BASE: u32 = FrontendReq::SET_LOG_BASE as u32;

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
    /// The guest's Ethernet address, if the port is to announce it when the guest starts here, and when its front end
    /// requests that after a live migration.
    pub mac: Option<[u8; 6]>,
    /// Maximum number of pairs of queues that the guest may use, [`MAX_PAIRS`](Self::MAX_PAIRS) at most.
    pub max_pairs: usize,
}

impl VhostConfig {
    /// The maximum of [`max_pairs`](Self::max_pairs), and its default.
    pub const MAX_PAIRS: u8 = 16;

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
            mac: None,
            max_pairs: Self::MAX_PAIRS.into(),
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
    mac: Option<[u8; 6]>,
    /// The time of the last announcement.
    announced: Option<Instant>,
    window: usize,
    limits: Limits,
    /// The pair of queues that is served next, and the number of frames taken from it in a row.
    next: usize,
    burst: usize,
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
            device: Device::new(
                config.max_regions,
                config.max_pairs.clamp(1, VhostConfig::MAX_PAIRS.into()),
            ),
            wakes,
            mac: config.mac,
            announced: None,
            window: config.window,
            limits,
            next: 0,
            burst: 0,
            trimmed: Instant::EPOCH,
            fault: None,
        })
    }

    /// Returns the place in which frames of the first pair of queues are kept until they are acknowledged.
    pub fn custody(&self) -> Custody {
        self.device.pairs[0].sent.custody()
    }

    /// Returns the number of frames that guests sent from and received in each pair of queues that one has used.
    pub fn frames_by_pair(&self) -> Vec<(u64, u64)> {
        self.device.frames.clone()
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
            let handled = self.device.handle(message, &self.readiness);
            let wants_verdict = need_reply && self.device.answers_all();
            let (answer, refusal) = match handled {
                Ok(answer) => (answer, None),
                // The front end waits for an answer, and QEMU takes any one for success: it would copy a machine without
                // the pages that are not logged.
                Err(fault) if request == SET_LOG_BASE && !wants_verdict => {
                    return Err(self.disconnect(fault));
                }
                Err(fault) => (None, Some(self.front_end(fault))),
            };
            // If REPLY_ACK was negotiated, a request without its own reply is answered with its success.
            let verdict = u64::from(refusal.is_some()).to_ne_bytes().to_vec();
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
        // It names a queue that is not there any more.
        self.fault = None;
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
        self.device.ring(queue).notify_error();
        let queue = if queue % 2 == SENDS { "sending" } else { "receiving" };
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
}

impl Drop for VhostPort {
    fn drop(&mut self) {
        self.return_buffers();
    }
}
