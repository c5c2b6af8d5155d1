//! A context: a node, its events for the program, the program's registered memory, and the times of traced calls.

use core::ffi::{c_int, c_void};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;

use slotmap::SecondaryMap;
use weft_msg::{
    Block, CallRole, ChannelId, CloseReason, Decomposition, Event as MsgEvent, Message, Payload,
    SendError, Slice,
};
use weft_units::Duration;
use weft_xrdma::{CallError, Event, Lending, Node, Options};

use crate::failure::{Failure, Outcome};
use crate::handle::Slab;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) node: Node,
    /// Handles of the channels that the program knows.
    handles: SecondaryMap<ChannelId, usize>,
    /// Events that the program has not received yet.
    pub(crate) events: VecDeque<Event>,
    /// The times of traced calls whose responses the program has not received yet, by channel and request.
    traces: BTreeMap<(ChannelId, u64), Decomposition>,
    /// Registered memory of the program with its requested length in bytes, by address.
    memory: BTreeMap<usize, (Block, usize)>,
    /// The registered memory that messages in progress use.
    lending: Lending,
    /// Texts of the events that the last xrdma_polling(3) returned.
    pub(crate) texts: Vec<CString>,
}

/// A channel as the program knows it.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The handle of its context.
    pub(crate) context: usize,
    pub(crate) id: ChannelId,
    pub(crate) user_data: *mut c_void,
}

/// The ways to send a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sending {
    OneWay,
    Request,
    Response(u64),
}

impl Context {
    pub(crate) fn new(options: Options) -> Outcome<Self> {
        Ok(Self {
            node: Node::new(options)?,
            handles: SecondaryMap::new(),
            events: VecDeque::new(),
            traces: BTreeMap::new(),
            memory: BTreeMap::new(),
            lending: Lending::default(),
            texts: Vec::new(),
        })
    }

    /// Returns the handle of a channel, and creates it if the program has none.
    pub(crate) fn channel_handle(
        &mut self,
        channels: &mut Slab<Channel>,
        context: usize,
        id: ChannelId,
    ) -> Outcome<usize> {
        if let Some(known) = self.handles.get(id) {
            return Ok(*known);
        }
        let channel = Channel { context, id, user_data: core::ptr::null_mut() };
        let handle = channels.insert(channel)?;
        self.handles.insert(id, handle);
        Ok(handle)
    }

    /// Returns the handle of a channel, if the program has one.
    pub(crate) fn known_handle(&self, id: ChannelId) -> Option<usize> {
        self.handles.get(id).copied()
    }

    /// Removes and returns the handle of a channel that is gone.
    pub(crate) fn forget(&mut self, id: ChannelId) -> Option<usize> {
        self.traces.retain(|(of, _), _| *of != id);
        self.handles.remove(id)
    }

    /// Polls the node and queues the events for the program.
    pub(crate) fn queue_events(
        &mut self,
        channels: &mut Slab<Channel>,
        handle: usize,
    ) -> Outcome<()> {
        while let Some(event) = self.node.poll_event() {
            if let Event::Channel(channel_event) = &event {
                self.lending.ingest(channel_event);
            }
            match event {
                Event::Connected { channel, .. } => {
                    self.channel_handle(channels, handle, channel)?;
                }
                // A channel that this end opened was reported as connected.
                Event::Channel(MsgEvent::Open { channel }) => {
                    if self.handles.contains_key(channel) {
                        continue;
                    }
                    self.channel_handle(channels, handle, channel)?;
                }
                Event::Channel(MsgEvent::Traced { channel, id, time }) => {
                    self.traces.insert((channel, id), time);
                    continue;
                }
                // A filter rule delayed the message until its channel had ended.
                Event::Channel(MsgEvent::Message { channel, message })
                    if !self.handles.contains_key(channel) =>
                {
                    self.release(message);
                    continue;
                }
                // The channel ended before it was open.
                Event::Channel(MsgEvent::Closed { channel, .. })
                    if !self.handles.contains_key(channel) =>
                {
                    continue;
                }
                _ => {}
            }
            self.events.push_back(event);
        }
        Ok(())
    }

    /// Waits until there is an event for the program. Returns `false` after the timeout.
    pub(crate) fn wait(
        &mut self,
        channels: &mut Slab<Channel>,
        handle: usize,
        timeout: Option<Duration>,
    ) -> Outcome<bool> {
        let until = timeout.map(|timeout| self.node.now() + timeout);
        loop {
            self.queue_events(channels, handle)?;
            if !self.events.is_empty() {
                return Ok(true);
            }
            let left = until.map(|until| until.since(self.node.now()));
            if !self.node.wait(left) {
                return Ok(false);
            }
        }
    }

