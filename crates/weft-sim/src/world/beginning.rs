//! The messages that workloads send at the start of a run, while no packet has left yet.
//!
//! A message sent then reaches its host's engine before anything else happens at the start that may concern the host: a
//! channel that opens or closes, or the first event. So messages that are sent one after another are submitted together,
//! and those of different hosts by several threads.

use std::collections::BTreeMap;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Message};

use super::Network;
use crate::scenario::SourcePorts;
use crate::traffic::{ChannelId, MessageId, SendRequest};

/// A message that waits for its submission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) host: NodeId,
    connection: ConnectionId,
    message: MessageId,
    request: SendRequest,
}

/// The messages that wait for their submission.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// `true` while workloads start and messages wait.
    is_now: bool,
    list: Vec<Submission>,
}

impl Network {
    /// Begins the start of the workloads. Messages wait if channels are open at once and nothing but the engine handles
    /// them.
    pub(super) fn begin_start(&mut self) {
        let config = &self.config;
        self.holds_packets = config.source_ports == SourcePorts::Planned;
        self.beginning.is_now = !config.handshake && config.stack.is_none() && !self.holds_packets;
    }

    /// Ends the start of the workloads. Messages may still wait.
    pub(super) fn end_start(&mut self) {
        self.beginning.is_now = false;
    }

    /// Lets a message wait for its submission; returns `false` if it must not.
    pub(super) fn put_off(&mut self, request: SendRequest, message: MessageId) -> bool {
        if !self.beginning.is_now {
            return false;
        }
        let channel = self.traffic.channel(request.channel).expect("workloads name their own");
        let host = channel.hosts[request.from.index()];
        let connection = channel.connections[request.from.index()];
        let Some(connection) = connection.filter(|_| channel.waiting(request.from).is_empty())
        else {
            return false;
        };
        self.beginning.list.push(Submission { host, connection, message, request });
        true
    }

    /// Takes out the messages that wait for their submission.
    pub(super) fn take_put_off(&mut self) -> Vec<Submission> {
        std::mem::take(&mut self.beginning.list)
    }

    /// Submits the messages that wait for it.
    pub(super) fn submit_put_off(&mut self) {
        let list = self.take_put_off();
        if !list.is_empty() {
            let refused = self.submit_each(&list);
            self.wait_for_engines(refused);
        }
    }

    /// Submits messages to the engines of this network's hosts; returns those that their engines refused.
    pub(super) fn submit_each(&mut self, list: &[Submission]) -> Vec<Submission> {
        let mut refused: BTreeMap<(ChannelId, usize), Vec<Submission>> = BTreeMap::new();
        self.defers_engine_events = true;
        for &submission in list {
            let Submission { host, request, .. } = submission;
            let end = (request.channel, request.from.index());
            let earlier = refused.remove(&end).unwrap_or_default();
            for each in earlier.into_iter().chain([submission]) {
                if !self.submit_now(each) {
                    refused.entry(end).or_default().push(each);
                }
            }
            self.service(host);
        }
        self.defers_engine_events = false;
        assert!(self.deferred.is_none(), "an engine that has received nothing has no events");
        refused.into_values().flatten().collect()
    }

    /// Submits a message; returns `false` if the engine accepts no more.
    fn submit_now(&mut self, submission: Submission) -> bool {
        let Submission { host, connection, message, request } = submission;
        let message =
            Message { token: message.0.into(), opcode: 0, tag: 0, length: request.length };
        let engine = &mut self.hosts[host.index()].endpoint;
        engine.submit(self.now.engine_clock(), connection, message).is_ok()
    }

    /// Lets messages wait until their engines accept more.
    pub(super) fn wait_for_engines(&mut self, refused: Vec<Submission>) {
        for Submission { message, request, .. } in refused {
            let channel = self.traffic.channel_mut(request.channel).expect("it sent the message");
            channel.waiting_mut(request.from).push(message);
        }
    }
}
