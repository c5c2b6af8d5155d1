//! The controller as a process: it receives datagrams, reads tables, calls the engine and carries out its actions.
//!
//! | step | where |
//! | --- | --- |
//! | the loop over datagrams, outcomes and deadlines | here, [`Daemon::turn`] |
//! | the sFlow socket and its datagrams | `intake.rs` |
//! | counters of gNMI servers | `counts.rs` |
//! | a router's threads: reads and changes, the lease | `worker.rs` |
//! | the lease over all routers | `leases.rs` |
//! | jobs announced, and probes reported, from outside | `announce.rs` |
//! | saved state | `memory.rs` |
//! | the view for pages and metrics | `view.rs` |
//!
//! The clock starts at wall-clock time and runs evenly from then on, so that saved times stay valid after a restart.

mod announce;
mod counts;
mod intake;
mod leases;
mod memory;
#[cfg(test)]
mod tests;
mod view;
mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use weft_route::{Action, Controller, Event, EventKind, Fabric, Installed};
use weft_units::{Duration, Instant};

use self::announce::RequestQueue;
pub use self::announce::{
    Announcement, Handle, PlannedJob, PortsRequest, RequestError, SenderPort, SenderPorts,
};
use self::leases::Leases;
pub use self::view::{
    BurstsView, JobView, LinkView, MoveView, NodeView, ProbeAlarmView, ProbesView, RefusedView,
    View,
};
use self::worker::{Done, Job, Outcome, Worker};
use crate::{Change, Collector, Inventory, Lease, RouterEntry, SteerConfig, SteerError};

/// A function that returns the routers of a configuration.
pub type ReadInventory = fn(&SteerConfig) -> Result<Inventory, SteerError>;

/// A running controller.
#[derive(Debug)]
pub struct Daemon {
    config: SteerConfig,
    read_inventory: ReadInventory,
    inventory: Inventory,
    socket: UdpSocket,
    collector: Collector,
    controller: Controller,
    leases: Leases,
    workers: BTreeMap<String, Worker>,
    /// Routers with a pending periodic read of their tables.
    reading: BTreeSet<String>,
    /// Routers with a pending read of the counters of their gNMI server.
    counting: BTreeSet<String>,
    outcomes: Receiver<Outcome>,
    /// The sending end of `outcomes`, for new workers.
    sender: Sender<Outcome>,
    /// The queue of requests from outside.
    requests: RequestQueue,
    /// The recent events, the newest last.
    events: VecDeque<Event>,
    /// Event counts since the start, by kind.
    event_counts: BTreeMap<EventKind, u64>,
    /// By move, the commands that applied it.
    commands: BTreeMap<u64, Vec<String>>,
    /// By router, the error of the last read of its tables, if it failed.
    read_errors: BTreeMap<String, String>,
    clock: Clock,
    next_read: Instant,
    next_count: Instant,
    next_view: Instant,
    view: Arc<Mutex<View>>,
    /// `true` if the state has to be saved.
    changed: bool,
    /// Number of jobs, of begun jobs, and of plans of their ports, at the last save.
    jobs_written: (usize, usize, u64),
}

/// A clock in nanoseconds since 1970 that runs evenly.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The wall-clock time of the start, in nanoseconds.
    start_nanos: u64,
    started: std::time::Instant,
}

impl Clock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_nanos = u64::try_from(wall.as_nanos()).unwrap_or(0);
        Self { start_nanos, started: std::time::Instant::now() }
    }

    fn now(&self) -> Instant {
        let run = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(self.start_nanos.saturating_add(run))
    }
}

/// Maximum time to wait for routers when the daemon ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of events kept for the page.
const MAX_EVENTS: usize = 500;
/// The interval at which the page's view is updated.
const VIEW_INTERVAL: Duration = Duration::from_millis(250);

