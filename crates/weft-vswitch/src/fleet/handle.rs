//! The thread that follows a fleet, and the newest part that it has handed over.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use weft_seal::PublicKey;
use weft_units::Instant;

use super::follower::{Follower, HostIdentity};
use super::{FleetSettings, FleetStatus, LocalMachines, Part};
use crate::OpenError;
use crate::config::{Config, value};

/// A host's part of its fleet, and the thread that follows it.
#[derive(Debug)]
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    identities: bool,
    /// The host's file alone.
    pub(super) file: Config,
    /// The newest part, in force but for its faults.
    pub(super) part: Part,
    /// The ports of the part that cannot be opened, with the reasons.
    pub(super) left_out: Mutex<BTreeMap<String, String>>,
    pub(super) refused: Option<String>,
    pub(super) applied: (u64, u64),
    pub(super) retry_at: Instant,
    pub(super) local: Arc<LocalMachines>,
    /// `true` if ports have changed since `local` was set.
    pub(super) has_new_ports: bool,
}

/// The results of the follower.
#[derive(Debug)]
struct Shared {
    newest: Mutex<(Option<Part>, FleetStatus)>,
    /// Readable while there is a part that the daemon has not taken.
    event: OwnedFd,
}

impl Fleet {
    pub(super) fn start(
        settings: &FleetSettings,
        host: HostIdentity,
        cache: PathBuf,
        file: Config,
    ) -> Result<Self, OpenError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|errno| OpenError::Thread(errno.into()))?;
        let status = FleetStatus { name: settings.name.clone(), ..FleetStatus::default() };
        let shared = Arc::new(Shared { newest: Mutex::new((None, status)), event });
        let (stop, other) = (Arc::new(AtomicBool::new(false)), Arc::clone(&shared));
        let publish = move |part, status: &FleetStatus| other.publish(part, status);
        let follower = Follower::new(settings, host, Some(cache), publish);
        let refused =
            |error: weft_etcd::EtcdError| value("fleet.etcd", "refused", error.to_string());
        let local = Arc::<LocalMachines>::default();
        let follower = follower.map_err(refused)?.with_local(Arc::clone(&local));
        let stopping = Arc::clone(&stop);
        let thread = Builder::new().name("fleet".into()).spawn(move || follower.run(&stopping));
        Ok(Self {
            shared,
            stop,
            thread: Some(thread.map_err(OpenError::Thread)?),
            identities: settings.identities,
            file,
            part: Part::default(),
            left_out: Mutex::default(),
            refused: None,
            applied: (0, 0),
            retry_at: Instant::EPOCH,
            local,
            has_new_ports: true,
        })
    }

    /// Returns the descriptor that is readable while there is a new part.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Takes the newest part. Returns `true` if there was one.
    pub(super) fn take_newest(&mut self) -> bool {
        // The event is reset first: a part that comes later is readable again.
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        let newest = lock(&self.shared.newest).0.take();
        let is_new = newest.as_ref().is_some_and(|part| *part != self.part);
        if let Some(part) = newest {
            self.part = part;
        }
        is_new
    }

    /// Returns `true` if a part of this fleet adds a port of this name.
    pub(crate) fn adds_port(&self, name: &str) -> bool {
        self.part.ports.iter().any(|port| port.name == name)
            && !self.file.ports.iter().any(|port| port.name == name)
    }

    /// Notes that ports were added or removed.
    pub(crate) const fn touch(&mut self) {
        self.has_new_ports = true;
    }

    /// Records the reason that a port cannot be opened.
    pub(crate) fn leave_out(&self, name: &str, reason: String) {
        lock(&self.left_out).insert(name.to_owned(), reason);
    }

    /// Returns the accepted identities with those of the fleet's hosts; `None` accepts every host.
    pub(crate) fn identities(
        &self,
        of_file: Option<BTreeSet<PublicKey>>,
    ) -> Option<BTreeSet<PublicKey>> {
        if !self.identities {
            return of_file;
        }
        let known = self.part.identities.iter().filter_map(|text| text.parse().ok());
        Some(of_file.into_iter().flatten().chain(known).collect())
    }

    /// Returns the state of the host in its fleet.
    pub(crate) fn status(&self) -> FleetStatus {
        let mut status = lock(&self.shared.newest).1.clone();
        let left_out = lock(&self.left_out).clone();
        let port = |(name, reason): (String, String)| (format!("port {name}"), reason);
        status.faults.extend(left_out.into_iter().map(port));
        FleetStatus { refused: self.refused.clone(), applied: self.applied, ..status }
    }
}

impl Shared {
    fn publish(&self, part: Option<Part>, status: &FleetStatus) {
        let is_new = part.is_some();
        let mut newest = lock(&self.newest);
        newest.1 = status.clone();
        if is_new {
            newest.0 = part;
        }
        drop(newest);
        if is_new {
            // Only a counter that is full refuses, and that one is readable.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
