//! The controller as a process: datagrams in, tables read, the engine asked, its orders carried out.
//!
//! | step | where |
//! | --- | --- |
//! | datagrams, outcomes and deadlines, in turns | here, [`Daemon::turn`] |
//! | sFlow's socket, and what comes in by it | `intake.rs` |
//! | a router's threads: reads and changes, the lease | `worker.rs` |
//! | who may steer, over all routers | `leases.rs` |
//! | jobs that are announced from outside | `announce.rs` |
//! | memory over a restart | `memory.rs` |
//! | what there is to see | `picture.rs` |
//!
//! Time is the wall clock's at the start, and runs evenly from then on: what is kept over a restart goes on
//! where it was.

mod announce;
mod intake;
mod leases;
mod memory;
mod picture;
mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use weft_route::{Action, Controller, Event, Fabric, Installed, What};
use weft_units::{Duration, Instant};

use self::announce::Desk;
pub use self::announce::{Announcement, AskError, Door, PlannedJob};
use self::leases::Leases;
pub use self::picture::{JobView, LinkView, MoveView, NodeView, Picture, RefusedView};
use self::worker::{Done, Job, Outcome, Worker};
use crate::{Change, Collector, Inventory, Lease, SteerConfig, SteerError};

/// A running controller.
#[derive(Debug)]
pub struct Daemon {
    config: SteerConfig,
    inventory: Inventory,
    socket: UdpSocket,
    collector: Collector,
    controller: Controller,
    leases: Leases,
    workers: BTreeMap<String, Worker>,
    /// Routers whose tables are being read because it was time to.
    reading: BTreeSet<String>,
    outcomes: Receiver<Outcome>,
    /// What is asked from outside.
    desk: Desk,
    /// What happened lately, the newest last.
    events: VecDeque<Event>,
    /// How often what has happened since the start.
    happened: BTreeMap<What, u64>,
    /// By move, the commands that made it.
    commands: BTreeMap<u64, Vec<String>>,
    /// By router, why its tables could not be read last, if so.
    unread: BTreeMap<String, String>,
    clock: Clock,
    next_read: Instant,
    next_picture: Instant,
    picture: Arc<Mutex<Picture>>,
    /// Whether something is to be written down.
    changed: bool,
    /// How many jobs there were, and had begun, when they were written down last.
    jobs_written: (usize, usize),
}

/// Nanoseconds since 1970, evenly.
#[derive(Clone, Copy, Debug)]
struct Clock {
    began: u64,
    since: std::time::Instant,
}

impl Clock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = u64::try_from(wall.as_nanos()).unwrap_or(0);
        Self { began, since: std::time::Instant::now() }
    }

    fn now(&self) -> Instant {
        let run = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(self.began.saturating_add(run))
    }
}

/// For how long routers are waited for at the end.
const FAREWELL: Duration = Duration::from_secs(3);
/// Events that are kept for the page.
const EVENTS: usize = 500;
/// How often the page's picture is drawn anew.
const PICTURE_EVERY: Duration = Duration::from_millis(250);