    /// Sends a message and returns its number.
    pub(crate) fn send(
        &mut self,
        channel: ChannelId,
        how: Sending,
        body: Payload<'_>,
    ) -> Result<u64, SendError> {
        let (now, context) = (self.node.now(), self.node.context());
        let number = match how {
            Sending::OneWay => context.send(now, channel, body),
            Sending::Request => context.request(now, channel, body),
            Sending::Response(request) => context.respond(now, channel, request, body),
        }?;
        if let Payload::Lent(memory) = body {
            self.lending.lend(channel, number, memory);
        }
        Ok(number)
    }

    /// Sends a request and waits for its response; other events stay queued.
    pub(crate) fn call(
        &mut self,
        channels: &mut Slab<Channel>,
        handle: usize,
        channel: ChannelId,
        body: Payload<'_>,
        timeout: Option<Duration>,
    ) -> Outcome<Message> {
        let request = self.send(channel, Sending::Request, body)?;
        let until = timeout.map(|timeout| self.node.now() + timeout);
        loop {
            self.queue_events(channels, handle)?;
            if let Some(answer) = self.take_answer(channel, request) {
                return answer.map_err(|reason| CallError::Closed(reason).into());
            }
            let left = until.map(|until| until.since(self.node.now()));
            if !self.node.wait(left) {
                self.node.context().cancel(channel, request);
                return Err(CallError::TimedOut.into());
            }
        }
    }

    /// Takes the response to a request, or the reason why there is none, from the queued events.
    fn take_answer(&mut self, of: ChannelId, request: u64) -> Option<Result<Message, CloseReason>> {
        for (at, event) in self.events.iter().enumerate() {
            match event {
                Event::Channel(MsgEvent::Message { channel, message })
                    if *channel == of && message.call == CallRole::Response(request) =>
                {
                    let Some(Event::Channel(MsgEvent::Message { message, .. })) =
                        self.events.remove(at)
                    else {
                        unreachable!("it was there just now");
                    };
                    return Some(Ok(message));
                }
                // The program still receives the event.
                Event::Channel(MsgEvent::Closed { channel, reason }) if *channel == of => {
                    return Some(Err(*reason));
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the times of the call that a message answers.
    pub(crate) fn take_trace(
        &mut self,
        channel: ChannelId,
        message: &Message,
    ) -> Option<Decomposition> {
        let CallRole::Response(id) = message.call else { return None };
        self.traces.remove(&(channel, id))
    }

    pub(crate) fn release(&mut self, message: Message) {
        let now = self.node.now();
        self.node.context().release(now, message);
    }

    /// Registers memory and returns its address.
    ///
    /// # Errors
    /// The length is not from 1 to `u32::MAX`, or no memory is left.
    pub(crate) fn register(&mut self, len: usize) -> Outcome<usize> {
        let requested = u32::try_from(len).ok().filter(|len| *len > 0);
        let requested = requested.ok_or_else(|| {
            Failure::argument(format!("memory of {len} bytes: 1 to {} can be registered", u32::MAX))
        })?;
        let block = self.node.context().allocate(requested)?;
        let address = pointer(block.slice());
        self.memory.insert(address, (block, len));
        Ok(address)
    }

    /// Frees registered memory.
    ///
    /// # Errors
    /// No memory begins at the address, or it is lent (EBUSY).
    pub(crate) fn deregister(&mut self, address: usize) -> Outcome<c_int> {
        let known = self.memory.get(&address);
        let (block, _) = known.ok_or_else(|| {
            Failure::argument(format!("{address:#x} is not where registered memory begins"))
        })?;
        if self.lending.is_lent(block.slice()) {
            let why = "the memory is lent to a message that is not delivered yet";
            return Err(Failure::new(libc::EBUSY, why));
        }
        let (block, _) = self.memory.remove(&address).expect("found just now");
        let now = self.node.now();
        self.node.context().free(now, block);
        Ok(0)
    }

    /// Returns the location of a body in registered memory.
    ///
    /// # Errors
    /// EFAULT if the body is not in registered memory of the program.
    pub(crate) fn lent_slice(&self, address: usize, len: usize) -> Outcome<Slice> {
        let before = self.memory.range(..=address).next_back();
        let piece = before.and_then(|(base, (block, registered))| {
            let within = address - base <= registered.checked_sub(len)?;
            let slice = block.slice();
            let address = slice.address + (address - base) as u64;
            within.then_some(Slice { address, len: u32::try_from(len).ok()?, ..slice })
        });
        piece.ok_or_else(|| {
            let why = format!("{len} bytes at {address:#x} are not in memory of xrdma_reg_mem");
            Failure::new(libc::EFAULT, why)
        })
    }
}

/// Returns the address of a piece of registered memory in this process.
pub(crate) fn pointer(slice: Slice) -> usize {
    usize::try_from(slice.address).expect("a pointer's bits")
}
