//! Connections that each carry messages of one size, one after another, with a fixed number in flight, as bandwidth
//! tests do.

use std::collections::BTreeMap;

use weft_topo::NodeId;

use super::Workload;
use crate::time::SimTime;
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::world::Session;

/// The traffic of a set of streams.
#[derive(Debug)]
pub(super) struct Plan {
    /// The source and destination of each pair.
    pub(super) pairs: Vec<(NodeId, NodeId)>,
    /// Number of connections of each pair.
    pub(super) connections: u32,
    /// Bytes of a message.
    pub(super) length: u32,
    /// Number of messages of each connection.
    pub(super) messages: u64,
    /// Maximum number of messages in flight on a connection.
    pub(super) depth: u32,
    /// The start of all connections.
    pub(super) start: SimTime,
}

/// The connections, and their progress.
#[derive(Debug)]
pub(super) struct Streams {
    plan: Plan,
    streams: BTreeMap<ChannelId, Stream>,
}

/// The numbers of a connection's messages that were submitted and acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    submitted: u64,
    acknowledged: u64,
    /// `true` if the connection closed.
    broken: bool,
}

impl Streams {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, streams: BTreeMap::new() }
    }

    /// Opens every connection and submits its first messages.
    fn begin_all(&mut self, session: &mut Session<'_>) {
        let depth = self.plan.messages.min(self.plan.depth.into());
        for (source, destination) in self.plan.pairs.clone() {
            for _ in 0..self.plan.connections {
                let channel = session.open(source, destination);
                (0..depth).for_each(|_| self.begin(channel, session));
            }
        }
    }

    /// Submits a connection's next message, if there is one.
    fn begin(&mut self, channel: ChannelId, session: &mut Session<'_>) {
        let stream = self.streams.entry(channel).or_default();
        if stream.submitted < self.plan.messages {
            let (from, length, tag) = (Side::Opener, self.plan.length, stream.submitted);
            stream.submitted += 1;
            session.send(SendRequest { channel, from, length, tag, recorded: true });
        }
    }
}

impl Workload for Streams {
    fn start(&mut self, session: &mut Session<'_>) {
        if self.plan.start > session.now() {
            session.wake(self.plan.start, 0);
        } else {
            self.begin_all(session);
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Acknowledged { request } => {
                if let Some(stream) = self.streams.get_mut(&request.channel) {
                    stream.acknowledged += 1;
                }
                self.begin(request.channel, session);
            }
            Notice::Closed { channel, .. } => {
                if let Some(stream) = self.streams.get_mut(channel) {
                    stream.broken = true;
                }
            }
            Notice::Woken { .. } => self.begin_all(session),
            Notice::Delivered { .. } => {}
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    fn acts_only_when_acknowledged(&self) -> bool {
        true
    }

    fn is_done(&self) -> bool {
        let is_over = |stream: &Stream| stream.broken || stream.acknowledged >= self.plan.messages;
        let streams = self.plan.pairs.len() * self.plan.connections as usize;
        self.streams.len() == streams && self.streams.values().all(is_over)
    }
}
