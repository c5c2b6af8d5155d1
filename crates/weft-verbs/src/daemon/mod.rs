//! The daemon that has the device: one engine and one set of sockets for all the attached processes of a host. Each
//! turn receives packets, work requests and messages, sends packets, and notifies clients. It never waits for a client:
//! a call that a client can block runs on a thread that can be given up (`engine/blocking/`). A client that breaks the
//! protocol is ended, and only that one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use weft_rnic::{Context, Limits};
use weft_units::Duration;

use crate::attach::{Socket, listen_at};
use crate::device;
use crate::engine::blocking::Stall;
use crate::engine::{Host, Settings, own_limits};
use crate::errno::Errno;
use crate::interfaces::Address;
use active::Active;
use devices::Devices;
use events::EventCounts;
pub use events::{CountedEvent, DaemonEvent, EventKind, OnEvent, Subject};
use kept::Kept;
pub use kept::StateError;
pub use quotas::QuotaSettings;
use quotas::Quotas;
pub use settings::DaemonSettings;
use stalls::Stalls;
use tenant::Tenant;

mod active;
mod administration;
mod control;
mod devices;
mod events;
mod kept;
mod pace;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod quotas;
mod receive;
mod serve;
mod settings;
mod stalls;
mod tenant;
#[cfg(test)]
mod tests;
mod turn;

/// Number of descriptors of one client: its connection, its memory, the shared memory, its signal.
const DESCRIPTORS_EACH: usize = 4;

/// Number of descriptors that are reserved for sockets: each path has one.
const DESCRIPTORS_KEPT: usize = 512;

/// The ID of a client, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientId(u64);

/// A connection to the control socket.
#[derive(Debug)]
struct Client {
    socket: Arc<Socket>,
    /// The user who connected, as the kernel reports.
    user: u32,
    process: u32,
    tenant: Option<Tenant>,
}

impl Client {
    /// Returns the client as an event about a device names it.
    fn subject(&self, device: &str) -> Subject {
        Subject { device: device.into(), process: self.process, user: self.user }
    }

    /// Returns the client as an event about its own device names it.
    fn subject_on_device(&self) -> Subject {
        self.subject(self.tenant.as_ref().map_or("", |tenant| &tenant.device))
    }
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    host: Host,
    addresses: Vec<Address>,
    /// The path of the socket, unless a service manager keeps it.
    own_path: Option<PathBuf>,
    listener: Socket,
    poller: OwnedFd,
    /// Readable when a packet has arrived.
    arrivals: OwnedFd,
    stop: Arc<OwnedFd>,
    devices: Devices,
    quotas: Quotas,
    stalls: Stalls,
    /// The file that keeps the devices, if there is one.
    kept: Option<Arc<Kept>>,
    /// The delay of the last change in it: that change's thread may still wait for the disk.
    disk: Stall,
    clients: BTreeMap<ClientId, Client>,
    active: Active,
    next_client: u64,
    /// The maximum number of clients at a time.
    max_clients: usize,
    /// The client of each context.
    contexts: BTreeMap<Context, ClientId>,
    /// The clients with undelivered completions or events.
    undelivered: BTreeSet<ClientId>,
    /// Counts of what the owner is to learn.
    events: EventCounts,
    /// Called for each event.
    on_event: OnEvent,
    /// A buffer for messages, kept for its memory.
    message: Vec<u8>,
    record: Vec<u8>,
}

/// The reason that a daemon cannot start or goes down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another daemon listens there.
    #[error("a daemon listens at {} already", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The socket could not be made.
    #[error("cannot listen at {}", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The devices could not be read from the file that keeps them.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine could not be opened, or a call of the kernel failed.
    #[error("cannot open the device")]
    Device(#[source] io::Error),
}

