//! The id of a connection.

/// The id of a connection of one endpoint: the 32-bit CID carried in packets. A new connection does not reuse an id
/// soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);
