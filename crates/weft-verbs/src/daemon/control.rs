//! The daemon's handling of messages.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use weft_rnic::{Context, Handle};
use weft_units::ByteCount;

use super::devices::{change, sum};
use super::quotas::Kind;
use super::receive::Memory;
use super::tenant::Tenant;
use super::{ClientId, Daemon};
use crate::attach::{
    Amounts, Answer, Description, DeviceState, MAX_MESSAGE, PROTOCOL, Refusal, Request, Row,
    Signal, encode,
};
use crate::engine::command::{Command, Reply};
use crate::engine::describe_held;
use crate::errno::Errno;

/// An answer, and the signal that is sent with it.
type Answered = (Answer, Option<Signal>);

/// Maximum number of a device's processes that one answer lists.
const MAX_PROCESSES: usize = 1 << 10;

fn errno(Errno(number): Errno) -> Refusal {
    Refusal::new(number, io::Error::from_raw_os_error(number).to_string())
}

impl Daemon {
    /// Handles a client's next message; returns `false` when it has closed or sent an invalid one. A client reads each
    /// answer before its next request; one that does not waits its turn, because a ring of work may come with each.
    pub(super) fn handle_message(&mut self, id: ClientId) -> bool {
        let mut message = core::mem::take(&mut self.message);
        let is_valid = self.answer_one(id, &mut message).unwrap_or(true);
        self.message = message;
        is_valid && self.clients.contains_key(&id)
    }

