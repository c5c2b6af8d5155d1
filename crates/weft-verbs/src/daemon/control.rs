//! The daemon's handling of messages.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use weft_rnic::{Context, Handle};
use weft_units::ByteCount;

use super::devices::change;
use super::events::cause_of;
use super::quotas::Kind;
use super::receive::Memory;
use super::tenant::{Contents, Tenant};
use super::{ClientId, Daemon, EventKind};
use crate::attach::{
    Answer, Description, DeviceState, PROTOCOL, Refusal, Request, Row, Signal, encode,
};
use crate::engine::command::{Command, Reply};
use crate::errno::Errno;

/// An answer, and the signal that is sent with it.
type Answered = (Answer, Option<Signal>);

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
                self.create(id, (&name).into(), owner, limits.into())?;
                without_signal(Answer::Done)
            }
            Request::List { after } => {
                let states = self.list(user, &after, false);
                without_signal(Answer::Devices(states.into_iter().map(Into::into).collect()))
            }
            Request::Show { name } => {
                without_signal(Answer::Device(self.show(user, &name)?.into()))
            }
            Request::Delete { name, force } => {
                self.delete(id, (&name).into(), force)?;
                without_signal(Answer::Done)
            }
            Request::CreateAll { names, owner, limits } => {
                self.create(id, names, owner, limits)?;
                without_signal(Answer::Done)
            }
            Request::DeleteAll { names, force } => {
                self.delete(id, names, force)?;
                without_signal(Answer::Done)
            }
            Request::States { after, used } => {
                without_signal(Answer::States(self.list(user, &after, used)))
            }
            Request::State { name } => without_signal(Answer::State(self.show(user, &name)?)),
            Request::Totals => without_signal(Answer::Totals(self.totals(user))),
            Request::Describe { name } => {
                let limits = self.devices.find(user, &name)?.limits.objects;
                let addresses = self.addresses.iter().map(Row::from).collect();
                without_signal(Answer::Description(Description { limits, addresses }))
            }
            Request::Attach { protocol, name, .. } => {
                let attached = self.attach(id, user, (protocol, name.clone()), memory);
                if let Err(refusal) = &attached {
                    self.count_event(EventKind::ClientRefused, cause_of(refusal), id, &name);
                }
                attached.map(|signal| (Answer::Attached, Some(signal)))
            }
            Request::Command(command) => without_signal(Answer::Reply(self.command(id, &command)?)),
            Request::Pages(_) => {
                Err(Refusal::new(libc::EINVAL, "only a virtual machine's relay accepts pages"))
            }
        }
    }

    fn attach(
        &mut self,
        id: ClientId,
        user: u32,
        (protocol, name): (u16, String),
        memory: Memory,
    ) -> Result<Signal, Refusal> {
        if protocol != PROTOCOL {
            let reason = "the program's libibverbs.so.1 is of another version of Weft than the daemon: install both from one \
                          version, then restart the daemon";
            return Err(Refusal::new(libc::EPROTO, reason));
        }
        if self.stalls.exclude(self.host.now(), user) {
            let reason = format!("memory of processes of user {user} stalls the device");
            return Err(Refusal::new(libc::EBUSY, reason));
        }
        if self.clients[&id].tenant.is_some() {
            return Err(Refusal::new(libc::EBUSY, "this connection is attached already"));
        }
        let state = self.state_of(&name, user)?;
        let limit = state.limits.objects.processes;
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
        let messages_per_second = state.limits.messages_per_second;
        let (tenant, signal) = Tenant::new(name, messages_per_second, memory).map_err(no_more)?;
        self.watch(tenant.signal.as_fd(), id, true).map_err(|errno| no_more(errno.into()))?;
        if let Some(used) = self.devices.used_mut(&tenant.device) {
            used.clients.insert(id);
        }
        self.active.wake(id, self.host.now());
        self.clients.get_mut(&id).expect("it asked").tenant = Some(tenant);
        Ok(signal)
    }

    /// Executes a command of an attached process, after the work that it posted before.
    fn command(&mut self, id: ClientId, command: &Command) -> Result<Reply, Refusal> {
        self.take_posted_work_of(id).map_err(|_| errno(Errno(libc::EPROTO)))?;
        // Unreliable requests complete when they leave, and a smaller completion queue has to hold their completions.
        let now = self.host.now();
        self.host.transmit(now);
        let client = &self.clients[&id];
        let tenant = client.tenant.as_ref();
        let tenant = tenant.ok_or_else(|| Refusal::new(libc::EINVAL, "not attached"))?;
        let (device, owner, user) = (tenant.device.clone(), tenant.owner(), client.user);
        let context = self.context_of(id, command).map_err(errno)?;
        let region = self.region_of(command);
        if let Err((cause, refusal)) = self.check_limits(&device, user, command, region) {
            self.count_event(EventKind::LimitReached, cause, id, &device);
            if let Some(tenant) = self.clients.get_mut(&id).and_then(|it| it.tenant.as_mut()) {
                tenant.counters.commands_refused += 1;
            }
            return Err(refusal);
        }
        if let Command::Route(_, peer, row) = *command
            && !self.is_route(peer, row)
        {
            return Err(errno(Errno(libc::EINVAL)));
        }
        let reply = self.host.execute(now, owner, command).map_err(errno)?;
        self.host.transmit(now);
        self.account(id, command, context, region, &reply);
        // Completions from before the command are delivered before its answer.
        self.deliver_all();
        Ok(reply)
    }

    /// Checks that a command exceeds no limit of the device and no quota of the user.
    ///
    /// # Errors
    /// Returns the name of the limit or the quota, and the refusal.
    fn check_limits(
        &self,
        device: &str,
        user: u32,
        command: &Command,
        region: Option<(Context, u64)>,
    ) -> Result<(), (&'static str, Refusal)> {
        let state = || self.state_of(device, user).map_err(|refusal| ("no-such-device", refusal));
        let check = |kind: Kind, has| {
            self.quotas.check(user, kind, has).map_err(|refusal| (kind.key(), refusal))
        };
        if let Some((kind, true)) = change(command) {
            let DeviceState { mut used, limits, .. } = state()?;
            let mut limits = limits.objects;
            if kind.of(&mut used) >= kind.of(&mut limits) {
                return Err((kind.name(), errno(Errno(libc::ENOMEM))));
            }
            check(kind, kind.of(&mut self.used_by(user)).map_or(0, |count| *count))?;
        }
        if matches!(command, Command::OpenContext) {
            check(Kind::Contexts, self.contexts_of(user))?;
        }
        let registers = match *command {
            Command::Register(_, region) => region.length,
            Command::Reregister { place: Some((_, length)), .. } => length,
            _ => return Ok(()),
        };
        let DeviceState { memory, limits, .. } = state()?;
        let (before, limit) = (region.map_or(0, |(_, length)| length), limits.memory);
        // Whatever the limit, the sum is a number of 64 bits.
        let limit = limit.unwrap_or(u64::MAX);
        if (memory - before).checked_add(registers).is_some_and(|total| total <= limit) {
            return Ok(());
        }
        let (has, more, limit) =
            (ByteCount(memory - before), ByteCount(registers), ByteCount(limit));
        let reason =
            format!("{device} has {has} registered and may have {limit}: {more} more do not fit");
        Err(("memory", Refusal::new(libc::ENOMEM, reason)))
    }

    /// Returns the context and the length of the region that a command changes or removes.
    fn region_of(&self, command: &Command) -> Option<(Context, u64)> {
        let (Command::Deregister(key) | Command::Reregister { key, .. }) = *command else {
            return None;
        };
        let device = &self.host.device;
        Some((device.context_of(Handle::Key(key))?, device.region_length(key)?))
    }

    /// Updates the counts after a command about an object of `context`, which changed or removed `region`.
    fn account(
        &mut self,
        id: ClientId,
        command: &Command,
        context: Option<Context>,
        region: Option<(Context, u64)>,
        reply: &Reply,
    ) {
        let Some(tenant) = self.clients.get_mut(&id).and_then(|client| client.tenant.as_mut())
        else {
            return;
        };
        match (command, reply) {
            (Command::OpenContext, Reply::Number(number)) => {
                tenant.contexts.insert(Context(*number), Contents::NONE);
                self.contexts.insert(Context(*number), id);
            }
            (Command::CloseContext(context), _) => {
                tenant.contexts.remove(context);
                self.contexts.remove(context);
            }
            _ => {}
        }
        if let (Some((kind, grows)), Some(context)) = (change(command), context)
            && let Some(contents) = tenant.contexts.get_mut(&context)
            && let Some(amount) = kind.of(&mut contents.objects)
        {
            *amount = if grows { *amount + 1 } else { amount.saturating_sub(1) };
        }
        // A region may move to a domain of another context.
        if let Some((from, length)) = region
            && let Some(contents) = tenant.contexts.get_mut(&from)
        {
            contents.memory -= length;
            contents.objects.regions -= u32::from(matches!(command, Command::Reregister { .. }));
        }
        let now_has = match *command {
            Command::Register(_, region) => Some((region.length, 0)),
            Command::Reregister { place, .. } => {
                let before = region.map_or(0, |(_, length)| length);
                Some((place.map_or(before, |(_, length)| length), 1))
            }
            _ => None,
        };
        if let (Some((length, regions)), Some(context)) = (now_has, context)
            && let Some(contents) = tenant.contexts.get_mut(&context)
        {
            contents.memory += length;
            contents.objects.regions += regions;
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
