//! Connections end at both ends. An end with data for a host that restarted learns of it by its first packet, not by a
//! timeout; and if the network lost no packet, a close arrives. (An end without data may learn of it when it sends
//! next.)

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::{CloseReason, ConnectionId, Event};

use super::Observer;
use crate::traffic::{ChannelId, ChannelState, Side, Traffic};
use crate::world::Network;

/// The ends that must learn of a closure.
#[derive(Debug, Default)]
pub(super) struct Check {
    waiting: BTreeSet<(NodeId, ConnectionId)>,
    violations: Vec<String>,
    restarts: bool,
}

impl Observer for Check {
    fn on_event(&mut self, host: NodeId, event: &Event) {
        match *event {
            // A handshake that the restart interrupted may succeed with the new engine.
            Event::Connected { connection } => {
                self.waiting.remove(&(host, connection));
            }
            Event::Closed { connection, reason } => {
                let waited = self.waiting.remove(&(host, connection));
                if waited && matches!(reason, CloseReason::PeerGone | CloseReason::ConnectTimeout) {
                    let host = host.0;
                    self.violations.push(format!(
                        "host {host}: {connection:?} learned only from a timeout that its peer restarted"
                    ));
                }
            }
            _ => {}
        }
    }

    fn on_restart(&mut self, host: NodeId, ended: &[ChannelId], traffic: &Traffic) {
        self.restarts = true;
        self.waiting.retain(|(of, _)| *of != host);
        for &id in ended {
            let Some(channel) = traffic.channel(id) else { continue };
            // Messages that wait for room in the engine are not the engine's to send yet.
            let queued = |side: Side| !channel.waiting(side).is_empty();
            for side in [Side::Opener, Side::Peer] {
                let end = (channel.hosts[side.index()], channel.connections[side.index()]);
                if let (other, Some(connection)) = end
                    && other != host
                    && channel.has_undelivered(side)
                    && !queued(side)
                {
                    self.waiting.insert((other, connection));
                }
            }
        }
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        let forgotten = self.waiting.iter().filter(|(host, connection)| {
            // A connection that closed for another reason needs no notice.
            network.hosts[host.index()].channel(*connection).is_some()
        });
        let forgotten = forgotten.map(|(host, connection)| {
            let host = host.0;
            format!("host {host}: {connection:?} was not notified that its peer restarted")
        });
        self.violations.iter().cloned().chain(forgotten).chain(self.left_behind(network)).collect()
    }
}

impl Check {
    /// Returns the ends that outlived their peers although no packet was lost.
    fn left_behind(&self, network: &Network) -> Vec<String> {
        if self.restarts || network.fabric.counters.lost.iter().any(|&count| count > 0) {
            return Vec::new();
        }
        let closed = network.traffic.channels();
        let closed = closed.filter(|(_, channel)| channel.state == ChannelState::Closed);
        let ends = closed.flat_map(|(id, channel)| {
            let ends = channel.hosts.into_iter().zip(channel.connections);
            ends.map(move |(host, connection)| (id, host, connection))
        });
        ends.filter(|(id, host, connection)| {
            connection.is_some_and(|connection| {
                network.hosts[host.index()].channel(connection) == Some(*id)
            })
        })
        .map(|(id, host, _)| format!("host {} still holds {id:?}, which its peer ended", host.0))
        .collect()
    }
}
