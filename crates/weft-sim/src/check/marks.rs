//! Congestion marks reach the sender that must slow down: the marks that receivers counted equal those that senders
//! were notified of, once everything is acknowledged.

use weft_topo::NodeId;
use weft_transport::Event;

use super::Observer;
use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;

/// The comparison of the engines' counters at the end.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// `true` if a connection ended: the last counts of its ends may differ.
    ended: bool,
}

impl Observer for Check {
    fn on_event(&mut self, _host: NodeId, event: &Event) {
        self.ended |= matches!(event, Event::Closed { .. });
    }

    fn on_restart(&mut self, _host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {
        self.ended = true;
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        if self.ended || network.traffic.in_progress() > 0 {
            return Vec::new();
        }
        let stats = || network.hosts.iter().map(|host| host.stats());
        let seen: u64 = stats().map(|stats| stats.ecn_marks).sum();
        let reported: u64 = stats().map(|stats| stats.ecn_marks_reported).sum();
        if seen == reported {
            return Vec::new();
        }
        vec![format!(
            "receivers counted {seen} congestion marks, {reported} were reported to senders"
        )]
    }
}
