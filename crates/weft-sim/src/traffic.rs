//! Channels (connections, seen from outside) and the messages on them.
//!
//! Engines know connection ids and tokens; workloads know channels and tags. This module maps one to the other, and
//! keeps a message's times until it is both delivered and acknowledged.

use weft_topo::NodeId;
use weft_transport::{CloseReason, ConnectionId};

use crate::time::{SimSpan, SimTime};

mod channel;

pub use channel::{Channel, ChannelId, ChannelState, Side};

/// The identifier of a message in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

/// A workload's request to carry a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The channel.
    pub channel: ChannelId,
    /// The end of the channel that sends.
    pub from: Side,
    /// The message's length, bytes.
    pub length: u32,
    /// The workload's tag, returned in every notice about the message.
    pub tag: u64,
    /// `true` if its completion time belongs in the report.
    pub recorded: bool,
}

/// A message in progress.
#[derive(Clone, Copy, Debug)]
pub struct MessageRecord {
    /// The request.
    pub request: SendRequest,
    /// The workload that sent it.
    pub workload: u32,
    /// The time at which it was passed to the engine, or queued for the handshake.
    pub submitted: SimTime,
    /// The time at which the whole message, and everything before it, was placed.
    pub delivered: Option<SimTime>,
    /// The time at which its sender learned of the delivery.
    pub acknowledged: Option<SimTime>,
}

/// A message that was delivered and acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedFlow {
    /// The workload it belongs to.
    pub workload: u32,
    /// The workload's tag for it.
    pub tag: u64,
    /// The host that sent it.
    pub source: NodeId,
    /// The host that received it.
    pub destination: NodeId,
    /// The message's length, bytes.
    pub length: u32,
    /// The time of submission.
    pub submitted: SimTime,
    /// The time of delivery.
    pub delivered: SimTime,
    /// The time at which the sender learned of the delivery.
    pub acknowledged: SimTime,
}

/// A notification for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A message it sent has been delivered, in order.
    Delivered {
        /// The request.
        request: SendRequest,
    },
    /// The sender of a message knows that it was delivered.
    Acknowledged {
        /// The request.
        request: SendRequest,
    },
    /// A channel has closed. Messages on it that were not reported as delivered never will be.
    Closed {
        /// The channel.
        channel: ChannelId,
        /// The reason, as the end that noticed first sees it; `None` where a host restarted.
        reason: Option<CloseReason>,
    },
    /// The requested wake-up time has come.
    Woken {
        /// The token of the request.
        token: u64,
    },
}

/// A channel event that contradicts the messages sent. It is a fault of the transport; the ordering check reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A message was delivered that was not sent, or delivered twice, or out of order.
    #[error("{channel:?} delivered message {got} of {length} bytes to {to:?}, expected {expected}")]
    Delivery {
        /// The channel.
        channel: ChannelId,
        /// The receiving end.
        to: Side,
        /// The message's number.
        got: u32,
        /// The message's length, bytes.
        length: u32,
        /// The expected number.
        expected: u32,
    },
    /// A message was reported as acknowledged that is not in progress.
    #[error("{channel:?} reported token {token} as sent, which is not in progress")]
    Completion {
        /// The channel.
        channel: ChannelId,
        /// The token.
        token: u64,
    },
    /// A tenant's frame arrived twice, after one that was sent later, or damaged.
    #[error("{channel:?} brought frame {serial} to {to:?} twice, late or damaged")]
    Frame {
        /// The channel.
        channel: ChannelId,
        /// The receiving end.
        to: Side,
        /// The frame's number.
        serial: u32,
    },
    /// A message was reported as acknowledged that was not delivered.
    #[error("{channel:?} reported a message as sent that was not delivered")]
    AckedBeforeDelivered {
        /// The channel.
        channel: ChannelId,
    },
}

/// All channels, and all messages in progress.
#[derive(Debug, Default)]
pub struct Traffic {
    channels: Vec<Channel>,
    messages: Vec<Option<MessageRecord>>,
    free: Vec<MessageId>,
    /// The recorded messages that finished, in order of completion.
    pub finished: Vec<FinishedFlow>,
    /// All messages that finished since the log was last emptied, recorded or not, if a watcher wants them.
    pub log: Option<Vec<FinishedFlow>>,
    /// Number of recorded messages that were in progress on channels that closed.
    pub abandoned: u64,
    /// The time that fast-forward has skipped, which is added to the times of finished messages.
    pub skipped: SimSpan,
    /// Number of recorded messages submitted, by workload.
    recorded: Vec<u64>,
    /// Bytes of all messages submitted.
    submitted: u64,
}

