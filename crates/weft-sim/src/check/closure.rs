//! Whoever still had something to send to a host that restarted is told that the connection is no
//! more. (An end with nothing to say may find out when it next speaks.)

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event};

use super::Observer;
use crate::traffic::{ChannelId, Side, Traffic};
use crate::world::Network;

/// Ends that have to be told.
#[derive(Debug, Default)]
pub(super) struct Check {
    waiting: BTreeSet<(NodeId, ConnectionId)>,
}

impl Observer for Check {
    fn heard(&mut self, host: NodeId, event: &Event) {
        // A handshake that the restart interrupted may well succeed with the new engine.
        if let Event::Closed { connection, .. } | Event::Connected { connection } = event {
            self.waiting.remove(&(host, *connection));
        }
    }

    fn restarted(&mut self, host: NodeId, ended: &[ChannelId], traffic: &Traffic) {
        self.waiting.retain(|(of, _)| *of != host);
        for &id in ended {
            let Some(channel) = traffic.channel(id) else { continue };
            for side in [Side::Opener, Side::Peer] {
                let end = (channel.hosts[side.index()], channel.connections[side.index()]);
                if let (other, Some(connection)) = end
                    && other != host
                    && channel.has_undelivered(side)
                {
                    self.waiting.insert((other, connection));
                }
            }
        }
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        let forgotten = self.waiting.iter().filter(|(host, connection)| {
            // A connection that closed for another reason needs no telling.
            network.hosts[host.index()].channel(*connection).is_some()
        });
        forgotten
            .map(|(host, connection)| {
                let host = host.0;
                format!("host {host}: {connection:?} was not told that its peer restarted")
            })
            .collect()
    }
}