impl Daemon {
    /// Reads all tables, takes up what an earlier run knew, and listens. Nothing is steered before the
    /// lease is taken, in the first turns.
    ///
    /// # Errors
    /// `Io` when it cannot listen; what reading the tables fails with; `Installed` when they make no
    /// fabric.
    pub fn open(config: SteerConfig) -> Result<Self, SteerError> {
        let inventory = config.inventory()?;
        let fabric = Fabric::new(inventory.read_tables()?)?;
        let socket = intake::open(config.listen(), config.interface.as_deref())?;
        intake::warn_of_deafness(&config, &inventory);
        let clock = Clock::start();
        let now = clock.now();
        let controller = memory::restore(&config, fabric);
        let holder = format!("{}/{}/{}", host_name(), std::process::id(), now.as_nanos());
        let lease = Lease::new(holder, std::time::Duration::from_nanos(config.lease.as_nanos()));
        let (sender, outcomes) = channel();
        let mut workers = BTreeMap::new();
        for router in &inventory.routers {
            let started = Worker::start(router.clone(), lease.clone(), sender.clone())?;
            workers.insert(router.name.clone(), started);
        }
        let names = inventory.routers.iter().map(|router| router.name.clone());
        let leases = Leases::new(lease, names, config.lease, now);
        Ok(Self {
            collector: Collector::new(&inventory),
            next_read: now + config.read_every,
            next_picture: now,
            config,
            inventory,
            socket,
            controller,
            leases,
            workers,
            reading: BTreeSet::new(),
            outcomes,
            desk: Desk::open(),
            events: VecDeque::new(),
            happened: BTreeMap::new(),
            commands: BTreeMap::new(),
            unread: BTreeMap::new(),
            clock,
            picture: Arc::default(),
            changed: true,
            jobs_written: (0, 0),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// `Io` when the kernel does not say.
    pub fn listening(&self) -> Result<SocketAddr, SteerError> {
        self.socket.local_addr().map_err(SteerError::io("ask where it listens"))
    }

    /// What there is to see, kept up to date while the daemon runs.
    pub fn picture(&self) -> Arc<Mutex<Picture>> {
        Arc::clone(&self.picture)
    }

    /// The way to ask for a job's ports, from other threads.
    pub fn door(&self) -> Door {
        self.desk.door()
    }

    /// The engine.
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// What happened lately, the newest last.
    pub const fn events(&self) -> &VecDeque<Event> {
        &self.events
    }

    /// The commands that made a move, where this process made it.
    pub fn commands(&self, id: u64) -> Option<&[String]> {
        self.commands.get(&id).map(Vec::as_slice)
    }

    /// Runs until `stop` says so; then writes down what it knows and gives the lease back. Moves stay.
    ///
    /// # Errors
    /// `Io` when the socket fails or the state cannot be written.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), SteerError> {
        while !stop() {
            self.turn()?;
        }
        self.close()
    }

    /// Writes down what it knows and gives the lease back.
    ///
    /// # Errors
    /// `Io` when the state cannot be written.
    pub fn close(&mut self) -> Result<(), SteerError> {
        let told = self.workers.values().filter(|it| it.order(Job::Release)).count();
        memory::write(&self.config, &self.controller)?;
        let give_up = self.clock.now() + FAREWELL;
        let mut released = 0;
        while released < told {
            let left = give_up.since(self.clock.now()).as_nanos();
            match self.outcomes.recv_timeout(std::time::Duration::from_nanos(left)) {
                Ok(Outcome { result: Done::Released, .. }) => released += 1,
                Ok(_) => {}
                // One that hangs keeps its lease until that runs out.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Takes what has come in, does what is due, and waits for at most 20 ms.
    ///
    /// # Errors
    /// `Io` when the socket fails or the state cannot be written.
    pub fn turn(&mut self) -> Result<(), SteerError> {
        self.listen()?;
        let arrived: Vec<Outcome> = self.outcomes.try_iter().collect();
        for outcome in arrived {
            self.take(outcome);
        }
        let now = self.clock.now();
        if now >= self.next_read {
            self.next_read = now + self.config.read_every;
            // One that is still being read is not asked again: what is due waits behind it otherwise.
            for (name, worker) in &self.workers {
                if self.reading.insert(name.clone()) {
                    worker.order(Job::Read);
                }
            }
        }
        for router in self.leases.due(now) {
            self.order(&router, Job::Renew { asked: now });
        }
        let epoch = self.leases.epoch(now);
        self.controller.set_lease(epoch, now);
        self.controller.handle_timeout(now);
        let steers = epoch.map(drop).ok_or_else(|| self.leases.other.clone());
        let keep = |controller: &Controller| memory::write_jobs(&self.config, controller);
        self.desk.answer(&mut self.controller, steers, now, keep)?;
        self.act();
        if now >= self.next_picture {
            self.next_picture = now + PICTURE_EVERY;
            let picture = Picture::of(self, now);
            *self.picture.lock().unwrap_or_else(PoisonError::into_inner) = picture;
        }
        if std::mem::take(&mut self.changed) {
            memory::write(&self.config, &self.controller)?;
        }
        // Those that have begun, and those that are forgotten.
        let jobs = self.controller.jobs();
        let jobs = (jobs.len(), jobs.values().filter(|job| job.begun).count());
        if jobs != std::mem::replace(&mut self.jobs_written, jobs) {
            memory::write_jobs(&self.config, &self.controller)?;
        }
        Ok(())
    }

    fn take(&mut self, Outcome { router, result }: Outcome) {
        let now = self.clock.now();
        if matches!(result, Done::Read(_)) {
            self.reading.remove(&router);
        }
        match result {
            Done::Released => {}
            Done::Renewed { asked, result: Ok(()) } => self.leases.granted(&router, asked),
            Done::Renewed { result: Err(error), .. } => {
                for name in self.leases.refused(&router, &error, now) {
                    self.order(&name, Job::Release);
                }
            }
            Done::Changed { id, commands, result } => {
                self.changed = true;
                self.commands.insert(id, commands);
                let answer = result.map_err(|error| error.to_string());
                self.controller.handle_answer(id, answer, now);
            }
            Done::Read(Ok(read)) => {
                self.unread.remove(&router);
                if self.controller.handle_tables(read, now).is_err() {
                    self.read_fabric(now);
                }
            }
            Done::Read(Err(error)) => {
                let text = format!("its tables cannot be read: {error}; the last known stay");
                if self.unread.insert(router.clone(), text.clone()).is_none() {
                    self.note(Event {
                        at: now.as_nanos(),
                        what: What::Silent,
                        router,
                        port: String::new(),
                        id: None,
                        text,
                    });
                }
            }
        }
    }

    /// A router has other ports than before: the whole fabric is read again. Where that makes no fabric, the
    /// last one stays.
    fn read_fabric(&mut self, now: Instant) {
        let inventory = self.config.inventory();
        let read = inventory.and_then(|inventory| {
            let installed: Installed = inventory.read_tables()?;
            Ok((inventory, Fabric::new(installed)?))
        });
        match read {
            Ok((inventory, fabric)) => {
                self.collector.set_inventory(&inventory);
                self.inventory = inventory;
                self.controller.handle_fabric(fabric, now);
            }
            Err(error) => tracing::warn!(%error, "the fabric cannot be read; the last one stays"),
        }
    }

    /// Carries out what the engine orders, and notes what it says.
    fn act(&mut self) {
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
            self.note(event);
        }
    }

    fn order(&self, router: &str, job: Job) {
        // A router that has left the inventory is told nothing more.
        if let Some(worker) = self.workers.get(router) {
            worker.order(job);
        }
    }

    fn note(&mut self, event: Event) {
        let Event { what, router, port, id, text, .. } = &event;
        let what = format!("{what:?}").to_lowercase();
        tracing::info!(what, router, port, id, "{text}");
        self.changed = true;
        *self.happened.entry(event.what).or_default() += 1;
        self.events.push_back(event);
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }
}

/// What this machine calls itself, as far as a lease's holder may be called so.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = name.trim().chars().filter(plain).collect();
    if name.is_empty() { "controller".into() } else { name }
}