impl Daemon {
    /// Reads all tables, restores the saved state, and listens. Nothing is steered before the lease is acquired, in the
    /// first turns. `read_inventory` returns the routers, now and whenever one has other ports than before:
    /// [`SteerConfig::inventory`], or a function that also reads them elsewhere.
    ///
    /// # Errors
    /// Returns the error of `read_inventory`, the error of reading the tables, `Installed` if they do not form a
    /// fabric, or `Io` if it cannot listen or start a thread.
    pub fn open(config: SteerConfig, read_inventory: ReadInventory) -> Result<Self, SteerError> {
        let inventory = read_inventory(&config)?;
        let fabric = Fabric::new(inventory.read_tables()?)?;
        let socket = intake::open(config.listen(), config.interface.as_deref())?;
        intake::warn_if_unreachable(&config, &inventory);
        let clock = Clock::start();
        let now = clock.now();
        let controller = memory::restore(&config, fabric);
        let holder = format!("{}/{}/{}", host_name(), std::process::id(), now.as_nanos());
        let lease = Lease::new(holder, std::time::Duration::from_nanos(config.lease.as_nanos()));
        let (sender, outcomes) = channel();
        let workers = start_workers(&inventory.routers, &lease, &sender)?;
        let names = inventory.routers.iter().map(|router| router.name.clone());
        let leases = Leases::new(lease, names, config.lease, now);
        Ok(Self {
            collector: Collector::new(&inventory),
            next_read: now + config.read_every,
            next_count: now,
            next_view: now,
            config,
            read_inventory,
            inventory,
            socket,
            controller,
            leases,
            workers,
            reading: BTreeSet::new(),
            counting: BTreeSet::new(),
            outcomes,
            sender,
            requests: RequestQueue::open(),
            events: VecDeque::new(),
            event_counts: BTreeMap::new(),
            commands: BTreeMap::new(),
            read_errors: BTreeMap::new(),
            clock,
            view: Arc::default(),
            changed: true,
            jobs_written: (0, 0, 0),
        })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// Returns `Io` if the kernel does not report it.
    pub fn listening(&self) -> Result<SocketAddr, SteerError> {
        self.socket.local_addr().map_err(SteerError::io("read the listening address"))
    }

    /// Returns the view, which is updated while the daemon runs.
    pub fn view(&self) -> Arc<Mutex<View>> {
        Arc::clone(&self.view)
    }

    /// Returns a handle with which other threads request ports for jobs.
    pub fn handle(&self) -> Handle {
        self.requests.handle()
    }

    /// Returns the engine.
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Returns the recent events, the newest last.
    pub const fn events(&self) -> &VecDeque<Event> {
        &self.events
    }

    /// Returns the commands that applied a move, if this process applied it.
    pub fn commands(&self, id: u64) -> Option<&[String]> {
        self.commands.get(&id).map(Vec::as_slice)
    }

    /// Runs until `stop` returns `true`; then saves the state and releases the lease. Moves stay.
    ///
    /// # Errors
    /// Returns `Io` if the socket fails or the state cannot be written.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), SteerError> {
        while !stop() {
            self.turn()?;
        }
        self.close()
    }

