//! One RDMA device: its objects, and the transport that they share. Each file of this module handles one kind of event.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use weft_transport::{
    ConfigError, ConnectionId, ConnectionStats, Endpoint, EndpointConfig, Secret,
};
use weft_units::{Duration, Instant, Seed};

use crate::completion::Cq;
use crate::drawn::Drawn;
use crate::memory::Emtt;
use crate::numbers::Numbers;
use crate::queue_pair::{Part, QueuePair, Role};
use crate::receive_queue::Srq;
use crate::table::Table;
use crate::{
    CompletionQueue, Context, Event, LeaseEvent, Limits, Place, ProtectionDomain, QueuePairNumber,
};

mod active;
mod answers;
mod at_once;
mod begin;
mod carriers;
mod datagrams;
mod execute;
mod holding;
mod intake;
mod leases;
mod load;
mod objects;
mod packet;
mod queue_pairs;
mod reclaim;
mod requester;
mod responder;
mod sealing;
mod teardown;
mod transport;
mod virtual_devices;
mod waiting;

use carriers::Carriers;
use datagrams::Datagrams;
use holding::Holding;
pub use leases::LeasedAccess;
pub use packet::{ReceivedPacket, Source, Transmit};
use virtual_devices::Tenant;
pub use virtual_devices::{Handle, VirtualDevice};

/// The keepalive interval if the transport's configuration has none: queue pairs may be idle without limit, and a peer that
/// has exited must be detected.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Queue pair numbers: 0 and 1 are reserved for management, and the last one for multicast (IBTA volume 1, chapter 10).
const QUEUE_PAIRS: RangeInclusive<u32> = 2..=0xff_fffe;

/// Maximum number of queue pairs of a device that shares its host. Their numbers have 16 bits of their own; a few hundred stay
/// free, so that a free one is drawn soon.
const MAX_QUEUE_PAIRS_OF_SHARE: u32 = 65_000;

/// A connection of a queue pair, for monitoring.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// The connection id.
    pub id: ConnectionId,
    /// The queue pair.
    pub qp: QueuePairNumber,
    /// The peer's address; `None` until the connection is established.
    pub peer: Option<SocketAddr>,
    /// The transport's statistics; `None` for a connection over a link of the host.
    pub stats: Option<ConnectionStats<'a>>,
}

/// The state of an open context.
#[derive(Debug, Default)]
struct Opened {
    /// The tenant of a virtual device.
    tenant: Option<Tenant>,
    /// Its protection domains.
    domains: Vec<ProtectionDomain>,
    /// Number of its completion queues.
    cqs: u32,
}

/// A protection domain.
#[derive(Debug)]
struct Domain {
    context: Context,
    /// Number of objects in the domain.
    users: u32,
}

/// An RDMA device.
#[derive(Debug)]
pub struct Device {
    limits: Limits,
    carriers: Carriers,
    contexts: Table<Opened>,
    domains: Table<Domain>,
    emtt: Emtt,
    cqs: Table<Cq>,
    srqs: Table<Srq>,
    qps: Drawn<QueuePair>,
    /// The queue pair of each connection, and its role.
    connections: BTreeMap<ConnectionId, (QueuePairNumber, Role)>,
    /// The deadlines of waiting queue pairs.
    waits: BTreeSet<(Instant, QueuePairNumber)>,
    events: VecDeque<Event>,
    /// Completion queues with completions that are not yet reported by `poll_ready`, each once.
    ready: VecDeque<CompletionQueue>,
    datagrams: Datagrams,
    holding: Holding,
    /// The places of the payload that is being handled; a field so that its allocation is reused.
    places: Vec<Place>,
    /// The parts of that payload; a field for the same reason.
    parts: Vec<Part>,
    /// `true` once a lease was granted.
    has_lent: bool,
    /// Notifications for borrowers that the owner has not polled.
    lease_events: VecDeque<LeaseEvent>,
    /// Queue pairs whose next request a lease allows.
    leased_accesses: VecDeque<QueuePairNumber>,
}

