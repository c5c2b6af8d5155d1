//! One RDMA device: its objects, and the transport they share. Each file adds the methods for one
//! thing that happens.

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
use crate::{Completion, CompletionQueue, Event, Limits, Place, QueuePairNumber};

mod answers;
mod at_once;
mod begin;
mod carriers;
mod datagrams;
mod execute;
mod holding;
mod intake;
mod leases;
mod objects;
mod queue_pairs;
mod receiver;
mod reclaim;
mod requester;
mod responder;
mod sealing;
mod transport;
mod virtual_devices;
mod waiting;

use carriers::Carriers;
use datagrams::Datagrams;
use holding::Holding;
pub use leases::{Lease, LeaseId, Leasing, Reach};
use receiver::Completing;
pub use transport::{FromLink, Source, Transmit};
use virtual_devices::Tenant;
pub use virtual_devices::{Handle, VirtualDevice};

/// Names a context: one virtual device, one process. Its objects are nobody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Context(pub u32);

/// Names a protection domain: queue pairs of one reach the memory of the same one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProtectionDomain(pub u32);

/// How often a connection without traffic is heard of, where the transport's configuration says never:
/// a queue pair may rest for ever, and a peer that is gone must be noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Numbers of queue pairs: 0 and 1 are management's, and the last one stands for a multicast group's (IBTA volume 1,
/// chapter 10).
const QUEUE_PAIRS: RangeInclusive<u32> = 2..=0xff_fffe;

/// A connection of a queue pair's, for whoever looks.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// Its name.
    pub id: ConnectionId,
    /// Whose it is.
    pub qp: QueuePairNumber,
    /// Where it leads; `None` until it is set up.
    pub peer: Option<SocketAddr>,
    /// What its payload went through; `None` where it goes over a link of the host.
    pub flow: Option<ConnectionStats<'a>>,
}

/// What there is of a context.
#[derive(Debug, Default)]
struct Opened {
    /// For whom, where it is a virtual device.
    tenant: Option<Tenant>,
    domains: Vec<ProtectionDomain>,
    /// Completion queues.
    cqs: u32,
}

/// A protection domain.
#[derive(Debug)]
struct Domain {
    context: Context,
    /// Objects made in it.
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
    /// Whose connection it is, and which end.
    connections: BTreeMap<ConnectionId, (QueuePairNumber, Role)>,
    /// When a queue pair has waited long enough.
    waits: BTreeSet<(Instant, QueuePairNumber)>,
    events: VecDeque<Event>,
    /// Completion queues that got something, each once.
    ready: VecDeque<CompletionQueue>,
    datagrams: Datagrams,
    holding: Holding,
    /// Where the payload at hand is; kept for its memory.
    places: Vec<Place>,
    parts: Vec<Part>,
    /// Whether anything was ever lent, and what borrowers are to be told.
    lends: bool,
    leasing: VecDeque<Leasing>,
    /// Queue pairs whose next request a lease allows.
    reaching: VecDeque<QueuePairNumber>,
}

impl Device {
    /// A device without objects. `seed` and `secret` are the transport's, as is `transport`, whose
    /// connections this device keeps alive.
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
            lends: false,
            leasing: VecDeque::new(),
            reaching: VecDeque::new(),
        })
    }

    /// The same as one of several devices on one host, as many as `share` has values: its queue pairs'
    /// numbers begin with `share`, and there are at most 4096 of them. So a host's address and a number
    /// name the device too, where each process has its own.
    ///
    /// # Panics
    /// If there are queue pairs already.
    #[must_use]
    pub fn sharing_host(mut self, share: u8) -> Self {
        self.limits.queue_pairs = self.limits.queue_pairs.min(1 << 12);
        self.qps.prefix(share.into(), 16, self.limits.queue_pairs);
        self
    }

    /// Lets connections to one address share what they learn of its paths
    /// ([`Endpoint::with_shared_ports`](weft_transport::Endpoint::with_shared_ports)). For owners that send path `p` of every
    /// queue pair from one source port.
    #[must_use]
    pub fn sharing_ports(mut self) -> Self {
        self.carriers = self.carriers.sharing_ports();
        self
    }

    /// Keeps the ids of connections over the network that are no more for
    /// [`poll_forgotten`](Self::poll_forgotten).
    #[must_use]
    pub fn keeping_forgotten(mut self) -> Self {
        self.carriers = self.carriers.keeping_forgotten();
        self
    }

    /// What it can do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What its transport counted.
    pub fn stats(&self) -> &weft_transport::Stats {
        self.carriers.network.stats()
    }

    /// How many connections queue pairs have.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The connections that queue pairs have, each with what it is like now.
    pub fn connections(&self) -> impl Iterator<Item = Connection<'_>> {
        self.connections.iter().map(|(&id, &(qp, _))| Connection {
            id,
            qp,
            peer: self.carriers.peer(id).map(|peer| peer.address),
            flow: self.carriers.flow(id),
        })
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Adds a completion; the caller puts a queue pair whose completion queue has no room in error.
    fn complete(&mut self, cq: CompletionQueue, completion: Completion) -> bool {
        let Self { cqs, ready, events, .. } = self;
        Completing { cqs, ready, events }.complete(cq, completion)
    }
}

/// What tests look at.
#[cfg(any(test, feature = "swarm"))]
impl Device {
    pub(crate) fn service(&self, qp: QueuePairNumber) -> Option<crate::Service> {
        self.qps.get(qp.0).map(|pair| pair.request.service)
    }

    /// Returns the bytes that the entries of datagrams take that have begun to arrive.
    pub(crate) fn datagram_entries(&self) -> u64 {
        self.datagrams.entry_bytes()
    }

    /// Returns `true` if there is a connection to send datagrams to a host on.
    #[cfg(test)]
    pub(crate) fn has_inbound_datagrams(&self) -> bool {
        self.datagrams.has_inbound()
    }

    /// Returns the queue pair whose requests and answers a connection carries.
    pub(crate) fn carried_by(&self, connection: ConnectionId) -> Option<QueuePairNumber> {
        self.connections.get(&connection).map(|&(qp, _)| qp)
    }
}
