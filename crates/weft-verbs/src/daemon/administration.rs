//! The requests of `weft device`: devices are made, deleted, listed and shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_units::ByteCount;

use super::devices::{Change, sum};
use super::quotas::Kind;
use super::tenant::Tenant;
use super::{ClientId, Daemon, EventKind};
use crate::attach::{
    Amounts, DeviceCounters, DeviceLimits, DeviceState, MAX_MESSAGE, Names, Refusal, Totals, encode,
};
use crate::engine::{blocking, describe_held};

/// Maximum number of a device's processes that one answer lists.
const MAX_PROCESSES: usize = 1 << 10;

impl Daemon {
    /// Returns the state of all devices together and the quotas of user `user`, in rows of name and value.
    fn describe(&self, user: u32) -> Vec<(String, String)> {
        let device = &self.host.device;
        let held = ByteCount(device.held_bytes());
        let now = [
            ("held bytes now", held.to_string()),
            ("packets not held", device.held_refused().to_string()),
        ];
        let now = now.map(|(name, value)| (name.to_owned(), value));
        let own = (self.devices.count_of(user), self.contexts_of(user));
        let quotas = self.quotas.describe(user, own, self.used_by(user));
        describe_held(device.limits()).into_iter().chain(now).chain(quotas).collect()
    }

    /// Returns the amounts that the processes of a user have together.
    pub(super) fn used_by(&self, user: u32) -> Amounts {
        let clients = self.clients.values().filter(|client| client.user == user);
        let tenants = clients.filter_map(|client| client.tenant.as_ref());
        tenants.map(Tenant::used).fold(Amounts::NONE, sum)
    }

    /// Returns the number of contexts that the processes of a user have together.
    pub(super) fn contexts_of(&self, user: u32) -> u32 {
        let clients = self.clients.values().filter(|client| client.user == user);
        let tenants = clients.filter_map(|client| client.tenant.as_ref());
        let count: usize = tenants.map(|tenant| tenant.contexts.len()).sum();
        u32::try_from(count).expect("a device has fewer contexts")
    }

    pub(super) fn state_of(&self, name: &str, user: u32) -> Result<DeviceState, Refusal> {
        let device = self.devices.find(user, name)?;
        let mut state = DeviceState {
            name: name.into(),
            owner: device.owner,
            limits: device.limits,
            used: Amounts::NONE,
            memory: 0,
            counters: DeviceCounters::default(),
            processes: Vec::new(),
            transport: Vec::new(),
            daemon: Vec::new(),
        };
        let Some(used) = self.devices.used(name) else { return Ok(state) };
        state.counters = used.counters;
        for client in used.clients.iter().filter_map(|id| self.clients.get(id)) {
            if let Some(tenant) = &client.tenant {
                state.used = sum(state.used, tenant.used());
                state.memory += tenant.memory();
                state.counters.add(&tenant.counters);
                state.processes.push(client.process);
            }
        }
        state.processes.truncate(MAX_PROCESSES);
        Ok(state)
    }

    pub(super) fn show(&self, user: u32, name: &str) -> Result<DeviceState, Refusal> {
        let state = self.state_of(name, user)?;
        let (transport, daemon) = (self.host.transport.clone(), self.describe(user));
        Ok(DeviceState { transport, daemon, ..state })
    }

    /// Returns as many devices as fit into a message; with `used` only those that a process has used.
    pub(super) fn list(&self, user: u32, after: &str, used: bool) -> Vec<DeviceState> {
        let (mut listed, mut bytes, mut room) = (Vec::new(), Vec::new(), MAX_MESSAGE / 2);
        for name in self.devices.after(user, after, used) {
            let Ok(state) = self.state_of(name, user) else { break };
            encode(&state, &mut bytes);
            let Some(left) = room.checked_sub(bytes.len()) else { break };
            room = left;
            listed.push(state);
        }
        listed
    }

