//! Invariants watched during a run.

use std::fmt::Debug;

use weft_topo::NodeId;
use weft_transport::Placement;

use crate::traffic::ChannelId;

/// Told of every payload that an engine wants placed.
pub trait Observer: Debug + Send {
    /// `host`'s engine wants a payload of `channel` placed; `None` for a connection that belongs to
    /// no channel.
    fn placed(&mut self, host: NodeId, channel: Option<ChannelId>, placement: &Placement);
}
