//! A simulated host: an engine, exactly as shipped, and its ports.

use std::sync::Arc;

use weft_seal::Seals;
use weft_topo::{LinkId, NodeId, Topology};
use weft_transport::{
    ConfigError, ConnectionId, Endpoint, EndpointConfig, Secret, Stats, TransportConfig,
};
use weft_units::{Seed, SmallMap};

use crate::nic::{Entropy, Jitter, RECEIVE_PORT};
use crate::pace::Pace;
use crate::pcie::{Dma, PcieConfig};
use crate::scenario::SourcePorts;
use crate::stack::{Stack, StackConfig};
use crate::time::{SimSpan, SimTime};
use crate::traffic::ChannelId;
use crate::world::{WorldConfig, largest_frame};

mod list;

pub use list::Hosts;

/// A host's end of one of its cables.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The link it sends on.
    pub link: LinkId,
    /// The earliest time at which the next packet may arrive at the far end: jitter must not reorder packets.
    pub last_arrival: SimTime,
    /// The backlog above which the port takes no more packets for now.
    pub ahead: SimSpan,
}

/// A simulated host.
#[derive(Debug)]
pub struct Host {
    /// The engine.
    pub endpoint: Endpoint,
    /// Its ports, in the topology's order.
    pub ports: Vec<Port>,
    /// The mapping of its paths to source ports.
    pub entropy: Entropy,
    /// The irregularity of its sending.
    pub jitter: Jitter,
    /// The time at which the world will wake the engine; never later than the engine's deadline.
    pub wake_at: SimTime,
    /// `true` if an event is scheduled for the time at which a port has room.
    pub pull_scheduled: bool,
    /// Bytes of payload that its engines accepted, those of incomplete messages included.
    pub received_bytes: u64,
    /// The channel of each of the engine's connections.
    channels: SmallMap<u32, ChannelId>,
    /// Its messaging context or overlay, if channels belong to it: the engine is idle then. Otherwise its engine's
    /// encryption, if any.
    pub stack: Option<Box<Stack>>,
    /// The bus to its memory, if it is simulated.
    pub dma: Option<Box<Dma>>,
    origin: Box<Origin>,
}

/// The values from which a host starts and restarts. They are stored apart, because all of the host itself is
/// prefetched.
#[derive(Debug)]
struct Origin {
    id: NodeId,
    /// The configuration of all hosts' engines.
    transport: Arc<TransportConfig>,
    stack: Option<StackConfig>,
    /// `true` if its connections send from the same ports.
    shares_ports: bool,
    seed: Seed,
    restarts: u64,
}

impl Origin {
    fn endpoint(&self) -> Result<Endpoint, ConfigError> {
        let seed = self.seed.child("engine", self.restarts);
        let endpoint =
            Endpoint::new(endpoint_config(self.transport.clone()), seed, Secret::from_seed(seed))?;
        let endpoint = if self.shares_ports { endpoint.with_shared_ports(1) } else { endpoint };
        let is_sealed = matches!(self.stack, Some(StackConfig::Sealed(_)));
        Ok(if is_sealed { endpoint.with_ended() } else { endpoint })
    }

    fn stack(&self) -> Result<Option<Box<Stack>>, ConfigError> {
        let Some(stack) = &self.stack else { return Ok(None) };
        let seed = self.seed.child(stack.name(), self.restarts);
        let endpoint = endpoint_config(TransportConfig::clone(&self.transport));
        stack.build(self.id, endpoint, self.shares_ports, seed).map(|own| Some(Box::new(own)))
    }
}

/// Maximum number of connections of a host.
const MAX_CONNECTIONS: u32 = 1 << 20;

