//! Connections: a listener, the attempts to connect to one, and the link that they open.

mod connect;
mod control;
mod link;
mod listen;

pub(crate) use connect::Attempt;
pub(crate) use link::{Change, Link};
pub(crate) use listen::Listener;
