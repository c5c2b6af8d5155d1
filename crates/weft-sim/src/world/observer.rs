//! The observer of a run, which the world calls.

use std::fmt::Debug;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event, Placement};

use super::Network;
use crate::traffic::{ChannelId, Traffic};

/// An observer of everything that passes between the engines and the world.
pub trait Observer: Debug + Send {
    /// Called when `host`'s engine wants a payload placed.
    fn on_place(&mut self, _host: NodeId, _placement: &Placement) {}

    /// Called when a host that encrypts has opened a sealed packet with this tag.
    fn on_opened(&mut self, _host: NodeId, _tag: [u8; 16]) {}

    /// Called when a host that encrypts has compared a payload with the bytes that its peer sent; `is_genuine` is
    /// `true` if they are equal.
    fn on_payload_read(&mut self, _host: NodeId, _placement: &Placement, _is_genuine: bool) {}

    /// Called when the payload of a packet has been placed, before the engine is notified.
    fn on_placed(&mut self, _host: NodeId, _connection: ConnectionId, _psn: u32) {}

    /// Called with each event of `host`'s engine.
    fn on_event(&mut self, _host: NodeId, _event: &Event) {}

    /// Called when `host`'s engine has restarted. The channels `ended` ended with it.
    fn on_restart(&mut self, _host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {}

    /// Returns every violation so far, and those that show only at the end of a run.
    fn violations(&self, network: &Network) -> Vec<String>;

    /// Returns the violations that count even if damaged headers reached an engine.
    fn violations_despite_forgery(&self, _network: &Network) -> Vec<String> {
        Vec::new()
    }
}