impl Host {
    /// Returns a host with no connections; `transport` is the configuration of all hosts' engines.
    ///
    /// # Errors
    /// A field of the transport's configuration is out of its range.
    pub fn new(
        id: NodeId,
        ports: Vec<Port>,
        config: &WorldConfig,
        transport: Arc<TransportConfig>,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let seed = seed.child("host", u64::from(id.0));
        let stack = config.stack.clone();
        let shares_ports = config.source_ports == SourcePorts::Shared;
        let origin = Origin { id, transport, stack, shares_ports, seed, restarts: 0 };
        Ok(Self {
            endpoint: origin.endpoint()?,
            ports,
            entropy: Entropy::new(seed.child("entropy", 0), shares_ports),
            jitter: Jitter::new(config.jitter.as_picos(), seed.child("jitter", 0)),
            wake_at: SimTime::FAR_FUTURE,
            pull_scheduled: false,
            received_bytes: 0,
            channels: SmallMap::new(),
            stack: origin.stack()?,
            dma: None,
            origin: Box::new(origin),
        })
    }

    /// Puts a bus between its ports and its memory.
    pub fn attach(&mut self, bus: &PcieConfig) {
        self.dma = Some(Box::new(Dma::new(bus, self.origin.seed.child("pcie", 0))));
    }

    /// Returns the host's number.
    pub fn id(&self) -> NodeId {
        self.origin.id
    }

    /// Returns the channel of a connection.
    pub fn channel(&self, connection: ConnectionId) -> Option<ChannelId> {
        self.channels.get(&connection.0).copied()
    }

    /// Records the channel of a connection.
    pub fn set_channel(&mut self, connection: ConnectionId, channel: ChannelId) {
        self.channels.insert(connection.0, channel);
    }

    /// Forgets a connection that has ended; returns its channel.
    pub fn remove_connection(&mut self, connection: ConnectionId) -> Option<ChannelId> {
        if let Some(dma) = &mut self.dma {
            dma.remove_connection(connection.0);
        }
        self.channels.remove(&connection.0)
    }

    /// Replaces the engine by a new one; returns the channels that ended with it.
    pub fn restart(&mut self) -> Vec<ChannelId> {
        self.origin.restarts += 1;
        self.endpoint =
            self.origin.endpoint().expect("the first engine had the same configuration");
        let mut channels: Vec<_> = std::mem::take(&mut self.channels).into_values().collect();
        if let Some(former) = self.stack.take() {
            self.stack = self.origin.stack().expect("the first one had the same configuration");
            channels.extend(former.channels());
        }
        channels
    }

    /// Returns its transport's statistics.
    pub fn stats(&self) -> &Stats {
        self.stack.as_deref().and_then(Stack::stats).unwrap_or_else(|| self.endpoint.stats())
    }

    /// Returns its engine's encryption, if it encrypts.
    pub fn seals(&self) -> Option<&Seals> {
        self.stack.as_deref().and_then(Stack::seals)
    }
}

/// Returns a host with its ports, and its bus if there is one.
pub(crate) fn new_host(
    topology: &Topology,
    id: NodeId,
    config: &WorldConfig,
    transport: &Arc<TransportConfig>,
    seed: Seed,
) -> Result<Host, ConfigError> {
    let frame = largest_frame(transport);
    let ports = topology.ports(id).iter().map(|&link| {
        let pace = Pace::new(topology.link(link).rate);
        let ahead = pace.serialisation(frame).as_picos() * u64::from(config.nic_packets);
        let ahead = SimSpan::from_picos(ahead);
        Port { link, last_arrival: SimTime::EPOCH, ahead }
    });
    let mut host = Host::new(id, ports.collect(), config, transport.clone(), seed)?;
    if let Some(bus) = &config.pcie {
        host.attach(bus);
    }
    Ok(host)
}

/// Returns the configuration of a host's engine.
fn endpoint_config<T>(transport: T) -> EndpointConfig<T> {
    EndpointConfig {
        transport,
        receive_port: RECEIVE_PORT,
        thread_id: 0,
        accept: true,
        max_connections: MAX_CONNECTIONS,
    }
}
