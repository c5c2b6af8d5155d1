//! The connection manager of this process, with its sockets, its clock and the thread that waits for all of them. Every
//! call of the program and every step of the thread runs under one lock.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once};
use std::{ptr, thread};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::time::{ClockId, clock_gettime};
use weft_units::Instant;

use crate::errno::{Errno, Outcome};
use crate::ibverbs::{Device, open_devices};
use crate::id::Id;
use crate::manager::{AddressPair, Manager};
use crate::message::CommunicationId;

mod delivery;
mod ends;
mod socket;

use ends::{CHECK_INTERVAL, End};
pub(crate) use socket::{Bound, Sockets, source_for};

/// Maximum number of datagrams taken from one socket before the others are served.
const RECEIVE_BUDGET: usize = 64;
/// Size of the receive buffer, bytes; every message is shorter.
const DATAGRAM: usize = 512;
/// The descriptor key of [`Service::kick`].
const KICK: u64 = u64::MAX;

/// The service of this process. It is null before its first use, and again in a child of `fork`, which has none of its
/// parent's threads.
static CURRENT: AtomicPtr<Service> = AtomicPtr::new(ptr::null_mut());
static STARTING: Mutex<()> = Mutex::new(());
static REGISTER: Once = Once::new();

/// A connection's identifier. It leaves the table before it is destroyed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle(pub(crate) *const Id);

// SAFETY: any thread may use an identifier while it is in the table.
unsafe impl Send for Handle {}

#[derive(Debug)]
struct Service {
    state: Mutex<State>,
    /// Wakes the thread.
    kick: OwnedFd,
}

/// The state of the process.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Instant,
    pub(crate) manager: Manager,
    pub(crate) sockets: Sockets,
    pub(crate) devices: Vec<Device>,
    pub(crate) ids: BTreeMap<CommunicationId, Handle>,
    /// The ends of connections to announce later.
    ends: Vec<End>,
    /// The time at which the thread wakes by itself.
    wakes_at: Option<Instant>,
}

/// Runs `act` on the state of this process, which the first call opens.
///
/// # Errors
/// Those of `act`; there is no device; the kernel has no more descriptors or threads.
pub(crate) fn with<T>(act: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    let service = current()?;
    let mut state = service.state.lock().map_err(|_| Errno(libc::EIO))?;
    state.now = now();
    let outcome = act(&mut state);
    state.flush();
    let due = state.next_due();
    if due.is_some_and(|due| state.wakes_at.is_none_or(|at| due < at)) {
        state.wakes_at = due;
        // A full counter wakes the thread too.
        let _ = rustix::io::write(&service.kick, &1_u64.to_ne_bytes());
    }
    outcome
}

fn current() -> Outcome<&'static Service> {
    // SAFETY: the pointer is null or a service that is never freed.
    if let Some(service) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        return Ok(service);
    }
    let _one_at_a_time = STARTING.lock().map_err(|_| Errno(libc::EIO))?;
    // SAFETY: as above.
    if let Some(service) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        return Ok(service);
    }
    let service: &'static Service = Box::leak(Box::new(Service::open()?));
    thread::Builder::new().name("weft-rdmacm".into()).spawn(move || service.serve())?;
    CURRENT.store(ptr::from_ref(service).cast_mut(), Ordering::Release);
    REGISTER.call_once(|| {
        // SAFETY: these are functions of this library, which is never unloaded; the child's only stores a pointer.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(at_exit);
        }
    });
    Ok(service)
}

unsafe extern "C" fn in_child() {
    CURRENT.store(ptr::null_mut(), Ordering::Release);
}

/// Runs after the program has returned from `main` or called `exit`: a kernel would notify the other ends too.
extern "C" fn at_exit() {
    // SAFETY: the pointer is null or a service that is never freed.
    let Some(service) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else { return };
    // A thread of the program may have been ended in the middle of a call, so this does not wait for the lock.
    let Ok(mut state) = service.state.try_lock() else { return };
    let now = now();
    state.manager.forget_all(now);
    state.transmit();
}

/// Returns the time since boot, nanoseconds.
fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let positive = "the clock counts up from zero";
    let seconds = u64::try_from(time.tv_sec).expect(positive);
    Instant::from_nanos(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect(positive))
}

