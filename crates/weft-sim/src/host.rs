//! One host: an engine, exactly as shipped, behind its ports.

use std::collections::BTreeMap;

use weft_seal::Seals;
use weft_topo::{LinkId, NodeId};
use weft_transport::{
    ConfigError, ConnectionId, Endpoint, EndpointConfig, Secret, Stats, TransportConfig,
};
use weft_units::Seed;

use crate::nic::{Entropy, Jitter, RECEIVE_PORT};
use crate::pcie::{Dma, PcieConfig};
use crate::scenario::SourcePorts;
use crate::stack::{Stack, StackConfig};
use crate::time::{SimSpan, SimTime};
use crate::traffic::ChannelId;
use crate::world::WorldConfig;

/// A host's end of one of its cables.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The link it sends on.
    pub link: LinkId,
    /// No packet may arrive at the far end before this: jitter must not reorder.
    pub last_arrival: SimTime,
    /// With this much to send the port needs no more packets yet.
    pub ahead: SimSpan,
}

/// One host.
#[derive(Debug)]
pub struct Host {
    /// The engine.
    pub endpoint: Endpoint,
    /// Its ports, in the topology's order.
    pub ports: Vec<Port>,
    /// How its paths become source ports.
    pub entropy: Entropy,
    /// How irregularly it sends.
    pub jitter: Jitter,
    /// When the world will wake the engine; never later than it asked.
    pub wake_at: SimTime,
    /// Whether the world will come back when a port has room.
    pub pull_scheduled: bool,
    /// Payload its engines accepted, whether its messages became whole or not.
    pub received_bytes: u64,
    /// Which channel each of the engine's connections is an end of.
    channels: BTreeMap<u32, ChannelId>,
    /// Its messaging context or overlay, where channels are theirs: the engine is idle then. Or its engine's encryption.
    pub stack: Option<Box<Stack>>,
    /// The bus to its memory, where it takes time.
    pub dma: Option<Box<Dma>>,
    origin: Box<Origin>,
}

/// What a host begins from, and begins again from. It is out of the way of packets: all that is in the
/// host itself is fetched early.
#[derive(Debug)]
struct Origin {
    id: NodeId,
    transport: TransportConfig,
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
            Endpoint::new(endpoint_config(&self.transport), seed, Secret::repeatable(seed))?;
        let endpoint = if self.shares_ports { endpoint.sharing_ports(1) } else { endpoint };
        let is_sealed = matches!(self.stack, Some(StackConfig::Sealed(_)));
        Ok(if is_sealed { endpoint.keeping_forgotten() } else { endpoint })
    }

    fn stack(&self) -> Result<Option<Box<Stack>>, ConfigError> {
        let Some(stack) = &self.stack else { return Ok(None) };
        let seed = self.seed.child(stack.name(), self.restarts);
        let endpoint = endpoint_config(&self.transport);
        stack.build(self.id, endpoint, self.shares_ports, seed).map(|own| Some(Box::new(own)))
    }
}

/// Connections a host may hold.
const MAX_CONNECTIONS: u32 = 1 << 20;

impl Host {
    /// A host with no connections.
    ///
    /// # Errors
    /// A field of the transport's configuration is out of its range.
    pub fn new(
        id: NodeId,
        ports: Vec<Port>,
        config: &WorldConfig,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let seed = seed.child("host", u64::from(id.0));
        let (transport, stack) = (config.transport.clone(), config.stack.clone());
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
            channels: BTreeMap::new(),
            stack: origin.stack()?,
            dma: None,
            origin: Box::new(origin),
        })
    }

    /// Puts a bus between its ports and its memory.
    pub fn attach(&mut self, bus: &PcieConfig) {
        self.dma = Some(Box::new(Dma::new(bus, self.origin.seed.child("pcie", 0))));
    }

    /// The host's number.
    pub fn id(&self) -> NodeId {
        self.origin.id
    }

    /// The channel a connection is an end of.
    pub fn channel(&self, connection: ConnectionId) -> Option<ChannelId> {
        self.channels.get(&connection.0).copied()
    }

    /// Remembers the channel a connection is an end of.
    pub fn set_channel(&mut self, connection: ConnectionId, channel: ChannelId) {
        self.channels.insert(connection.0, channel);
    }

    /// Forgets a connection that is no more.
    pub fn forget(&mut self, connection: ConnectionId) -> Option<ChannelId> {
        if let Some(dma) = &mut self.dma {
            dma.forget(connection.0);
        }
        self.channels.remove(&connection.0)
    }

    /// Replaces the engine by a fresh one; gives the channels that ended with it.
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

    /// What its transport counted.
    pub fn stats(&self) -> &Stats {
        self.stack.as_deref().and_then(Stack::stats).unwrap_or_else(|| self.endpoint.stats())
    }

    /// Its engine's encryption, where it encrypts.
    pub fn seals(&self) -> Option<&Seals> {
        self.stack.as_deref().and_then(Stack::seals)
    }
}

fn endpoint_config(transport: &TransportConfig) -> EndpointConfig {
    EndpointConfig {
        transport: transport.clone(),
        receive_port: RECEIVE_PORT,
        thread_id: 0,
        accept: true,
        max_connections: MAX_CONNECTIONS,
    }
}
