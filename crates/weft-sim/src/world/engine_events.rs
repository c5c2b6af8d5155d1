//! The events of engines: channels open and close, messages complete, and workloads get notices of both.

use weft_topo::{NodeId, RouteError};
use weft_transport::{CloseReason, ConnectionId, Event as EngineEvent};

use super::Network;
use crate::time::SimTime;
use crate::traffic::{
    ChannelId, ChannelState, Contradiction, MessageRecord, Notice, SendRequest, Side,
};

impl Network {
    /// Handles an event of a host's engine.
    pub(super) fn on_engine_event(&mut self, node: NodeId, event: EngineEvent) {
        // An event of a channel whose other end is gone cannot be checked.
        let side_of = |network: &Self, connection: ConnectionId| {
            let channel = network.hosts[node.index()].channel(connection)?;
            let side = network.traffic.side_of(channel, node, connection)?;
            let closed = network.traffic.channel(channel)?.state == ChannelState::Closed;
            (!closed).then_some((channel, side))
        };
        match event {
            EngineEvent::Connected { connection } => {
                if let Some((channel, _)) = side_of(self, connection) {
                    self.set_state(channel, ChannelState::Open);
                    self.submit_waiting(channel, node);
                }
            }
            EngineEvent::Accepted { connection, service } => {
                let Ok(channel) = u32::try_from(service).map(ChannelId) else { return };
                let known = self.traffic.channel(channel);
                if known.is_some_and(|channel| channel.hosts[Side::Peer.index()] == node) {
                    self.hosts[node.index()].set_channel(connection, channel);
                    self.bind(channel, Side::Peer, connection);
                    self.submit_waiting(channel, node);
                }
            }
            EngineEvent::Acked { connection, token } => {
                if let Some((channel, _)) = side_of(self, connection) {
                    let completed = self.traffic.complete(channel, token, self.now);
                    self.notify_workload(completed, |request| Notice::Acknowledged { request });
                    self.submit_waiting(channel, node);
                }
            }
            EngineEvent::Delivered { connection, message, length, .. } => {
                if let Some((channel, side)) = side_of(self, connection) {
                    let now = self.now;
                    let delivered = self.traffic.deliver(channel, side, message, length, now);
                    self.notify_workload(delivered, |request| Notice::Delivered { request });
                }
            }
            EngineEvent::Closed { connection, reason } => {
                if let Some(channel) = self.hosts[node.index()].remove_connection(connection) {
                    self.end(channel, Some(reason));
                }
            }
            _ => {}
        }
    }

    /// Queues a notice about a message for its workload, or records the contradiction.
    pub(super) fn notify_workload(
        &mut self,
        outcome: Result<MessageRecord, Contradiction>,
        notice: impl FnOnce(SendRequest) -> Notice,
    ) {
        match outcome {
            Ok(record) => self.notices.push_back((record.workload, notice(record.request))),
            Err(contradiction) => self.contradictions.push(contradiction),
        }
    }

    /// Closes a channel in the records, and queues a notice for its workload.
    pub(super) fn end(&mut self, id: ChannelId, reason: Option<CloseReason>) {
        let Some(workload) = self.traffic.channel(id).map(|channel| channel.workload) else {
            return;
        };
        if self.traffic.close(id, reason) {
            self.notices.push_back((workload, Notice::Closed { channel: id, reason }));
        }
    }

    /// Recomputes the routes. If the new ones do not fit, the run ends.
    pub(super) fn reroute(&mut self) {
        let result = self.fabric.reroute();
        if self.has_routes(result) {
            self.notify_controller_of_routes();
        }
    }

    /// Returns `true` if new routes are installed; otherwise the run ends with the error.
    pub(crate) fn has_routes(&mut self, result: Result<(), RouteError>) -> bool {
        self.route_error = self.route_error.or_else(|| result.err());
        self.route_error.is_none()
    }

    /// Restarts a host's engine, which forgets everything.
    pub(super) fn restart(&mut self, host: NodeId) {
        let ended = self.hosts[host.index()].restart();
        self.hosts[host.index()].wake_at = SimTime::FAR_FUTURE;
        if let Some(observer) = &mut self.observer {
            observer.on_restart(host, &ended, &self.traffic);
        }
        ended.into_iter().for_each(|channel| self.end(channel, None));
    }
}
