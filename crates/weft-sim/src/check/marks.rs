//! Congestion marks reach who has to slow down: what receivers saw is what senders heard, once
//! everything is acknowledged.

use weft_topo::NodeId;
use weft_transport::Event;

use super::Observer;
use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;

/// Compares the engines' counters at the end.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// Some connection ended, and what its ends counted last may differ.
    ended: bool,
}

impl Observer for Check {
    fn heard(&mut self, _host: NodeId, event: &Event) {
        self.ended |= matches!(event, Event::Closed { .. });
    }

    fn restarted(&mut self, _host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {
        self.ended = true;
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        if self.ended || network.traffic.in_progress() > 0 {
            return Vec::new();
        }
        let stats = || network.hosts.iter().map(|host| host.stats());
        let seen: u64 = stats().map(|stats| stats.ecn_marks).sum();
        let heard: u64 = stats().map(|stats| stats.ecn_marks_heard).sum();
        if seen == heard {
            return Vec::new();
        }
        vec![format!("receivers saw {seen} congestion marks, senders heard of {heard}")]
    }
}