impl Device {
    /// Returns a device without objects. `transport`, `seed` and `secret` configure the transport; without a keepalive
    /// interval there, keepalives are sent every 10 s. Queue pair numbers and keys are derived from `secret`.
    ///
    /// # Errors
    /// A field of the configuration is out of its range.
    pub fn new(
        limits: Limits,
        mut transport: EndpointConfig,
        seed: Seed,
        secret: Secret,
    ) -> Result<Self, ConfigError> {
        if transport.transport.keepalive_interval == Duration::ZERO {
            transport.transport.keepalive_interval = KEEPALIVE;
        }
        let EndpointConfig { receive_port, max_connections, .. } = transport;
        Ok(Self {
            limits,
            carriers: Carriers::new(
                Endpoint::new(transport, seed, secret)?,
                receive_port,
                max_connections,
            ),
            contexts: Table::new(limits.contexts, 20, 32),
            domains: Table::new(limits.protection_domains, 20, 32),
            emtt: Emtt::new(limits.keys, &secret.child("keys")),
            cqs: Table::new(limits.completion_queues, 20, 32),
            srqs: Table::new(limits.shared_receive_queues, 20, 32),
            qps: Drawn::new(
                limits.queue_pairs,
                Numbers::new(secret.child("queue pairs"), 24, QUEUE_PAIRS),
            ),
            connections: BTreeMap::new(),
            waits: BTreeSet::new(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            datagrams: Datagrams::default(),
            holding: Holding::new(&limits),
            places: Vec::new(),
            parts: Vec::new(),
            has_lent: false,
            lease_events: VecDeque::new(),
            leased_accesses: VecDeque::new(),
        })
    }

    /// Makes the device one of up to 256 devices on one host: `share` forms the high byte of its queue pair numbers, of which
    /// there are at most 65,000. The host's address and a queue pair number then also identify the device.
    ///
    /// # Panics
    /// If the device has a queue pair.
    #[must_use]
    pub fn sharing_host(mut self, share: u8) -> Self {
        self.limits.queue_pairs = self.limits.queue_pairs.min(MAX_QUEUE_PAIRS_OF_SHARE);
        self.qps.prefix(share.into(), 16, self.limits.queue_pairs);
        self
    }

    /// Shares path measurements among connections to one address
    /// ([`Endpoint::with_shared_ports`](weft_transport::Endpoint::with_shared_ports)). For owners that send path `p` of every
    /// queue pair from the same source port.
    #[must_use]
    pub fn sharing_ports(mut self) -> Self {
        self.carriers = self.carriers.sharing_ports();
        self
    }

    /// Records the ids of ended connections over the network for [`poll_ended`](Self::poll_ended).
    #[must_use]
    pub fn with_ended(mut self) -> Self {
        self.carriers = self.carriers.with_ended();
        self
    }

    /// Returns the limits of the device.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters of the transport.
    pub fn stats(&self) -> &weft_transport::Stats {
        self.carriers.network.stats()
    }

    /// Returns the number of connections of queue pairs.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Returns the connections of queue pairs with their statistics.
    pub fn connections(&self) -> impl Iterator<Item = Connection<'_>> {
        self.connections.iter().map(|(&id, &(qp, _))| Connection {
            id,
            qp,
            peer: self.carriers.peer(id).map(|peer| peer.address),
            stats: self.carriers.connection_stats(id),
        })
    }

    /// Returns the next event, if any, in the order of occurrence.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Internal state that tests examine.
#[cfg(any(test, feature = "swarm"))]
impl Device {
    pub(crate) fn service(&self, qp: QueuePairNumber) -> Option<crate::Service> {
        self.qps.get(qp.0).map(|pair| pair.request.service)
    }

    /// Returns the bytes of the entries for datagrams of which a packet has arrived.
    pub(crate) fn datagram_entries(&self) -> u64 {
        self.datagrams.entry_bytes()
    }

    /// Returns `true` if a peer has a connection to send datagrams to this device.
    #[cfg(test)]
    pub(crate) fn has_inbound_datagrams(&self) -> bool {
        self.datagrams.has_inbound()
    }

    /// Returns the queue pair whose requests or responses a connection carries.
    pub(crate) fn carried_by(&self, connection: ConnectionId) -> Option<QueuePairNumber> {
        self.connections.get(&connection).map(|&(qp, _)| qp)
    }
}
