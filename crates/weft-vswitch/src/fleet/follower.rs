//! The thread of a host that follows its fleet: it registers, lists, watches, and hands each new part over.
#![allow(clippy::disallowed_methods, reason = "leases and attempts are timed by a real clock")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_etcd::{Change, Client, EtcdError, Lease, Watch, WatchEvent};
use weft_events::{LeaseGained, LeaseLost};

use super::local::{self, LocalError, LocalMachines};
use super::object::Host;
use super::register::{RegisterError, register};
use super::{FleetSettings, FleetStatus, Key, Part, View, cache};

/// Maximum time between two looks at the lease and at the wish to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two attempts at what etcd refused.
const RETRY: Duration = Duration::from_secs(1);

/// Minimum time between two writes of the part to the disk.
const CACHE_INTERVAL: Duration = Duration::from_secs(5);

/// This host, as others are to know it.
#[derive(Clone, Debug)]
pub struct HostIdentity {
    /// Its address in the network that carries the overlay.
    pub address: IpAddr,
    /// Its public key.
    pub identity: Option<String>,
}

/// The follower of one host.
#[derive(Debug)]
pub struct Follower<Publish> {
    settings: FleetSettings,
    host: HostIdentity,
    cache: Option<PathBuf>,
    /// Gets each new part, and the state of the follower.
    publish: Publish,
    view: View,
    client: Client,
    watch: Option<Watch>,
    lease: Option<Lease>,
    /// The prefixes to list, before they are watched.
    unlisted: BTreeSet<String>,
    /// The networks that are listed, or to be listed.
    networks: BTreeSet<u32>,
    retry_at: Instant,
    local: Arc<LocalMachines>,
    /// `true` once `local` is known.
    has_local: bool,
    /// The places of machines that could not be written, and the time of the next attempt.
    unwritten: BTreeMap<String, String>,
    write_at: Instant,
    /// The time of the last write to the disk, if the view has changed since.
    uncached: Option<Instant>,
    status: FleetStatus,
}

impl<Publish: FnMut(Option<Part>, &FleetStatus)> Follower<Publish> {
    /// Prepares the follower of a host, with what is in the file `cache`.
    ///
    /// # Errors
    /// A certificate cannot be used, or the system refuses a thread.
    pub fn new(
        settings: &FleetSettings,
        host: HostIdentity,
        cache: Option<PathBuf>,
        publish: Publish,
    ) -> Result<Self, EtcdError> {
        let prefix = &settings.prefix;
        let mut view = View::new(&settings.name);
        if let Some(file) = &cache
            && let Err(error) = cache::read(file, prefix, &mut view)
        {
            tracing::warn!(file = %file.display(), %error, "the fleet's part on the disk is left out");
        }
        let fixed = [
            Key::all(prefix, "policies"),
            Key::all(prefix, "hosts"),
            Key::ports_of(prefix, &settings.name),
            Key::port_policies_of(prefix, &settings.name),
        ];
        let status = FleetStatus { name: settings.name.clone(), ..FleetStatus::default() };
        Ok(Self {
            host,
            cache,
            publish,
            view,
            client: Client::new(&settings.etcd)?,
            watch: None,
            lease: None,
            unlisted: fixed.into(),
            networks: BTreeSet::new(),
            retry_at: Instant::now(),
            local: Arc::default(),
            has_local: false,
            unwritten: BTreeMap::new(),
            write_at: Instant::now(),
            uncached: None,
            status,
            settings: settings.clone(),
        })
    }

    /// Writes the places of the machines that `local` has, whenever they change.
    #[must_use]
    pub fn with_local(self, local: Arc<LocalMachines>) -> Self {
        Self { local, ..self }
    }