/// A handle that stops a daemon, from another thread or a signal handler.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Makes the daemon end its clients and return from [`Daemon::run`].
    pub fn stop(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Returns the limits of the daemon's engine for all its processes: more of each than one process would use.
fn daemon_limits() -> Limits {
    let Limits { contexts, protection_domains, completion_queues, queue_pairs, .. } =
        Limits::default();
    Limits { contexts, protection_domains, completion_queues, queue_pairs, ..own_limits() }
}

fn refused(Errno(number): Errno) -> ServeError {
    ServeError::Device(io::Error::from_raw_os_error(number))
}

fn kernel(errno: rustix::io::Errno) -> ServeError {
    ServeError::Device(errno.into())
}

impl Daemon {
    /// Uses the addresses of this host, and listens at `path` for processes: of every user if the daemon runs as root,
    /// of this user otherwise. The environment's transport settings override `settings`.
    ///
    /// # Errors
    /// A daemon listens there, the socket cannot be made, or the kernel has no sockets.
    pub fn open(path: &Path, settings: DaemonSettings) -> Result<Self, ServeError> {
        Self::open_at(path, settings, device::addresses())
    }

    /// Does the same with a socket that a service manager listens with at `path`, which it keeps when the daemon ends. Its
    /// mode is the manager's.
    ///
    /// # Errors
    /// The kernel has no sockets, or the devices cannot be read.
    pub fn open_on(
        listener: OwnedFd,
        path: &Path,
        settings: DaemonSettings,
    ) -> Result<Self, ServeError> {
        Self::assemble(Some(listener.into()), path, settings, device::addresses())
    }

    fn open_at(
        path: &Path,
        settings: DaemonSettings,
        addresses: Vec<Address>,
    ) -> Result<Self, ServeError> {
        Self::assemble(None, path, settings, addresses)
    }

    /// Opens a daemon at a socket that its owner has, or else at its own.
    fn assemble(
        given: Option<Socket>,
        path: &Path,
        settings: DaemonSettings,
        addresses: Vec<Address>,
    ) -> Result<Self, ServeError> {
        let own = Settings::from_environment().map_err(refused)?;
        let DaemonSettings { transport, encryption, held, quotas, state } = settings;
        let settings = Settings {
            transport: own.transport.or(transport),
            encryption: own.encryption.or(encryption),
            held: own.held.or(held),
            same_host: own.same_host,
            // Each program's own.
            pin_flow_label: None,
        };
        let host = Host::open(&addresses, daemon_limits(), turn::budget(), false, &settings)
            .map_err(refused)?;
        let quotas = Quotas::new(&quotas, host.device.limits(), Some(getuid().as_raw()));
        let own_path = given.is_none().then(|| path.to_owned());
        let listener = given.map_or_else(|| listen(path), Ok)?;
        let kept = state.map(Kept::open).transpose();
        // No daemon listens there any more.
        let kept =
            kept.inspect_err(|_| own_path.iter().for_each(|path| drop(fs::remove_file(path))))?;
        let (kept, devices) =
            kept.map_or_else(Default::default, |(kept, devices)| (Some(Arc::new(kept)), devices));
        let arrivals = host.arrivals().map_err(kernel)?;
        let daemon = Self {
            events: EventCounts::new(host.now()),
            on_event: events::print,
            own_path,
            host,
            addresses,
            listener,
            poller: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(kernel)?,
            arrivals,
            stop: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(kernel)?),
            devices,
            kept,
            disk: Stall::default(),
            quotas,
            stalls: Stalls::default(),
            clients: BTreeMap::new(),
            active: Active::default(),
            next_client: 0,
            max_clients: max_clients(),
            contexts: BTreeMap::new(),
            undelivered: BTreeSet::new(),
            message: Vec::new(),
            record: Vec::new(),
        };
        for (file, key) in [
            (daemon.listener.as_fd(), serve::LISTENER),
            (daemon.arrivals.as_fd(), serve::ARRIVALS),
            (daemon.stop.as_fd(), serve::STOP),
        ] {
            let data = epoll::EventData::new_u64(key);
            epoll::add(&daemon.poller, file, data, epoll::EventFlags::IN).map_err(kernel)?;
        }
        Ok(daemon)
    }

    /// Calls this function for each event of the daemon. Without it counted ones are printed on standard error.
    pub fn on_event(&mut self, function: OnEvent) {
        self.on_event = function;
    }

    /// Reports events.
    fn report(&self, events: &[DaemonEvent]) {
        // Under a fuzzer, clients end by the thousand.
        if !cfg!(fuzzing) {
            events.iter().for_each(self.on_event);
        }
    }

    /// Counts something that a client did or that was done to it.
    fn count_event(&mut self, kind: EventKind, cause: &'static str, id: ClientId, device: &str) {
        if let Some(client) = self.clients.get(&id) {
            let subject = client.subject(device);
            self.events.add(kind, cause, subject);
        }
    }

    /// Returns a handle that stops the daemon.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Adds a client's socket or its signal to the poller.
    fn watch(
        &self,
        file: BorrowedFd<'_>,
        ClientId(id): ClientId,
        signal: bool,
    ) -> rustix::io::Result<()> {
        let key = serve::CLIENTS + 2 * id + u64::from(signal);
        epoll::add(&self.poller, file, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
    }

    /// Sets which events of a client's socket the poller reports; it reports its end in any case.
    fn watch_messages(&self, id: ClientId, flags: epoll::EventFlags) {
        if let Some(client) = self.clients.get(&id) {
            let key = epoll::EventData::new_u64(serve::CLIENTS + 2 * id.0);
            // It is in the poller since it was accepted.
            let _ = epoll::modify(&self.poller, &*client.socket, key, flags);
        }
    }

    /// Ends a client, with everything that it made: its regions, queues and rings. If the daemon ends it, the `reason` is
    /// counted.
    fn end_client(&mut self, id: ClientId, reason: Option<&'static str>) {
        self.remove_client(id, reason);
        self.host.transmit(self.host.now());
    }

    /// Removes a client in the same way, but sends nothing: its peers are notified by the next packets that leave.
    fn remove_client(&mut self, id: ClientId, reason: Option<&'static str>) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.undelivered.remove(&id);
        self.active.remove(id);
        // If a thread that was given up has the socket too, it stays open.
        let _ = epoll::delete(&self.poller, &*client.socket);
        if let Some(tenant) = &client.tenant {
            let _ = epoll::delete(&self.poller, &*tenant.signal);
            if let Some(used) = self.devices.used_mut(&tenant.device) {
                used.clients.remove(&id);
                used.counters.add(&tenant.counters);
                used.counters.processes_ended += u64::from(reason.is_some());
            }
            let subject = client.subject_on_device();
            match reason {
                Some(reason) => self.events.add(EventKind::ProcessEnded, reason, subject),
                None if tenant.used().queue_pairs > 0 => {
                    self.events.add(EventKind::ProcessLost, "queue-pairs", subject);
                }
                None => {}
            }
            let now = self.host.now();
            for &context in tenant.contexts.keys() {
                self.contexts.remove(&context);
                let reclaimed = self.host.close(now, context);
                debug_assert_eq!(reclaimed, Ok(()), "a client's contexts are open");
            }
        }
        // Its memory is released here, when no region uses it any more.
        self.close(client.user, client);
    }
}

/// Raises the process's limit of descriptors and returns the number of clients that fit.
fn max_clients() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    // On failure the limit stays.
    let _ = setrlimit(Resource::Nofile, raised);
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    (descriptors.saturating_sub(DESCRIPTORS_KEPT) / DESCRIPTORS_EACH).max(1)
}

/// Listens at a path, for all users if the daemon is root's.
fn listen(path: &Path) -> Result<Socket, ServeError> {
    let failed = |cause| ServeError::Listen { path: path.into(), cause };
    let is_served = |path: &Path| Socket::connect(path).is_ok();
    let socket =
        listen_at(path, Socket::listen, is_served).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse { path: path.into() },
            _ => failed(cause),
        })?;
    // Root's daemon can reach every process, so it checks the device's owner for each request.
    let mode = if getuid().is_root() { 0o666 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    Ok(socket)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Another daemon's socket stays: that daemon would have had to remove this one's first.
        self.own_path.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// The time for peers to receive the last messages when the daemon ends.
const LINGER: Duration = Duration::from_millis(50);
