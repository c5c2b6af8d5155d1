//! One host: an engine, exactly as shipped, behind its ports.

use std::collections::BTreeMap;

use weft_topo::{LinkId, NodeId};
use weft_transport::{
    ConfigError, ConnectionId, Endpoint, EndpointConfig, Secret, TransportConfig,
};
use weft_units::Seed;

use crate::nic::{Entropy, Jitter, RECEIVE_PORT};
use crate::pcie::{Dma, PcieConfig};
use crate::time::{SimSpan, SimTime};
use crate::traffic::ChannelId;

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
    id: NodeId,
    transport: TransportConfig,
    seed: Seed,
    restarts: u64,
    /// The bus to its memory, where it takes time.
    pub dma: Option<Box<Dma>>,
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
        jitter: SimSpan,
        transport: &TransportConfig,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let number = u64::from(id.0);
        let seed = seed.child("host", number);
        Ok(Self {
            endpoint: endpoint(transport, seed, 0)?,
            ports,
            entropy: Entropy::new(seed.child("entropy", 0)),
            jitter: Jitter::new(jitter.as_picos(), seed.child("jitter", 0)),
            wake_at: SimTime::FAR_FUTURE,
            pull_scheduled: false,
            received_bytes: 0,
            channels: BTreeMap::new(),
            id,
            transport: transport.clone(),
            seed,
            restarts: 0,
            dma: None,
        })
    }

    /// Puts a bus between its ports and its memory.
    pub fn attach(&mut self, bus: &PcieConfig) {
        self.dma = Some(Box::new(Dma::new(bus, self.seed.child("pcie", 0))));
    }

    /// The host's number.
    pub fn id(&self) -> NodeId {
        self.id
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
        self.restarts += 1;
        self.endpoint = endpoint(&self.transport, self.seed, self.restarts)
            .expect("the first engine had the same configuration");
        std::mem::take(&mut self.channels).into_values().collect()
    }
}

fn endpoint(transport: &TransportConfig, seed: Seed, life: u64) -> Result<Endpoint, ConfigError> {
    let config = EndpointConfig {
        transport: transport.clone(),
        receive_port: RECEIVE_PORT,
        thread_id: 0,
        accept: true,
        max_connections: MAX_CONNECTIONS,
    };
    let seed = seed.child("engine", life);
    Endpoint::new(config, seed, Secret::repeatable(seed))
}