    /// Follows the fleet until `stop` is `true`.
    pub fn run(mut self, stop: &AtomicBool) {
        if self.view.objects().next().is_some() {
            self.hand_over();
        }
        let mut changed = false;
        while !stop.load(Ordering::Relaxed) {
            changed |= self.take_local();
            changed |= self.connect();
            changed |= self.write_local();
            // A network that is still to be listed would be missing, with its ports.
            let is_partial = !self.unlisted.is_empty() && self.status.error.is_none();
            if changed && !is_partial {
                self.hand_over();
                changed = false;
            }
            changed |= self.receive();
            self.write_cache(false);
        }
        self.write_cache(true);
        // Others need not wait for the lease to run out.
        if let Some(Err(error)) = self.lease.take().map(Lease::revoke) {
            tracing::debug!(%error, "the lease runs out by itself");
        }
    }

    /// Registers and lists what is missing. Returns `true` if the view changed.
    fn connect(&mut self) -> bool {
        let is_due = Instant::now() >= self.retry_at;
        if self.lease.as_ref().is_some_and(Lease::has_ended) {
            self.lease = None;
        }
        self.set_registered(self.lease.as_ref().is_some_and(Lease::is_valid));
        if !is_due || (self.lease.is_some() && self.unlisted.is_empty()) {
            return false;
        }
        if self.lease.is_none()
            && let Err(error) = self.register()
        {
            self.fail(&error.to_string());
            return false;
        }
        match self.list() {
            Ok(changed) => {
                self.status.error = None;
                changed
            }
            Err(error) => {
                self.fail(&error.to_string());
                false
            }
        }
    }

    /// Takes the machines of ports that are not of the fleet. Returns `true` if they have changed.
    fn take_local(&mut self) -> bool {
        let Some(local) = self.local.get() else { return false };
        self.has_local = true;
        if local == *self.view.local() {
            return false;
        }
        self.view.set_local(local);
        self.follow_networks();
        self.write_at = Instant::now();
        true
    }

    /// Writes the places of these machines. Returns `true` if there are other faults than before.
    fn write_local(&mut self) -> bool {
        let is_registered = self.lease.as_ref().is_some_and(Lease::is_valid);
        if !self.has_local
            || !is_registered
            || !self.unlisted.is_empty()
            || Instant::now() < self.write_at
        {
            return false;
        }
        let FleetSettings { prefix, name, .. } = &self.settings;
        let mut unwritten = BTreeMap::new();
        for (key, machine) in local::missing(&self.view, name) {
            let Err(error) = local::write(&self.client, prefix, name, &key, machine.as_ref())
            else {
                continue;
            };
            unwritten.insert(key.path(prefix), error.to_string());
            self.write_at = Instant::now() + RETRY;
            if matches!(error, LocalError::Etcd(_)) {
                break;
            }
        }
        let has_changed = unwritten != self.unwritten;
        self.unwritten = unwritten;
        has_changed
    }

    fn register(&mut self) -> Result<(), RegisterError> {
        let HostIdentity { address, identity } = self.host.clone();
        self.lease = Some(register(&self.client, &self.settings, &Host { address, identity })?);
        self.status.error = None;
        self.set_registered(true);
        Ok(())
    }

    /// Records that the lease is valid, or not.
    fn set_registered(&mut self, is_registered: bool) {
        if self.status.registered == is_registered {
            return;
        }
        self.status.registered = is_registered;
        let (lease, holder) = ("fleet", self.settings.name.clone());
        if is_registered {
            LeaseGained { lease, holder }.emit();
        } else {
            let reason = self.status.error.clone().unwrap_or_default();
            LeaseLost { lease, holder, reason }.emit();
        }
        (self.publish)(None, &self.status);
    }

    /// Lists the prefixes that are not watched yet, and watches them from there.
    fn list(&mut self) -> Result<bool, EtcdError> {
        let mut changed = false;
        while let Some(path) = self.unlisted.first().cloned() {
            let listing = self.client.list(&path)?;
            let entries = listing.entries.iter().map(|it| (it.key.as_slice(), it.value.as_slice()));
            self.view.replace(&self.settings.prefix, &path, entries);
            let from = listing.revision.next();
            match &self.watch {
                Some(watch) => watch.add(&path, from),
                None => self.watch = Some(self.client.watch(&path, from)),
            }
            self.unlisted.remove(&path);
            self.status.revision = self.status.revision.max(listing.revision.0);
            self.follow_networks();
            changed = true;
        }
        Ok(changed)
    }