    /// Answers one message; returns `None` when there is none, `Some(false)` when the client is to be ended.
    fn answer_one(&mut self, id: ClientId, message: &mut Vec<u8>) -> Option<bool> {
        let (request, memory) = match self.receive(id, message) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(None) | Err(_) => return Some(false),
        };
        let answer = match request {
            Some(request) => self.act(id, request, memory),
            None => Err(Refusal::new(
                libc::EPROTO,
                "the daemon cannot decode this message: it is of another version of Weft",
            )),
        };
        let (answer, signal) = match answer {
            Ok((answer, signal)) => (Ok(answer), signal),
            Err(refusal) => (Err(refusal), None),
        };
        encode::<Result<Answer, Refusal>>(&answer, message);
        let client = self.clients.get(&id)?;
        let page = client.tenant.as_ref().map(|tenant| tenant.page.file());
        let descriptors: Vec<_> = match &signal {
            Some(signal) => page.into_iter().chain([signal.as_fd()]).collect(),
            None => Vec::new(),
        };
        // A client reads each answer before its next request, so that there is room.
        Some(client.socket.send(message, &descriptors, true).is_ok())
    }

    /// Executes a request of client `id`. Returns the answer, and the signal's other end for a client that attaches.
    ///
    /// # Errors
    /// The daemon refuses it.
    pub(super) fn act(
        &mut self,
        id: ClientId,
        request: Request,
        memory: Memory,
    ) -> Result<Answered, Refusal> {
        let user = self.clients[&id].user;
        let without_signal = |answer| Ok((answer, None));
        match request {
            Request::Create { name, owner, limits } => {
                self.devices.create(user, &name, owner, limits, &self.quotas)?;
                without_signal(Answer::Done)
            }
            Request::List { after } => without_signal(Answer::Devices(self.list(user, &after))),
            Request::Show { name } => {
                self.devices.find(user, &name)?;
                let (transport, daemon) = (self.host.transport.clone(), self.describe(user));
                let state = self.state_of(&name, user)?;
                without_signal(Answer::Device(DeviceState { transport, daemon, ..state }))
            }
            Request::Delete { name, force } => {
                self.delete(id, user, &name, force)?;
                without_signal(Answer::Done)
            }
            Request::Describe { name } => {
                let limits = self.devices.find(user, &name)?.limits;
                let addresses = self.addresses.iter().map(Row::from).collect();
                without_signal(Answer::Description(Description { limits, addresses }))
            }
            Request::Attach { protocol, .. } if protocol != PROTOCOL => Err(Refusal::new(
                libc::EPROTO,
                "the program's libibverbs.so.1 is of another version of Weft than the daemon: install both from one version, \
                 then restart the daemon",
            )),
            Request::Attach { name, .. } => {
                let signal = self.attach(id, user, name, memory)?;
                Ok((Answer::Attached, Some(signal)))
            }
            Request::Command(command) => without_signal(Answer::Reply(self.command(id, &command)?)),
        }
    }

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
    fn contexts_of(&self, user: u32) -> u32 {
        let clients = self.clients.values().filter(|client| client.user == user);
        let tenants = clients.filter_map(|client| client.tenant.as_ref());
        let count: usize = tenants.map(|tenant| tenant.contexts.len()).sum();
        u32::try_from(count).expect("a device has fewer contexts")
    }

    fn state_of(&self, name: &str, user: u32) -> Result<DeviceState, Refusal> {
        let device = self.devices.find(user, name)?;
        let mut state = DeviceState {
            name: name.into(),
            owner: device.owner,
            limits: device.limits,
            used: Amounts::NONE,
            processes: Vec::new(),
            transport: Vec::new(),
            daemon: Vec::new(),
        };
        for client in self.clients.values() {
            if let Some(tenant) = client.tenant.as_ref().filter(|tenant| tenant.device == name) {
                state.used = sum(state.used, tenant.used());
                state.processes.push(client.process);
            }
        }
        state.processes.truncate(MAX_PROCESSES);
        Ok(state)
    }

    /// Returns as many devices as fit into a message.
    fn list(&self, user: u32, after: &str) -> Vec<DeviceState> {
        let (mut listed, mut bytes, mut room) = (Vec::new(), Vec::new(), MAX_MESSAGE / 2);
        for (name, _) in self.devices.after(user, after) {
            let Ok(state) = self.state_of(name, user) else { break };
            encode(&state, &mut bytes);
            let Some(left) = room.checked_sub(bytes.len()) else { break };
            room = left;
            listed.push(state);
        }
        listed
    }

    fn delete(&mut self, id: ClientId, user: u32, name: &str, force: bool) -> Result<(), Refusal> {
        let state = self.state_of(name, user)?;
        let attached = state.used.processes;
        if attached > 0 && !force {
            let first: Vec<_> = state.processes.iter().take(8).map(u32::to_string).collect();
            let reason = format!(
                "{name} is in use by {attached} processes ({}): end them, or say --force",
                first.join(", ")
            );
            return Err(Refusal::new(libc::EBUSY, reason));
        }
        self.devices.remove(name);
        let of_it = |client: &super::Client| {
            client.tenant.as_ref().is_some_and(|tenant| tenant.device == name)
        };
        let clients = self.clients.iter().filter(|(other, client)| **other != id && of_it(client));
        for other in clients.map(|(&other, _)| other).collect::<Vec<_>>() {
            self.end_client(other, Some("its device was deleted"));
        }
        Ok(())
    }

    fn attach(
        &mut self,
        id: ClientId,
        user: u32,
        name: String,
        memory: Memory,
    ) -> Result<Signal, Refusal> {
        if self.stalls.exclude(self.host.now(), user) {
            let reason = format!("memory of processes of user {user} stalls the device");
            return Err(Refusal::new(libc::EBUSY, reason));
        }
        if self.clients[&id].tenant.is_some() {
            return Err(Refusal::new(libc::EBUSY, "this connection is attached already"));
        }
        let state = self.state_of(&name, user)?;
        let limit = state.limits.processes;
        if state.used.processes >= limit {
            let reason = format!("{limit} processes are attached, which is the device's limit");
            return Err(Refusal::new(libc::EUSERS, reason));
        }
        let memory = memory.map_err(|reason| Refusal::new(libc::EPERM, reason.to_string()))?;
        let none = || Refusal::new(libc::EPROTO, "no memory came with the message");
        let memory = memory.ok_or_else(none)?;
        let no_more = |error: io::Error| {
            Refusal::new(Errno::from_io(&error).0, format!("the daemon has no more room: {error}"))
        };
        let (tenant, signal) = Tenant::new(name, memory).map_err(no_more)?;
        self.watch(tenant.signal.as_fd(), id, true).map_err(|errno| no_more(errno.into()))?;
        self.clients.get_mut(&id).expect("it asked").tenant = Some(tenant);
        Ok(signal)
    }

    /// Executes a command of an attached process, after the work that it posted before.
    fn command(&mut self, id: ClientId, command: &Command) -> Result<Reply, Refusal> {
        self.take_posted_work_of(id).map_err(|_| errno(Errno(libc::EPROTO)))?;
        let client = &self.clients[&id];
        let tenant = client.tenant.as_ref();
        let tenant = tenant.ok_or_else(|| Refusal::new(libc::EINVAL, "not attached"))?;
        let (device, owner) = (tenant.device.clone(), tenant.owner());
        let context = self.context_of(id, command).map_err(errno)?;
        let change = change(command);
        if let Some((kind, true)) = change {
            let mut state = self.state_of(&device, client.user)?;
            if kind.of(&mut state.used) >= kind.of(&mut state.limits) {
                return Err(errno(Errno(libc::ENOMEM)));
            }
            let has = kind.of(&mut self.used_by(client.user)).map_or(0, |count| *count);
            self.quotas.check(client.user, kind, has)?;
        }
        if matches!(command, Command::OpenContext) {
            self.quotas.check(client.user, Kind::Contexts, self.contexts_of(client.user))?;
        }
        if let Command::Route(_, peer, row) = *command
            && !self.is_route(peer, row)
        {
            return Err(errno(Errno(libc::EINVAL)));
        }
        let now = self.host.now();
        let reply = self.host.execute(now, owner, command).map_err(errno)?;
        self.host.transmit(now);
        self.account(id, command, context, &reply);
        // Completions from before the command are delivered before its answer.
        self.deliver_all();
        Ok(reply)
    }

    /// Updates the counts after a command.
    fn account(
        &mut self,
        id: ClientId,
        command: &Command,
        context: Option<Context>,
        reply: &Reply,
    ) {
        let Some(tenant) = self.clients.get_mut(&id).and_then(|client| client.tenant.as_mut())
        else {
            return;
        };
        match (command, reply) {
            (Command::OpenContext, Reply::Number(number)) => {
                tenant.contexts.insert(Context(*number), Amounts::NONE);
                self.contexts.insert(Context(*number), id);
            }
            (Command::CloseContext(context), _) => {
                tenant.contexts.remove(context);
                self.contexts.remove(context);
            }
            _ => {}
        }
        if let (Some((kind, grows)), Some(context)) = (change(command), context)
            && let Some(amounts) = tenant.contexts.get_mut(&context)
            && let Some(amount) = kind.of(amounts)
        {
            *amount = if grows { *amount + 1 } else { amount.saturating_sub(1) };
        }
    }

    /// Returns the context that a command is about.
    ///
    /// # Errors
    /// The command names an object that is not this client's.
    fn context_of(&self, id: ClientId, command: &Command) -> Result<Option<Context>, Errno> {
        let mut context = command.context();
        if context.is_some_and(|context| self.contexts.get(&context) != Some(&id)) {
            return Err(Errno(libc::EINVAL));
        }
        for handle in command.handles() {
            context = Some(self.owned(id, handle).ok_or(Errno(libc::EINVAL))?);
        }
        Ok(context)
    }

    /// Returns the context of a client's own object.
    pub(super) fn owned(&self, id: ClientId, handle: Handle) -> Option<Context> {
        let context = self.host.device.context_of(handle)?;
        (self.contexts.get(&context) == Some(&id)).then_some(context)
    }

    /// Returns `true` if a host is reachable from the address in this row.
    fn is_route(&self, peer: IpAddr, row: u32) -> bool {
        let own = usize::try_from(row).ok().and_then(|row| self.addresses.get(row));
        let is_own = self.addresses.iter().any(|address| address.ip == peer);
        own.is_some_and(|own| {
            own.ip.is_ipv4() == peer.is_ipv4() && (!own.ip.is_loopback() || is_own)
        })
    }
}
