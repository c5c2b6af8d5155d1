//! The daemon that has the device: one engine and one set of sockets for all the processes of a host that attach
//! to it. It is one engine: a turn takes in packets, work requests and messages, sends what may leave, and tells
//! who waits. It waits for no client: what a client may keep from returning is done on a thread that is given up
//! (`engine/blocking/`). One that makes no sense is ended, and only that one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use weft_rnic::{Context, Limits};
use weft_units::Duration;

use crate::attach::Socket;
use crate::device::{self, Address};
use crate::engine::{Host, Settings, own_limits};
use crate::errno::Errno;
use devices::Devices;
pub use quotas::QuotaSettings;
use quotas::Quotas;
pub use settings::DaemonSettings;
use stalls::Stalls;
use tenant::Tenant;

mod control;
mod devices;
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

/// Descriptors of one client: its connection, its memory, what is shared with it, its signal.
const DESCRIPTORS_EACH: usize = 4;

/// Descriptors that are kept for sockets: paths have one each.
const DESCRIPTORS_KEPT: usize = 512;

/// Names a client; none has the number of one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientId(u64);

/// A connection to the control socket.
#[derive(Debug)]
struct Client {
    socket: Arc<Socket>,
    /// Who connected, as the kernel says.
    user: u32,
    process: u32,
    tenant: Option<Tenant>,
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    host: Host,
    addresses: Vec<Address>,
    path: PathBuf,
    listener: Socket,
    poller: OwnedFd,
    /// Readable when a packet has arrived.
    arrivals: OwnedFd,
    stop: Arc<OwnedFd>,
    devices: Devices,
    quotas: Quotas,
    stalls: Stalls,
    clients: BTreeMap<ClientId, Client>,
    next_client: u64,
    /// Clients at a time.
    most_clients: usize,
    /// Whose a context is.
    contexts: BTreeMap<Context, ClientId>,
    /// Clients with something to be told.
    news: BTreeSet<ClientId>,
    /// Bytes at hand; kept for their memory.
    message: Vec<u8>,
    record: Vec<u8>,
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another listens there.
    #[error("a daemon listens at {} already", path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// The socket could not be made.
    #[error("cannot listen at {}", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// The engine could not be opened, or the kernel took something away.
    #[error("cannot have the device")]
    Device(#[source] io::Error),
}

/// Stops a daemon, from another thread or a signal's handler.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// The daemon ends what it has and returns from [`Daemon::run`].
    pub fn stop(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// What one engine has for all its processes: more contexts and domains than one process would use.
fn daemon_limits() -> Limits {
    let Limits { contexts, protection_domains, completion_queues, .. } = Limits::default();
    Limits { contexts, protection_domains, completion_queues, ..own_limits() }
}

fn refused(Errno(number): Errno) -> ServeError {
    ServeError::Device(io::Error::from_raw_os_error(number))
}

fn kernel(errno: rustix::io::Errno) -> ServeError {
    ServeError::Device(errno.into())
}

impl Daemon {
    /// Takes the addresses of this host, and listens at `path` for processes: of everybody where the user is
    /// root, of this user otherwise. Connections are as the environment says, and `settings` where it says nothing.
    ///
    /// # Errors
    /// A daemon listens there, nothing can, or the kernel has no sockets.
    pub fn open(path: &Path, settings: DaemonSettings) -> Result<Self, ServeError> {
        Self::open_at(path, settings, device::addresses())
    }

    fn open_at(
        path: &Path,
        settings: DaemonSettings,
        addresses: Vec<Address>,
    ) -> Result<Self, ServeError> {
        let own = Settings::from_environment().map_err(refused)?;
        let DaemonSettings { transport, encryption, held, quotas } = settings;
        let settings = Settings {
            transport: own.transport.or(transport),
            encryption: own.encryption.or(encryption),
            held: own.held.or(held),
            same_host: own.same_host,
        };
        let host = Host::open(&addresses, daemon_limits(), false, &settings).map_err(refused)?;
        let quotas = Quotas::new(&quotas, host.device.limits(), Some(getuid().as_raw()));
        let listener = listen(path)?;
        let arrivals = host.arrivals().map_err(kernel)?;
        let daemon = Self {
            host,
            addresses,
            path: path.into(),
            listener,
            poller: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(kernel)?,
            arrivals,
            stop: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(kernel)?),
            devices: Devices::default(),
            quotas,
            stalls: Stalls::default(),
            clients: BTreeMap::new(),
            next_client: 0,
            most_clients: most_clients(),
            contexts: BTreeMap::new(),
            news: BTreeSet::new(),
            message: Vec::new(),
            record: Vec::new(),
        };
        for (file, about) in [
            (daemon.listener.as_fd(), serve::LISTENER),
            (daemon.arrivals.as_fd(), serve::ARRIVALS),
            (daemon.stop.as_fd(), serve::STOP),
        ] {
            let data = epoll::EventData::new_u64(about);
            epoll::add(&daemon.poller, file, data, epoll::EventFlags::IN).map_err(kernel)?;
        }
        Ok(daemon)
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Hears of a client's socket, or of its signal.
    fn watch(
        &self,
        file: BorrowedFd<'_>,
        ClientId(id): ClientId,
        signal: bool,
    ) -> rustix::io::Result<()> {
        let about = serve::CLIENTS + 2 * id + u64::from(signal);
        epoll::add(&self.poller, file, epoll::EventData::new_u64(about), epoll::EventFlags::IN)
    }

    /// Ends a client, with everything that it made: its regions, queues and rings. Where it is not the client
    /// that ended, whoever runs the daemon is told why.
    fn end_client(&mut self, id: ClientId, why: Option<&str>) {
        self.remove_client(id, why);
        self.host.transmit(self.host.now());
    }

    /// Likewise; peers hear of it with the next packets that leave.
    fn remove_client(&mut self, id: ClientId, why: Option<&str>) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.news.remove(&id);
        // Where a thread that was given up has a socket too, it stays open.
        let _ = epoll::delete(&self.poller, &*client.socket);
        if let Some(tenant) = &client.tenant {
            let _ = epoll::delete(&self.poller, &*tenant.signal);
            // While fuzzing, clients end by the thousand.
            if let Some(why) = why.filter(|_| !cfg!(fuzzing)) {
                eprintln!("weft: device {}: process {}: {why}", tenant.device, client.process);
            }
            let now = self.host.now();
            for &context in tenant.contexts.keys() {
                self.contexts.remove(&context);
                let reclaimed = self.host.close(now, context);
                debug_assert_eq!(reclaimed, Ok(()), "a client's contexts are open");
            }
        }
        // Its memory is let go of here, when no region is in it any more.
        self.close(client.user, client);
    }
}

/// How many clients the process has descriptors for, once it may have as many as it may take.
fn most_clients() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    // Where it may not, it has what it had.
    let _ = setrlimit(Resource::Nofile, raised);
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    (descriptors.saturating_sub(DESCRIPTORS_KEPT) / DESCRIPTORS_EACH).max(1)
}

/// Listens at a path; one where a daemon was that died is taken over.
fn listen(path: &Path) -> Result<Socket, ServeError> {
    let failed = |cause| ServeError::Listen { path: path.into(), cause };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let socket = match Socket::listen(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if Socket::connect(path).is_ok() {
                return Err(ServeError::InUse { path: path.into() });
            }
            std::fs::remove_file(path).map_err(failed)?;
            Socket::listen(path)
        }
        outcome => outcome,
    };
    let socket = socket.map_err(failed)?;
    // Root may reach every process; whose a device is, is looked at for each.
    let mode = if getuid().is_root() { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    Ok(socket)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Another daemon's is left alone: it would have had to remove this one's.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// How long peers have to hear what they wait for when the daemon ends.
const LINGER: Duration = Duration::from_millis(50);