    fn fail(&mut self, error: &str) {
        self.retry_at = Instant::now() + RETRY;
        if self.status.error.as_deref() != Some(error) {
            tracing::warn!(error, "the fleet is not followed; what is known stays in force");
            self.status.error = Some(error.to_owned());
            (self.publish)(None, &self.status);
        }
    }

    /// Waits for changes, and takes all that have arrived. Returns `true` if the view changed.
    fn receive(&mut self) -> bool {
        let Some(watch) = &mut self.watch else {
            std::thread::park_timeout(LOOK);
            return false;
        };
        let mut next = watch.next(LOOK);
        let mut changed = false;
        while let Some(event) = next {
            changed |= self.on_event(event);
            next = self.watch.as_mut().and_then(Watch::try_next);
        }
        if changed {
            self.follow_networks();
        }
        changed
    }

    fn on_event(&mut self, event: WatchEvent) -> bool {
        match event {
            WatchEvent::Changes { revision, changes } => {
                self.status.revision = self.status.revision.max(revision.0);
                let changes = changes.iter().map(|change| match change {
                    Change::Put(pair) => (pair.key.as_slice(), Some(pair.value.as_slice())),
                    Change::Delete { key, .. } => (key.as_slice(), None),
                });
                self.view.apply(&self.settings.prefix, changes)
            }
            WatchEvent::Connected { endpoint } => {
                self.status.etcd = Some(endpoint);
                self.status.error = None;
                tracing::info!(etcd = self.status.etcd, "following the fleet");
                (self.publish)(None, &self.status);
                false
            }
            WatchEvent::Disconnected(error) => {
                tracing::warn!(%error, "etcd is lost; what is known stays in force");
                self.status.etcd = None;
                self.status.disconnects += 1;
                self.status.error = Some(error.to_string());
                (self.publish)(None, &self.status);
                false
            }
            WatchEvent::Compacted { prefix, revision } => {
                tracing::info!(prefix, %revision, "etcd has dropped the history, listing again");
                self.unlisted.insert(prefix);
                false
            }
        }
    }

    /// Follows the networks of the host's ports, and no others.
    fn follow_networks(&mut self) {
        let prefix = &self.settings.prefix;
        let wanted = self.view.networks();
        for &vni in wanted.difference(&self.networks) {
            self.unlisted.insert(Key::network(prefix, vni));
        }
        for &vni in self.networks.difference(&wanted) {
            let path = Key::network(prefix, vni);
            self.unlisted.remove(&path);
            if let Some(watch) = &self.watch {
                watch.remove(&path);
            }
            self.view.forget_network(prefix, vni);
        }
        self.networks = wanted;
    }

    /// Hands the part over.
    fn hand_over(&mut self) {
        let mut objects = BTreeMap::new();
        for (key, _) in self.view.objects() {
            *objects.entry(key.kind().to_owned()).or_default() += 1;
        }
        let mut part = self.view.part(&self.settings.prefix);
        part.faults.extend(self.unwritten.clone());
        self.status.objects = objects;
        self.status.faults.clone_from(&part.faults);
        self.uncached.get_or_insert_with(Instant::now);
        (self.publish)(Some(part), &self.status);
    }

    fn write_cache(&mut self, now: bool) {
        let is_due = |since: &mut Instant| now || since.elapsed() >= CACHE_INTERVAL;
        let (Some(file), Some(_)) = (&self.cache, self.uncached.take_if(is_due)) else { return };
        if let Err(error) = cache::write(file, &self.view) {
            tracing::warn!(file = %file.display(), %error, "cannot keep the fleet's part on the disk");
        }
    }
}