    /// Saves the state and releases the lease.
    ///
    /// # Errors
    /// Returns `Io` if the state cannot be written.
    pub fn close(&mut self) -> Result<(), SteerError> {
        let releasing = self.workers.values().filter(|it| it.order(Job::Release)).count();
        memory::write(&self.config, &self.controller)?;
        let deadline = self.clock.now() + SHUTDOWN_TIMEOUT;
        let mut released = 0;
        while released < releasing {
            let left = deadline.since(self.clock.now()).as_nanos();
            match self.outcomes.recv_timeout(std::time::Duration::from_nanos(left)) {
                Ok(Outcome { result: Done::Released, .. }) => released += 1,
                Ok(_) => {}
                // A router that hangs keeps its lease until it expires.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Processes received data, does the work that is due, and waits for at most 40 ms.
    ///
    /// # Errors
    /// Returns `Io` if the socket fails or the state cannot be written.
    pub fn turn(&mut self) -> Result<(), SteerError> {
        self.receive()?;
        let arrived: Vec<Outcome> = self.outcomes.try_iter().collect();
        for outcome in arrived {
            self.on_outcome(outcome);
        }
        let now = self.clock.now();
        if now >= self.next_read {
            self.next_read = now + self.config.read_every;
            // A router with a pending read gets no second one, because other work would wait behind it.
            for (name, worker) in &self.workers {
                if self.reading.insert(name.clone()) {
                    worker.order(Job::Read);
                }
            }
        }
        self.order_counts(now);
        for router in self.leases.due(now) {
            self.order(&router, Job::Renew { requested_at: now });
        }
        let epoch = self.leases.epoch(now);
        self.controller.set_lease(epoch, now);
        self.controller.handle_timeout(now);
        let steers = epoch.map(drop).ok_or_else(|| self.leases.other.clone());
        let save_jobs = |controller: &Controller| memory::write_jobs(&self.config, controller);
        self.requests.answer(&mut self.controller, steers, now, save_jobs)?;
        self.carry_out_actions();
        if now >= self.next_view {
            self.next_view = now + VIEW_INTERVAL;
            let view = View::of(self, now);
            *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
        }
        if std::mem::take(&mut self.changed) {
            memory::write(&self.config, &self.controller)?;
        }
        // The jobs are saved when a job begins, is discarded or is planned again.
        let jobs = self.controller.jobs();
        let plans = jobs.values().map(|job| job.version).sum();
        let jobs = (jobs.len(), jobs.values().filter(|job| job.begun).count(), plans);
        if jobs != std::mem::replace(&mut self.jobs_written, jobs) {
            memory::write_jobs(&self.config, &self.controller)?;
        }
        Ok(())
    }

    fn on_outcome(&mut self, Outcome { router, result }: Outcome) {
        let now = self.clock.now();
        if matches!(result, Done::Read(_)) {
            self.reading.remove(&router);
        }
        match result {
            Done::Released => {}
            Done::Renewed { requested_at, result: Ok(()) } => {
                self.leases.granted(&router, requested_at)
            }
            Done::Renewed { result: Err(error), .. } => {
                for name in self.leases.refused(&router, &error, now) {
                    self.order(&name, Job::Release);
                }
            }
            Done::Changed { id, commands, result } => {
                self.changed = true;
                self.commands.insert(id, commands);
                self.controller.handle_answer(id, result, now);
            }
            Done::Counted(result) => self.on_counted(&router, result, now),
            // It left the inventory while it was read.
            Done::Read(_) if !self.workers.contains_key(&router) => {}
            Done::Read(Ok(read)) => {
                self.read_errors.remove(&router);
                if self.controller.handle_tables(read, now).is_err() {
                    self.read_fabric(now);
                }
            }
            Done::Read(Err(error)) => {
                let text =
                    format!("its tables cannot be read: {error}; the last known tables are kept");
                if self.read_errors.insert(router.clone(), text.clone()).is_none() {
                    self.record(Event {
                        at: now.as_nanos(),
                        kind: EventKind::Silent,
                        router,
                        port: String::new(),
                        id: None,
                        text,
                    });
                }
            }
        }
    }

    /// Reads the whole fabric again because a router has other ports than before. If the result is no fabric, the last
    /// one stays.
    fn read_fabric(&mut self, now: Instant) {
        let inventory = (self.read_inventory)(&self.config);
        let read = inventory.and_then(|inventory| {
            let installed: Installed = inventory.read_tables()?;
            let fabric = Fabric::new(installed)?;
            let is_known = |router: &&RouterEntry| self.inventory.routers.contains(router);
            let new: Vec<_> =
                inventory.routers.iter().filter(|it| !is_known(it)).cloned().collect();
            let started = start_workers(&new, self.leases.lease(), &self.sender)?;
            Ok((inventory, fabric, started))
        });
        match read {
            Ok((inventory, fabric, started)) => {
                self.collector.set_inventory(&inventory);
                self.set_inventory(inventory, started, now);
                self.controller.handle_fabric(fabric, now);
            }
            Err(error) => tracing::warn!(%error, "the fabric cannot be read; the last one is kept"),
        }
    }

    /// Replaces the inventory, given the workers of routers that are new or have changed. Those of routers that have left
    /// it end after their orders.
    fn set_inventory(
        &mut self,
        inventory: Inventory,
        started: BTreeMap<String, Worker>,
        now: Instant,
    ) {
        let names: BTreeSet<&str> = inventory.routers.iter().map(|it| it.name.as_str()).collect();
        for (name, worker) in self.workers.extract_if(.., |name, _| !names.contains(name.as_str()))
        {
            worker.order(Job::Release);
            self.reading.remove(&name);
            self.read_errors.remove(&name);
        }
        self.workers.extend(started);
        self.leases.set_routers(names.into_iter().map(String::from), now);
        self.inventory = inventory;
    }

    /// Carries out the engine's actions and records its events.
    fn carry_out_actions(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            self.changed = true;
            let dry = self.config.dry_run;
            match action {
                Action::Read { router } => self.order(&router, Job::Read),
                Action::Apply { id, router, prefix, members, .. } => {
                    let change = Change { destination: prefix.first(), members: Some(members) };
                    self.order(&router, Job::Change { id, change, dry });
                }
                Action::Withdraw { id, router, prefix, .. } => {
                    let change = Change::back(prefix.first());
                    self.order(&router, Job::Change { id, change, dry });
                }
            }
        }
        while let Some(event) = self.controller.poll_event() {
            self.record(event);
        }
    }

    fn order(&self, router: &str, job: Job) {
        // A router that has left the inventory gets no more orders.
        if let Some(worker) = self.workers.get(router) {
            worker.order(job);
        }
    }

    fn record(&mut self, event: Event) {
        let Event { kind, router, port, id, text, .. } = &event;
        let what = format!("{kind:?}").to_lowercase();
        tracing::info!(what, router, port, id, "{text}");
        self.changed = true;
        *self.event_counts.entry(event.kind).or_default() += 1;
        self.events.push_back(event);
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }
}

/// Starts the threads of routers and returns them by name.
///
/// # Errors
/// Returns `Io` if no thread can be started.
fn start_workers(
    routers: &[RouterEntry],
    lease: &Lease,
    outcomes: &Sender<Outcome>,
) -> Result<BTreeMap<String, Worker>, SteerError> {
    let start = |router: &RouterEntry| {
        let worker = Worker::start(router.clone(), lease.clone(), outcomes.clone())?;
        Ok((router.name.clone(), worker))
    };
    routers.iter().map(start).collect()
}

/// Returns this machine's name, reduced to characters that are valid in a lease's holder.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = name.trim().chars().filter(plain).collect();
    if name.is_empty() { "controller".into() } else { name }
}
