//! The report of the thread that speaks BGP to the daemon.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use weft_evpn::{Change, NeighbourView};
use weft_wire::MacAddr;

/// Changes of entries that the daemon has not made; later ones replace earlier ones.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) machines: BTreeMap<(u32, MacAddr), Option<IpAddr>>,
    pub(super) addresses: BTreeMap<(u32, IpAddr), Option<MacAddr>>,
    pub(super) vteps: BTreeMap<u32, BTreeMap<IpAddr, bool>>,
}

/// The state and the changes that the thread reports.
#[derive(Debug, Default)]
pub(super) struct Report {
    changes: Changes,
    pub(super) neighbours: Vec<NeighbourView>,
    pub(super) duplicates: Vec<(u32, MacAddr)>,
}

/// The part that the thread shares with the daemon.
#[derive(Debug)]
pub(super) struct Shared {
    report: Mutex<Report>,
    /// Readable while there are changes that the daemon has not taken.
    event: OwnedFd,
    /// Readable while there are commands that the thread has not taken.
    wake: OwnedFd,
}

impl Changes {
    fn add(&mut self, change: Change) {
        match change {
            Change::Machine { vni, mac, at } => {
                self.machines.insert((vni, mac), at);
            }
            Change::Address { vni, address, mac } => {
                self.addresses.insert((vni, address), mac);
            }
            Change::Vteps { vni, vteps } => {
                self.vteps.insert(vni, vteps);
            }
        }
    }
}

impl Shared {
    /// Opens the descriptors.
    pub(super) fn open() -> Result<Self, Errno> {
        let open = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self { report: Mutex::default(), event: open()?, wake: open()? })
    }

    /// Returns the descriptor that is readable while there are changes.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Returns the descriptor that is readable while there are commands.
    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        // Only a counter that is full refuses, and that one is readable.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes the changes since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        // The event is reset first: a change that comes later is readable again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        std::mem::take(&mut lock(&self.report).changes)
    }

    pub(super) fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.report)
    }

    /// Adds changes to those that the daemon has not taken, and replaces the states of neighbours.
    pub(super) fn publish(
        &self,
        changes: impl Iterator<Item = Change>,
        neighbours: Vec<NeighbourView>,
        duplicates: Vec<(u32, MacAddr)>,
    ) {
        let mut report = lock(&self.report);
        let mut is_new = false;
        for change in changes {
            is_new = true;
            report.changes.add(change);
        }
        (report.neighbours, report.duplicates) = (neighbours, duplicates);
        drop(report);
        if is_new {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    pub(super) fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