    pub(super) fn totals(&self, user: u32) -> Totals {
        let mut totals = Totals { devices: self.devices.count_for(user), ..Totals::default() };
        for name in self.devices.after(user, "", true) {
            let Ok(state) = self.state_of(name, user) else { continue };
            totals.attached += u32::from(state.used.processes > 0);
            totals.processes += state.used.processes;
            totals.queue_pairs += state.used.queue_pairs;
            totals.memory = totals.memory.saturating_add(state.memory);
            totals.counters.add(&state.counters);
        }
        totals
    }

    pub(super) fn create(
        &mut self,
        id: ClientId,
        names: Names,
        owner: Option<u32>,
        limits: DeviceLimits,
    ) -> Result<(), Refusal> {
        let user = self.clients[&id].user;
        let change = self.devices.check_creation(user, names, owner, limits, &self.quotas);
        if change.as_ref().is_err_and(|refusal| refusal.errno == libc::EDQUOT) {
            self.count_event(EventKind::LimitReached, Kind::Devices.key(), id, "");
        }
        self.apply(id, change?)
    }

    /// Makes a client's change of the devices, in the file that keeps them first.
    fn apply(&mut self, id: ClientId, change: Change) -> Result<(), Refusal> {
        let made = self.keep_and_apply(change);
        made.map_err(|(cause, reason)| {
            self.count_event(EventKind::ChangeNotKept, cause, id, "");
            Refusal::new(libc::EIO, reason)
        })
    }

    /// Makes a change of the devices, in the file that keeps them first.
    ///
    /// # Errors
    /// Returns the cause for which it cannot be kept, and the reason in words.
    fn keep_and_apply(&mut self, change: Change) -> Result<(), (&'static str, String)> {
        let Some(kept) = self.kept.clone() else {
            self.devices.apply(&change);
            return Ok(());
        };
        if self.disk.keeps_a_thread() {
            let reason =
                "the disk does not answer, so no change can be kept: try again when it does";
            return Err(("disk", reason.into()));
        }
        let (change, decided) = (Arc::new(change), Arc::new(AtomicBool::new(false)));
        let (of_thread, decided_there) = (change.clone(), decided.clone());
        let (written, stall) = blocking::run(move || {
            if decided_there.load(Ordering::Acquire) {
                return Ok(());
            }
            kept.append(&of_thread, || !decided_there.swap(true, Ordering::AcqRel))
        });
        self.disk = stall;
        match written {
            Some(Err(error)) => {
                let reason = error.reason();
                let reason = format!("the change is not made, because it cannot be kept: {reason}");
                Err(("file", reason))
            }
            // The thread that was given up takes the change back, or does not write it.
            None if !decided.swap(true, Ordering::AcqRel) => {
                let reason = "the change is not made, because the disk does not answer: try again when it does";
                Err(("disk", reason.into()))
            }
            Some(Ok(())) | None => {
                self.devices.apply(&change);
                Ok(())
            }
        }
    }

    pub(super) fn delete(
        &mut self,
        id: ClientId,
        names: Names,
        force: bool,
    ) -> Result<(), Refusal> {
        let user = self.clients[&id].user;
        names.iter().try_for_each(|name| self.check_deletion(user, &name, force))?;
        let used = names.iter().filter_map(|name| Some(self.devices.used(&name)?.clients.clone()));
        let clients: Vec<ClientId> = used.flatten().collect();
        if clients.contains(&id) {
            // It could not be ended with the device, because it is to get the answer.
            let reason =
                "this connection is attached to the device: delete the device over another one";
            return Err(Refusal::new(libc::EBUSY, reason));
        }
        self.apply(id, Change::Delete { names })?;
        for other in clients {
            self.end_client(other, Some("its device was deleted"));
        }
        Ok(())
    }

    fn check_deletion(&self, user: u32, name: &str, force: bool) -> Result<(), Refusal> {
        let state = self.state_of(name, user)?;
        let attached = state.used.processes;
        if attached == 0 || force {
            return Ok(());
        }
        let first: Vec<_> = state.processes.iter().take(8).map(u32::to_string).collect();
        let reason = format!(
            "{name} is in use by {attached} processes ({}): end them, or say --force",
            first.join(", ")
        );
        Err(Refusal::new(libc::EBUSY, reason))
    }
}
