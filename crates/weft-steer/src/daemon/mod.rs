//! The controller as a process: it receives datagrams, reads tables, calls the engine and carries out its actions.
//!
//! | step | where |
//! | --- | --- |
//! | the loop over datagrams, outcomes and deadlines | here, [`Daemon::turn`] |
//! | the sFlow socket and its datagrams | `intake.rs` |
//! | counters of gNMI servers | `counts.rs` |
//! | a router's threads: reads and changes, the lease | `worker.rs` |
//! | the whole fabric, read again | `fabric.rs` |
//! | the lease over all routers | `leases.rs` |
//! | jobs announced, and probes reported, from outside | `announce.rs` |
//! | decisions kept, in files or in etcd | `store/` |
//! | several controllers: one leads | `office.rs` |
//! | the view for pages and metrics | `view.rs` |
//!
//! The clock starts at wall-clock time and runs evenly from then on, so that saved times stay valid after a restart.

mod announce;
mod counts;
mod fabric;
mod intake;
mod leases;
mod office;
mod store;
#[cfg(test)]
mod tests;
mod view;
mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use weft_events::{LeaseGained, LeaseLost};
use weft_route::{Action, Controller, Event, EventKind, Fabric, Installed, RecordKey};
use weft_units::{Duration, Instant};

pub use self::announce::{
    Announcement, Handle, PlannedJob, PortsRequest, RequestError, SenderPort, SenderPorts,
};
use self::announce::{Answer, RequestQueue};
use self::fabric::FabricRead;
use self::leases::Leases;
use self::office::Office;
pub use self::office::Role;
pub use self::store::Leader;
use self::store::{EventCounts, Files, Shared, Store};
pub use self::view::{
    BarredView, BurstsView, JobView, LinkView, MoveView, NodeView, ProbeAlarmView, ProbesView,
    RefusedView, View,
};
use self::worker::{Done, Job, Outcome, Worker};
use crate::cluster::is_unspecified;
use crate::tables::SomeTables;
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
    /// The pending read of the whole fabric.
    fabric_read: Option<FabricRead>,
    outcomes: Receiver<Outcome>,
    /// The sending end of `outcomes`, for new workers.
    sender: Sender<Outcome>,
    /// The queue of requests from outside.
    requests: RequestQueue,
    /// The recent events, the newest last.
    events: VecDeque<Event>,
    /// Event counts since the start, by kind; since that of the first controller if several share a store.
    event_counts: EventCounts,
    /// By move, the commands that applied it.
    commands: BTreeMap<u64, Vec<String>>,
    /// By router, the error of the last read of its tables, if it failed.
    read_errors: BTreeMap<String, String>,
    clock: Clock,
    next_read: Instant,
    next_count: Instant,
    next_view: Instant,
    view: Arc<Mutex<View>>,
    /// The store of the controller's decisions.
    store: Box<dyn Store>,
    /// The numbers of the last save, and of the last one that is kept.
    saved: u64,
    kept: u64,
    /// Orders for routers, and answers to requests, with the number of the save that must be kept before. An order is carried
    /// out in the epoch of the lease in which it was decided only.
    held: VecDeque<(u64, u64, Action)>,
    waiting: VecDeque<(u64, Answer)>,
    office: Office,
    /// `true` if it held the lease in the last turn.
    steered: bool,
    /// The leader, if another controller of the store leads.
    leader: Option<Leader>,
    /// The reason for which the store cannot be used.
    store_fault: Option<String>,
    /// The store's records that cannot be read, by key, with the reason.
    unreadable: BTreeMap<String, String>,
    /// The records that cannot be used beside the others, with the reason.
    unused: BTreeMap<RecordKey, String>,
    /// `true` if the state has to be saved.
    changed: bool,
    /// The jobs as last saved, by which changes without an event are found.
    jobs_saved: JobsSaved,
}