fn random_key() -> Outcome<[u8; 16]> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(io::Error::from)?;
    Ok(key)
}

impl Service {
    fn open() -> Outcome<Self> {
        let sockets = Sockets::open()?;
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(KICK);
        epoll::add(&sockets.arrivals, &kick, data, epoll::EventFlags::IN)?;
        let state = State {
            now: now(),
            manager: Manager::new(random_key()?),
            sockets,
            devices: open_devices()?,
            ids: BTreeMap::new(),
            ends: Vec::new(),
            wakes_at: None,
        };
        Ok(Self { state: Mutex::new(state), kick })
    }

    /// Runs the thread.
    fn serve(&self) {
        // Signals go to the program's own threads.
        // SAFETY: the set is filled before it is used.
        unsafe {
            let mut all = core::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
        }
        let Ok(arrivals) = self.state.lock().map(|state| state.sockets.arrivals.try_clone()) else {
            return;
        };
        let Ok(arrivals) = arrivals else { return };
        let mut ready = Vec::with_capacity(64);
        loop {
            let Ok(mut state) = self.state.lock() else { return };
            state.wakes_at = state.next_due();
            let timeout = state.wakes_at.map(|at| timeout(at.since(now()).as_nanos()));
            drop(state);
            ready.clear();
            let waited = epoll::wait(
                &arrivals,
                rustix::buffer::spare_capacity(&mut ready),
                timeout.as_ref(),
            );
            if waited.is_err_and(|error| error != rustix::io::Errno::INTR) {
                return;
            }
            let Ok(mut state) = self.state.lock() else { return };
            state.now = now();
            for event in &ready {
                match event.data.u64() {
                    KICK => _ = rustix::io::read(&self.kick, &mut [0; 8]),
                    descriptor => state.receive(descriptor),
                }
            }
            let at = state.now;
            state.manager.handle_timeout(at);
            state.flush();
        }
    }
}

fn timeout(nanos: u64) -> Timespec {
    // The wait is at most one second, so both numbers fit and a clock that jumps does no harm.
    let nanos = nanos.min(1_000_000_000);
    Timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed(),
    }
}

impl State {
    /// Returns the device that has an address, and the address's row in its GID table.
    pub(crate) fn device_with(&self, ip: IpAddr) -> Option<(&Device, u8)> {
        self.devices.iter().find_map(|device| {
            let row = device.addresses.iter().position(|address| *address == ip)?;
            Some((device, u8::try_from(row).ok()?))
        })
    }

    /// Returns the time of the next timeout.
    fn next_due(&self) -> Option<Instant> {
        let check = (!self.ends.is_empty()).then(|| self.now + CHECK_INTERVAL);
        self.manager.poll_timeout().into_iter().chain(check).min()
    }

    /// Receives the datagrams of a socket.
    fn receive(&mut self, descriptor: u64) {
        let Some(local) = self.sockets.address(descriptor) else { return };
        let mut bytes = [0; DATAGRAM];
        for _ in 0..RECEIVE_BUDGET {
            match self.sockets.receive(local, &mut bytes) {
                Ok((len, from)) => {
                    let addresses = AddressPair { local, remote: from };
                    self.manager.handle_datagram(self.now, addresses, &bytes[..len]);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.refused(local);
                }
                Err(_) => break,
            }
        }
    }

    fn refused(&mut self, local: SocketAddr) {
        if let Some(peer) = self.sockets.peer(local) {
            self.manager.handle_refused(self.now, local, peer);
        }
    }

    /// Sends the manager's datagrams, delivers its events, and closes unused sockets.
    fn flush(&mut self) {
        self.transmit();
        for (id, event) in self.due_ends() {
            self.deliver(id, event);
        }
        while let Some((id, event)) = self.manager.poll_event() {
            if let Some(event) = self.hold_end(id, event) {
                self.deliver(id, event);
            }
        }
        self.transmit();
        let manager = &self.manager;
        self.sockets.close_unused(|address| manager.uses(address));
    }

    fn transmit(&mut self) {
        while let Some(datagram) = self.manager.poll_transmit() {
            let sent = self.sockets.send(datagram.from, datagram.to, &datagram.bytes);
            // Any other failure counts as a loss; the datagram is retransmitted.
            if sent.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                self.refused(datagram.from);
            }
        }
    }
}
