//! The published state of a host's programs: nodes, each with the counters of the device that carries it.

mod host;
mod show;

pub(crate) use host::{ChannelView, DeviceView, Host, NetworkView, NodeView, folders};
pub(crate) use show::{View, duration, show};
