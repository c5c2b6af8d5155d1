//! Datagrams (UD) and their connections. One connection to each host carries the datagrams of all queue pairs of a context,
//! since datagrams are unordered. A datagram that the receiver does not accept is dropped silently.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::ConnectionId;

use crate::{Context, QueuePairNumber};

mod receive;
mod send;

use receive::Inbound;
pub(super) use send::datagram_header;

/// The service number of a connection for datagrams; other connections name their two queue pairs, in 24 bits each.
pub(super) const SERVICE: u64 = 1 << 31;

/// A context and the host to which it sends: contexts may have different source addresses, and their datagrams do not
/// wait for each other.
type Host = (Context, SocketAddr);

/// A connection on which datagrams are sent to a host.
#[derive(Debug)]
struct Outbound {
    connection: ConnectionId,
    /// `true` once the connection is established.
    ready: bool,
    /// Requests in flight, in order.
    in_flight: VecDeque<(QueuePairNumber, u32)>,
    /// Queue pairs whose next request goes to this host.
    waiting: Vec<QueuePairNumber>,
}

/// The connections that carry datagrams.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    outbound: BTreeMap<Host, Outbound>,
    hosts: BTreeMap<ConnectionId, Host>,
    inbound: BTreeMap<ConnectionId, Inbound>,
    /// Number of queue pairs for datagrams.
    pub(super) queue_pairs: u32,
}

impl Outbound {
    /// Returns `true` if no datagram is in flight, and none waits.
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }
}

impl Datagrams {
    /// Returns the context of a connection on which datagrams are sent.
    pub(super) fn sender(&self, connection: ConnectionId) -> Option<Context> {
        self.hosts.get(&connection).map(|(context, _)| *context)
    }
}

#[cfg(any(test, feature = "swarm"))]
impl Datagrams {
    pub(super) fn entry_bytes(&self) -> u64 {
        self.inbound.values().map(Inbound::entry_bytes).sum()
    }

    #[cfg(test)]
    pub(super) fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }
}
