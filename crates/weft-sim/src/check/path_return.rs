//! A path that was reported as down is reported as up again once it carries packets. At the end of a run with a
//! repaired network every path is up.

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::path::PathId;
use weft_transport::{ConnectionId, Event};

use super::Observer;
use crate::traffic::{ChannelId, ChannelState, Traffic};
use crate::world::Network;

/// The paths that are down.
#[derive(Debug, Default)]
pub(super) struct Check {
    down: BTreeSet<(NodeId, ConnectionId, PathId)>,
}

impl Observer for Check {
    fn on_event(&mut self, host: NodeId, event: &Event) {
        match *event {
            Event::PathDown { connection, path } => {
                self.down.insert((host, connection, path));
            }
            Event::PathUp { connection, path } => {
                self.down.remove(&(host, connection, path));
            }
            Event::Closed { connection, .. } => {
                self.down.retain(|(at, of, _)| (*at, *of) != (host, connection));
            }
            _ => {}
        }
    }

    fn on_restart(&mut self, host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {
        self.down.retain(|(at, _, _)| *at != host);
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        // An encrypting host probes for a while before it accepts that its peer has no such connection, and meanwhile
        // its probes get no replies. (A replayed request sets up a connection without peer, too.)
        let is_answered = |host: NodeId, connection: ConnectionId| {
            let host = &network.hosts[host.index()];
            let channel = host.channel(connection).and_then(|id| network.traffic.channel(id));
            let has_peer = channel.is_some_and(|channel| channel.state != ChannelState::Closed);
            has_peer || host.seals().is_none()
        };
        let down = self.down.iter();
        let down = down.filter(|(host, connection, _)| is_answered(*host, *connection));
        let text = |(host, connection, path): &(NodeId, ConnectionId, PathId)| {
            format!("host {}: {connection:?} never took path {} back", host.0, path.0)
        };
        down.map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_counts_as_down_until_it_is_up_or_its_connection_is_gone() {
        let host = NodeId(3);
        let (connection, path) = (ConnectionId(1), PathId(7));
        for end in [
            Event::PathUp { connection, path },
            Event::Closed { connection, reason: weft_transport::CloseReason::Local },
        ] {
            let mut check = Check::default();
            check.on_event(host, &Event::PathDown { connection, path });
            check.on_event(host, &Event::PathUp { connection, path: PathId(6) });
            check.on_event(NodeId(4), &end);
            assert_eq!(check.down.len(), 1);
            check.on_event(host, &end);
            assert!(check.down.is_empty(), "{end:?}");
        }
    }
}
