//! What the programs of a host say of themselves, put together: nodes, and under them the device that carries them.

mod host;
mod show;

pub(crate) use host::{ChannelView, Host, NetworkView, NodeView, folders};
pub(crate) use show::{View, show};