/// Number of jobs, of begun jobs and of plans of their ports, and the sum of the starts of bursts.
type JobsSaved = (usize, usize, u64, u64);

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
    /// Reads all tables, restores the saved state, and listens. A router that does not answer is left alone until it does; one
    /// must answer. Nothing is steered before the lease is acquired, in the
    /// first turns. `read_inventory` returns the routers, now and whenever one has other ports than before:
    /// [`SteerConfig::inventory`], or a function that also reads them elsewhere.
    ///
    /// # Errors
    /// Returns the error of `read_inventory`, the error of reading the tables, `Installed` if they do not form a
    /// fabric, or `Io` if it cannot listen or start a thread.
    pub fn open(config: SteerConfig, read_inventory: ReadInventory) -> Result<Self, SteerError> {
        let inventory = read_inventory(&config)?;
        let checked = config.cluster.as_ref().map_or(Ok(()), |it| it.check_inventory(&inventory));
        checked.map_err(|error| SteerError::Inventory(Box::new(error)))?;
        let SomeTables { installed, silent } = inventory.read_some_tables(&Installed::default())?;
        let fabric = Fabric::new(installed)?;
        let socket = intake::open(config.listen(), config.interface.as_deref())?;
        intake::warn_if_unreachable(&config, &inventory);
        let clock = Clock::start();
        let now = clock.now();
        let (store, mut controller) = Files::open(&config, fabric);
        controller.expect_tables(silent.keys().cloned().collect());
        let holder = format!("{}/{}/{}", host_name(), std::process::id(), now.as_nanos());
        let lease = Lease::new(holder, std::time::Duration::from_nanos(config.lease.as_nanos()));
        let (lease, office) = match &config.cluster {
            Some(_) => (lease.in_terms(), Office::StandsBy),
            None => (lease, Office::Alone),
        };
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
            fabric_read: None,
            outcomes,
            sender,
            requests: RequestQueue::open(),
            events: VecDeque::new(),
            event_counts: BTreeMap::new(),
            commands: BTreeMap::new(),
            read_errors: silent.into_iter().map(|(name, error)| (name, unread(&error))).collect(),
            clock,
            view: Arc::default(),
            store: Box::new(store),
            saved: 0,
            kept: 0,
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            office,
            steered: false,
            leader: None,
            store_fault: None,
            unreadable: BTreeMap::new(),
            unused: BTreeMap::new(),
            changed: true,
            jobs_saved: JobsSaved::default(),
        })
    }

    /// Joins the controllers that share a store, if the configuration has one. `url` is that of this controller's page, for
    /// clients that other controllers send here, unless the configuration has another.
    ///
    /// # Errors
    /// Returns `Etcd` if a certificate cannot be used, `NoUrl` if the URL is that of no host, or `Io` if no thread can be started.
    pub fn join(&mut self, url: &str) -> Result<(), SteerError> {
        let Some(cluster) = &self.config.cluster else { return Ok(()) };
        let url = cluster.url.as_deref().unwrap_or(url);
        if is_unspecified(url) {
            return Err(SteerError::NoUrl(url.to_owned()));
        }
        if url.contains("//127.") || url.contains("//[::1]:") {
            tracing::warn!(
                url,
                "clients of other hosts cannot be sent here: set `url` of [cluster]"
            );
        }
        let me = Leader { holder: self.leases.holder().to_owned(), url: url.to_owned() };
        self.store = Box::new(Shared::open(cluster, me)?);
        Ok(())
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

    /// Runs until `stop`, which is called after each turn, returns `true`; then saves the state and releases the lease.
    /// Moves stay.
    ///
    /// # Errors
    /// Returns `Io` if the socket fails or the state cannot be written.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), SteerError> {
        self.turn()?;
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
        self.store.save(&self.controller, &self.event_counts)?;
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
        // The next leader is elected at once, and finds the routers' leases free.
        self.store.close();
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
        self.poll_store(now);
        self.poll_fabric(now);
        if now >= self.next_read {
            self.next_read = now + self.config.read_every;
            // A router with a pending read gets no second one, because other work would wait behind it.
            for (name, worker) in &self.workers {
                if self.reading.insert(name.clone()) {
                    worker.order(Job::Read { requested_at: now });
                }
            }
        }
        self.order_counts(now);
        if self.office.role() != Role::StandsBy {
            for router in self.leases.due(now) {
                let term = self.leases.term();
                self.order(&router, Job::Renew { requested_at: now, term });
            }
        }
        let epoch = self.leases.set_epoch(self.epoch(now), now);
        self.log_lease(epoch.is_some());
        self.controller.set_lease(epoch, now);
        self.controller.handle_timeout(now);
        let steers = epoch.map(drop).ok_or_else(|| self.watches());
        let answers = self.requests.answer(&mut self.controller, &steers, now);
        self.keep(epoch, answers)?;
        self.carry_out(now);
        if now >= self.next_view {
            self.next_view = now + VIEW_INTERVAL;
            let view = View::of(self, now);
            *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
        }
        Ok(())
    }

    /// Saves what has changed. Orders for routers and answers to requests wait until it is kept.
    ///
    /// # Errors
    /// Returns `Io` if the state cannot be written.
    fn keep(&mut self, epoch: Option<u64>, answers: Vec<Answer>) -> Result<(), SteerError> {
        let mut actions = Vec::new();
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Read { router } => {
                    let requested_at = self.clock.now();
                    self.order(&router, Job::Read { requested_at });
                }
                // Without the lease there are none. With the next one the controller repeats those that are not answered.
                Action::Apply { .. } | Action::Withdraw { .. } => {
                    actions.extend(epoch.map(|epoch| (epoch, action)));
                }
            }
        }
        while let Some(event) = self.controller.poll_event() {
            self.record(event);
        }
        let jobs = self.controller.jobs().values();
        let sums = jobs.fold(JobsSaved::default(), |(count, begun, plans, starts), job| {
            let start = job.bursts.map_or(0, |it| it.start.as_nanos());
            let plans = plans.wrapping_add(job.version);
            (count + 1, begun + usize::from(job.begun), plans, starts.wrapping_add(start))
        });
        self.changed |= sums != std::mem::replace(&mut self.jobs_saved, sums);
        self.changed |= !actions.is_empty() || answers.iter().any(Answer::is_decision);
        if std::mem::take(&mut self.changed) {
            self.saved = self.store.save(&self.controller, &self.event_counts)?;
        }
        self.held.extend(actions.into_iter().map(|(epoch, action)| (self.saved, epoch, action)));
        for answer in answers {
            match answer.is_refusal() {
                true => answer.send(),
                false => self.waiting.push_back((self.saved, answer)),
            }
        }
        Ok(())
    }

    fn on_outcome(&mut self, Outcome { router, result }: Outcome) {
        let now = self.clock.now();
        if matches!(result, Done::Read { .. }) {
            self.reading.remove(&router);
        }
        match result {
            Done::Released => {}
            // It is of an earlier term, or of one that is over.
            Done::Renewed { term, .. } if term != self.leases.term() => {}
            Done::Renewed { requested_at, result: Ok(()), .. } => {
                self.leases.granted(&router, requested_at);
                self.on_granted(&router, now);
            }
            Done::Renewed { result: Err(error), .. } => {
                for name in self.leases.refused(&router, &error, now) {
                    self.order(&name, Job::Release);
                }
            }
            Done::Changed { epoch, id, commands, result } => {
                self.outdate_fabric_read();
                // The order of an earlier epoch is another one, whatever its number is.
                if self.epoch(now) == Some(epoch) {
                    self.changed = true;
                    self.commands.insert(id, commands);
                    self.controller.handle_answer(id, result, now);
                }
            }
            Done::Counted(result) => self.on_counted(&router, result, now),
            // It left the inventory while it was read.
            Done::Read { .. } if !self.workers.contains_key(&router) => {}
            Done::Read { requested_at, result: Ok(read) } => {
                self.read_errors.remove(&router);
                match self.controller.handle_tables(read, now) {
                    Ok(()) => self.on_tables(&router, requested_at),
                    Err(_) => self.read_fabric(),
                }
            }
            Done::Read { result: Err(error), .. } => {
                let text = unread(&error);
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

    /// Gives the orders and answers that are kept.
    fn carry_out(&mut self, now: Instant) {
        while let Some((_, answer)) = self.waiting.pop_front_if(|it| it.0 <= self.kept) {
            answer.send();
        }
        let dry = self.config.dry_run;
        while let Some((_, epoch, action)) = self.held.pop_front_if(|it| it.0 <= self.kept) {
            match action {
                Action::Read { router } => self.order(&router, Job::Read { requested_at: now }),
                Action::Apply { id, router, prefix, members, .. } => {
                    let change = Change { destination: prefix.first(), members: Some(members) };
                    self.order(&router, Job::Change { epoch, id, change, dry });
                }
                Action::Withdraw { id, router, prefix, .. } => {
                    let change = Change::back(prefix.first());
                    self.order(&router, Job::Change { epoch, id, change, dry });
                }
            }
        }
    }

    /// Logs that this controller steers, or steers no more, since the last turn.
    fn log_lease(&mut self, steers: bool) {
        if std::mem::replace(&mut self.steered, steers) == steers {
            return;
        }
        let (lease, holder) = ("routers", self.leases.holder().to_owned());
        if steers {
            LeaseGained { lease, holder }.emit();
        } else {
            let reason = match self.watches() {
                RequestError::Watches { other: Some(other), .. } => format!("{other} has it"),
                _ => String::new(),
            };
            LeaseLost { lease, holder, reason }.emit();
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

/// Returns what is recorded of a router whose tables cannot be read.
fn unread(error: &SteerError) -> String {
    format!("its tables cannot be read: {error}; the last known tables are kept")
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
