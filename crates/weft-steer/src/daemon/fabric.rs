//! The whole fabric, read again while the daemon runs. Routers may take as long as a command may, so a thread of its own
//! waits for them: the loop keeps its leases and answers its supervisor meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use weft_route::{Fabric, Installed};
use weft_units::Instant;

use super::worker::{Job, Worker};
use super::{Daemon, ReadInventory, start_workers};
use crate::tables::SomeTables;
use crate::{Inventory, RouterEntry, SteerConfig, SteerError};

/// The routers, the fabric, and the names of routers that did not answer: they are as last read.
type Answer = (Inventory, Fabric, BTreeSet<String>);

/// A pending read of the whole fabric.
#[derive(Debug)]
pub(super) struct FabricRead {
    result: Receiver<Result<Answer, SteerError>>,
    /// `true` if a change of a router ended meanwhile: its tables may be those from before.
    pub(super) is_outdated: bool,
}

impl FabricRead {
    /// Starts the thread that reads.
    ///
    /// # Errors
    /// Returns `Io` if no thread can be started.
    fn start(
        config: SteerConfig,
        read_inventory: ReadInventory,
        known: Installed,
    ) -> Result<Self, SteerError> {
        let (sender, result) = channel();
        let read = move || {
            let inventory = read_inventory(&config)?;
            let SomeTables { installed, silent } = inventory.read_some_tables(&known)?;
            Ok((inventory, Fabric::new(installed)?, silent.into_keys().collect()))
        };
        thread::Builder::new()
            .name("fabric".into())
            // The daemon may have ended meanwhile.
            .spawn(move || drop(sender.send(read())))
            .map_err(SteerError::io("start a thread"))?;
        Ok(Self { result, is_outdated: false })
    }
}

impl Daemon {
    /// Begins to read the whole fabric again, because a router has other ports than before.
    pub(super) fn read_fabric(&mut self) {
        if self.fabric_read.is_some() {
            return;
        }
        let known = self.controller.fabric().installed().clone();
        match FabricRead::start(self.config.clone(), self.read_inventory, known) {
            Ok(read) => self.fabric_read = Some(read),
            Err(error) => warn_kept(&error),
        }
    }

    /// Records that a router's tables have changed since a pending read of the fabric began.
    pub(super) fn outdate_fabric_read(&mut self) {
        if let Some(read) = &mut self.fabric_read {
            read.is_outdated = true;
        }
    }

    /// Takes the fabric that was read, if it is there. If the result is no fabric, the last one stays.
    pub(super) fn poll_fabric(&mut self, now: Instant) {
        let Some(read) = &self.fabric_read else { return };
        let is_outdated = read.is_outdated;
        let result = match read.result.try_recv() {
            Err(TryRecvError::Empty) => return,
            result => result,
        };
        self.fabric_read = None;
        match result {
            Ok(Ok(_)) if is_outdated => self.read_fabric(),
            Ok(Ok((inventory, fabric, silent))) => match self.start_new_workers(&inventory) {
                Ok(started) => {
                    self.collector.set_inventory(&inventory);
                    self.set_inventory(inventory, started, now);
                    self.controller.handle_fabric(fabric, &silent, now);
                }
                Err(error) => warn_kept(&error),
            },
            Ok(Err(error)) => warn_kept(&error),
            Err(error) => tracing::warn!(%error, "the thread that reads the fabric has ended"),
        }
    }

    /// Starts the threads of routers that are new or have changed.
    fn start_new_workers(
        &self,
        inventory: &Inventory,
    ) -> Result<BTreeMap<String, Worker>, SteerError> {
        let is_new = |router: &&RouterEntry| !self.inventory.routers.contains(router);
        let new: Vec<_> = inventory.routers.iter().filter(is_new).cloned().collect();
        start_workers(&new, self.leases.lease(), &self.sender)
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
}

fn warn_kept(error: &SteerError) {
    tracing::warn!(%error, "the fabric cannot be read; the last one is kept");
}
