//! An engine holds exactly the connections that it reported as open and not as ended: none is leaked, and none is
//! dropped without an event. Connections whose peers are not yet authenticated are not reported.

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event};

use super::Observer;
use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;

/// The connections that were accepted and have not ended.
#[derive(Debug, Default)]
pub(super) struct Check {
    accepted: BTreeSet<(NodeId, ConnectionId)>,
}

impl Observer for Check {
    fn on_event(&mut self, host: NodeId, event: &Event) {
        match *event {
            Event::Accepted { connection, .. } => {
                self.accepted.insert((host, connection));
            }
            Event::Closed { connection, .. } => {
                self.accepted.remove(&(host, connection));
            }
            _ => {}
        }
    }

    fn on_restart(&mut self, host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {
        self.accepted.retain(|(of, _)| *of != host);
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        let mut known = self.accepted.clone();
        for (id, channel) in network.traffic.channels() {
            for (host, connection) in channel.hosts.into_iter().zip(channel.connections) {
                if let Some(connection) = connection
                    && network.hosts[host.index()].channel(connection) == Some(id)
                {
                    known.insert((host, connection));
                }
            }
        }
        let hosts = network.hosts.iter().filter_map(|host| {
            let held = host.endpoint.connections() as usize - host.endpoint.unproven_connections();
            let known = known.iter().filter(|(of, _)| *of == host.id()).count();
            let host = host.id().0;
            (held != known).then(|| {
                format!("host {host} holds {held} connections, of which it has reported {known}")
            })
        });
        hosts.collect()
    }
}
