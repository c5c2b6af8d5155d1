//! The embedded engine: one device a process, over this process's own sockets. Whoever calls a verb does
//! the work at hand, and a thread that sleeps in between does what nobody calls for: a program that never
//! polls answers READs all the same.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, epoll, eventfd};
use weft_agent::AgentConfig;
use weft_rnic::{Device, Limits};
use weft_transport::{EndpointConfig, Secret, TransportConfig};
use weft_units::{Duration, Instant, Seed};

use crate::device::{DEVICE, limits};
use crate::errno::{Errno, Outcome};

mod commands;
pub(crate) mod events;
mod exit;
mod fork;
mod host;
mod links;
mod memory;
mod pace;
mod progress;

pub(crate) use commands::{Region, address_of};
pub(crate) use host::{Asynchronous, Channel, Host, Object, Watcher};
use links::{Links, port_of};
pub(crate) use memory::OWNER;
use pace::Pace;

/// Paths of a connection, unless `WEFT_PATHS` says otherwise (STELLAR, section 7.2).
const PATHS: u16 = 128;

/// Bytes before the payload of the longest packet that has any: IPv6, UDP, data, message, RDMA.
const HEADERS: u32 = 40 + 8 + 20 + 12 + 24;

/// The engine of this process; null before the first device is opened, and again in a child of `fork`.
static CURRENT: AtomicPtr<Engine> = AtomicPtr::new(ptr::null_mut());

/// One device and its sockets.
#[derive(Debug)]
pub(crate) struct Engine {
    host: Mutex<Host>,
    /// Wakes the thread.
    kick: OwnedFd,
    /// Readable when a packet has arrived.
    arrivals: OwnedFd,
    pace: Pace,
    /// Threads of the program that want the lock.
    wanted: AtomicU32,
    /// Of which process, counted by forks.
    generation: u32,
}

impl Engine {
    /// The engine of this process; opens it if there is none.
    ///
    /// # Errors
    /// The kernel has no more sockets or threads, or no port is free.
    pub(crate) fn current() -> Outcome<&'static Self> {
        // SAFETY: null, or an engine that is never freed.
        if let Some(engine) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
            return Ok(engine);
        }
        let new = Arc::into_raw(Arc::new(Self::open()?)).cast_mut();
        let null = ptr::null_mut();
        match CURRENT.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // SAFETY: it was published just now and is never freed.
                let engine = unsafe { &*new };
                fork::watch(engine);
                exit::watch();
                progress::start(engine)?;
                Ok(engine)
            }
            Err(other) => {
                // SAFETY: `new` is ours: another thread was faster.
                drop(unsafe { Arc::from_raw(new.cast_const()) });
                // SAFETY: not null, and never freed.
                Ok(unsafe { &*other })
            }
        }
    }

    fn open() -> Outcome<Self> {
        let addresses: Vec<IpAddr> = DEVICE.addresses.iter().map(|address| address.ip).collect();
        let transport = transport();
        let links = Links::open(&addresses, transport.paths).map_err(Errno::from_socket)?;
        let endpoint = EndpointConfig {
            transport,
            receive_port: port_of(u32::from(links.share()) << 16),
            thread_id: 0,
            accept: true,
            max_connections: 1 << 17,
        };
        let seed = Seed(u64::from_le_bytes(random()?));
        let device = Device::new(device_limits(), endpoint, seed, Secret::new(random()?));
        let device = device.map_err(|_| Errno(libc::EINVAL))?.sharing_host(links.share());
        let arrivals = arrivals(&links).map_err(Errno::from)?;
        Ok(Self {
            host: Mutex::new(Host::new(device, links)),
            arrivals,
            kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(Errno::from)?,
            pace: Pace::default(),
            wanted: AtomicU32::new(0),
            generation: fork::generation(),
        })
    }

    /// The device, for a thread of the program.
    ///
    /// # Errors
    /// `EIO`: the process has forked and this is its parent's engine, or the engine broke.
    pub(crate) fn host(&self) -> Outcome<MutexGuard<'_, Host>> {
        if self.generation != fork::generation() {
            return Err(Errno(libc::EIO));
        }
        if let Ok(host) = self.host.try_lock() {
            return Ok(host);
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let host = self.host.lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        host.map_err(|_| Errno(libc::EIO))
    }

    /// Wakes the thread if it would sleep past what is due.
    fn rouse(&self, host: &Host) {
        if self.pace.oversleeps(host.next_due()) {
            self.wake();
        }
    }

    fn wake(&self) {
        // A count that is full wakes it too.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }
}

/// One descriptor for all sockets that packets arrive on.
fn arrivals(links: &Links) -> rustix::io::Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in links.readable() {
        epoll::add(&set, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(set)
}

/// What programs are told of the device holds in the device.
fn device_limits() -> Limits {
    let count = |limit: i32| u32::try_from(limit).expect("limits are positive");
    Limits {
        protection_domains: count(limits::PD),
        keys: count(limits::MR) + count(limits::MW),
        completion_queues: count(limits::CQ),
        completions: count(limits::CQE),
        shared_receive_queues: count(limits::SRQ),
        queue_pairs: count(limits::QP),
        work_requests: count(limits::QP_WR),
        scatter_gather: count(limits::SGE),
        inline_bytes: limits::INLINE,
        reads: u8::try_from(limits::RD_ATOM).expect("limits are positive and small"),
        message_bytes: limits::MESSAGE,
        ..Limits::default()
    }
}

fn transport() -> TransportConfig {
    let paths = std::env::var("WEFT_PATHS").ok().and_then(|paths| paths.parse().ok());
    let paths = paths.filter(|paths| (1..=4096).contains(paths)).unwrap_or(PATHS);
    let mtu = DEVICE.mtu().saturating_sub(HEADERS).max(512);
    TransportConfig {
        mtu: u16::try_from(mtu).expect("at most that of Ethernet"),
        // A request is done when it is acknowledged, and a program may wait for that.
        ack_delay: Duration::ZERO,
        ..AgentConfig::ethernet(paths)
    }
}

/// Random bytes from the operating system.
fn random<const N: usize>() -> Outcome<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags).map_err(Errno::from)?;
    }
    Ok(bytes)
}

/// No deadline is later.
const NEVER: Instant = Instant::FAR_FUTURE;