impl Traffic {
    /// Adds a channel, in the state [`ChannelState::Opening`].
    pub fn add(&mut self, workload: u32, hosts: [NodeId; 2]) -> ChannelId {
        let id = u32::try_from(self.channels.len()).expect("fewer than 2^32 channels in a run");
        self.channels.push(Channel {
            workload,
            state: ChannelState::Opening,
            hosts,
            connections: [None; 2],
            queues: None,
            closed_because: None,
            was_open: false,
            unfinished: 0,
        });
        ChannelId(id)
    }

    /// Returns a channel; `None` for an unknown number, as in a damaged packet.
    pub fn channel(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(id.0 as usize)
    }

    /// Returns a channel for modification.
    pub fn channel_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(id.0 as usize)
    }

    /// Returns every channel.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        (0..).map(ChannelId).zip(&self.channels)
    }

    /// Returns the end of a channel that is `host`'s `connection`.
    pub fn side_of(&self, id: ChannelId, host: NodeId, connection: ConnectionId) -> Option<Side> {
        let channel = self.channel(id)?;
        [Side::Opener, Side::Peer].into_iter().find(|side| {
            channel.hosts[side.index()] == host
                && channel.connections[side.index()] == Some(connection)
        })
    }

    /// Adds a message.
    pub fn begin(&mut self, request: SendRequest, workload: u32, now: SimTime) -> MessageId {
        let index = workload as usize;
        if index >= self.recorded.len() {
            self.recorded.resize(index + 1, 0);
        }
        self.recorded[index] += u64::from(request.recorded);
        self.submitted += u64::from(request.length);
        let record = Some(MessageRecord {
            request,
            workload,
            submitted: now,
            delivered: None,
            acknowledged: None,
        });
        let id = self.free.pop().unwrap_or_else(|| {
            let id = u32::try_from(self.messages.len()).expect("fewer than 2^32 messages at once");
            self.messages.push(None);
            MessageId(id)
        });
        self.messages[id.0 as usize] = record;
        let channel = &mut self.channels[request.channel.0 as usize];
        channel.queues().undelivered[request.from.index()].push_back(id);
        channel.unfinished += 1;
        id
    }

    /// Returns a message in progress.
    pub fn message(&self, id: MessageId) -> Option<&MessageRecord> {
        self.messages.get(id.0 as usize)?.as_ref()
    }

    /// Records a delivery by the engine at end `to`; returns the message's record.
    ///
    /// # Errors
    /// The message was not the next in order, or has another length.
    pub fn deliver(
        &mut self,
        id: ChannelId,
        to: Side,
        got: u32,
        length: u32,
        now: SimTime,
    ) -> Result<MessageRecord, Contradiction> {
        let from = to.other().index();
        let queues = self.channels[id.0 as usize].queues();
        let expected = queues.next_delivery[from];
        let contradiction = Contradiction::Delivery { channel: id, to, got, length, expected };
        let message = *queues.undelivered[from].front().ok_or(contradiction)?;
        let record = self.messages[message.0 as usize].as_mut().ok_or(contradiction)?;
        if got != expected || length != record.request.length {
            return Err(contradiction);
        }
        queues.undelivered[from].pop_front();
        queues.next_delivery[from] = expected.wrapping_add(1);
        record.delivered = Some(now);
        let record = *record;
        self.finish(message);
        Ok(record)
    }

    /// Returns the number and length of the message that end `to` of a channel is to deliver next.
    pub fn next_delivery(&self, id: ChannelId, to: Side) -> Option<(u32, u32)> {
        let queues = self.channel(id)?.queues.as_ref()?;
        let from = to.other().index();
        let message = self.message(*queues.undelivered[from].front()?)?;
        Some((queues.next_delivery[from], message.request.length))
    }

    /// Records a delivery where messages may overtake one another and have no numbers: the message is the oldest of
    /// this length, because messages of one length stay in order. Returns its record.
    ///
    /// # Errors
    /// No message of this length was in progress.
    pub fn deliver_one_of(
        &mut self,
        id: ChannelId,
        to: Side,
        length: u32,
        now: SimTime,
    ) -> Result<MessageRecord, Contradiction> {
        let Self { channels, messages, .. } = self;
        let queues = channels[id.0 as usize].queues();
        let from = to.other().index();
        let of_length = |message: &MessageId| {
            let record = messages[message.0 as usize].as_ref();
            record.is_some_and(|record| record.request.length == length)
        };
        let oldest = queues.undelivered[from].iter().position(of_length);
        let message = oldest.and_then(|index| queues.undelivered[from].remove(index));
        let (got, expected) = (queues.next_delivery[from], queues.next_delivery[from]);
        let contradiction = Contradiction::Delivery { channel: id, to, got, length, expected };
        let message = message.ok_or(contradiction)?;
        queues.next_delivery[from] = expected.wrapping_add(1);
        let record = messages[message.0 as usize].as_mut().ok_or(contradiction)?;
        record.delivered = Some(now);
        let record = *record;
        self.finish(message);
        Ok(record)
    }

    /// Records that a message was acknowledged to the sending engine; returns its record.
    ///
    /// # Errors
    /// The message is not in progress, or was not delivered.
    pub fn complete(
        &mut self,
        id: ChannelId,
        token: u64,
        now: SimTime,
    ) -> Result<MessageRecord, Contradiction> {
        let contradiction = Contradiction::Completion { channel: id, token };
        let number = u32::try_from(token).map_err(|_| contradiction)?;
        let slot = self.messages.get_mut(number as usize).ok_or(contradiction)?;
        let record = slot.as_mut().ok_or(contradiction)?;
        if record.request.channel != id || record.acknowledged.is_some() {
            return Err(contradiction);
        }
        if record.delivered.is_none() {
            return Err(Contradiction::AckedBeforeDelivered { channel: id });
        }
        record.acknowledged = Some(now);
        let record = *record;
        self.finish(MessageId(number));
        Ok(record)
    }

    /// Removes a message that is delivered and acknowledged, and records it if that was requested.
    fn finish(&mut self, message: MessageId) {
        let Some(record) = self.messages[message.0 as usize] else { return };
        let (Some(delivered), Some(sent)) = (record.delivered, record.acknowledged) else { return };
        let MessageRecord { request, workload, submitted, .. } = record;
        self.messages[message.0 as usize] = None;
        self.free.push(message);
        let channel = &mut self.channels[request.channel.0 as usize];
        channel.unfinished -= 1;
        if !request.recorded && self.log.is_none() {
            return;
        }
        let hosts = channel.hosts;
        let finished = FinishedFlow {
            workload,
            tag: request.tag,
            source: hosts[request.from.index()],
            destination: hosts[request.from.other().index()],
            length: request.length,
            submitted,
            delivered,
            acknowledged: sent,
        };
        if let Some(log) = &mut self.log {
            log.push(finished);
        }
        if request.recorded {
            self.finished.push(FinishedFlow {
                submitted: submitted + self.skipped,
                delivered: delivered + self.skipped,
                acknowledged: sent + self.skipped,
                ..finished
            });
        }
    }

    /// Closes a channel; returns `false` if it was closed already. Messages on it are abandoned, also those that were
    /// delivered and whose acknowledgement is lost with the channel.
    pub fn close(&mut self, id: ChannelId, reason: Option<CloseReason>) -> bool {
        let channel = &mut self.channels[id.0 as usize];
        if channel.state == ChannelState::Closed {
            return false;
        }
        channel.state = ChannelState::Closed;
        channel.closed_because = reason;
        channel.queues = None;
        if std::mem::take(&mut channel.unfinished) == 0 {
            return true;
        }
        for number in 0..self.messages.len() {
            if let Some(record) = &self.messages[number]
                && record.request.channel == id
            {
                self.abandoned += u64::from(record.request.recorded);
                self.messages[number] = None;
                let id = u32::try_from(number).expect("an index made from a u32");
                self.free.push(MessageId(id));
            }
        }
        true
    }

    /// Returns the bytes of all messages that workloads submitted.
    pub fn bytes_submitted(&self) -> u64 {
        self.submitted
    }

    /// Returns the number of recorded messages that a workload submitted.
    pub fn recorded_by(&self, workload: usize) -> u64 {
        self.recorded.get(workload).copied().unwrap_or(0)
    }

    /// Returns the messages in progress, each with its source and its destination.
    pub fn unfinished(&self) -> impl Iterator<Item = (&MessageRecord, NodeId, NodeId)> {
        self.messages.iter().flatten().map(|record| {
            let SendRequest { channel, from, .. } = record.request;
            let hosts = self.channels[channel.0 as usize].hosts;
            (record, hosts[from.index()], hosts[from.other().index()])
        })
    }

    /// Returns the number of messages in progress on open channels.
    pub fn in_progress(&self) -> usize {
        self.messages.len() - self.free.len()
    }
}
