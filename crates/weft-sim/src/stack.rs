//! The layer between workloads and a host's NIC beside or in place of the plain transport: a messaging context on an
//! RNIC, an overlay's switch, or the transport's encryption.

use weft_seal::{SealConfig, Seals};
use weft_topo::NodeId;
use weft_transport::{ConfigError, EndpointConfig, Stats};
use weft_units::Seed;

use crate::messenger::Messenger;
use crate::overlay::Vtep;
use crate::scenario::OverlaySection;
use crate::traffic::ChannelId;

/// Configuration of every host's stack.
#[derive(Clone, Debug)]
pub enum StackConfig {
    /// Channels are X-RDMA's, with these parameters.
    Messages(weft_msg::Config),
    /// Channels are tenants' flows.
    Overlay {
        /// The switches and tenants.
        section: OverlaySection,
        /// Number of hosts of the network.
        hosts: u32,
    },
    /// Channels are the transport's, which encrypts.
    Sealed(SealConfig),
}

/// One host's stack.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "hosts box it, and all of a run are of one kind")]
pub enum Stack {
    /// A messaging context.
    Messages(Messenger),
    /// An overlay's end.
    Overlay(Vtep),
    /// The encryption of the host's transport.
    Sealed(Seals),
}

impl StackConfig {
    /// Returns its name, from which its seeds are derived.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Messages(_) => "messenger",
            Self::Overlay { .. } => "overlay",
            Self::Sealed(_) => "seals",
        }
    }

    /// Returns `true` if channels belong to the stack; otherwise they belong to the transport.
    pub const fn has_channels(&self) -> bool {
        !matches!(self, Self::Sealed(_))
    }

    /// Builds a host's stack; `shares_ports` means that its connections send from the same ports.
    ///
    /// # Errors
    /// A field of the transport's configuration is out of its range.
    pub fn build(
        &self,
        host: NodeId,
        endpoint: EndpointConfig,
        shares_ports: bool,
        seed: Seed,
    ) -> Result<Stack, ConfigError> {
        match self {
            Self::Messages(messages) => {
                Messenger::new(host, endpoint, messages, shares_ports, seed).map(Stack::Messages)
            }
            Self::Overlay { section, hosts } => {
                Vtep::new(host, *hosts, &endpoint.transport, section, seed).map(Stack::Overlay)
            }
            Self::Sealed(config) => Ok(Stack::sealed(config, seed)),
        }
    }
}

impl Stack {
    /// Returns the encryption of a transport, which draws keys from `seed`.
    pub fn sealed(config: &SealConfig, seed: Seed) -> Self {
        let mut rng = seed.rng();
        let entropy = std::array::from_fn(|_| rng.next_u32().to_le_bytes()[0]);
        Self::Sealed(Seals::new(config.clone(), entropy))
    }

    /// Returns the statistics of its own transport, if it has one.
    pub fn stats(&self) -> Option<&Stats> {
        match self {
            Self::Messages(messenger) => Some(messenger.context.verbs().device().stats()),
            Self::Overlay(vtep) => Some(vtep.switch().transport()),
            Self::Sealed(_) => None,
        }
    }

    /// Returns the channels that it has an end of.
    pub fn channels(&self) -> Vec<ChannelId> {
        match self {
            Self::Messages(messenger) => messenger.channels().collect(),
            Self::Overlay(vtep) => vtep.channels().collect(),
            Self::Sealed(_) => Vec::new(),
        }
    }

    /// Returns the messaging context, if it is one.
    pub fn messenger_mut(&mut self) -> Option<&mut Messenger> {
        match self {
            Self::Messages(messenger) => Some(messenger),
            Self::Overlay(_) | Self::Sealed(_) => None,
        }
    }

    /// Returns the overlay's end, if it is one.
    pub fn vtep_mut(&mut self) -> Option<&mut Vtep> {
        match self {
            Self::Overlay(vtep) => Some(vtep),
            Self::Messages(_) | Self::Sealed(_) => None,
        }
    }

    /// Returns the overlay's end, if it is one.
    pub fn vtep(&self) -> Option<&Vtep> {
        match self {
            Self::Overlay(vtep) => Some(vtep),
            Self::Messages(_) | Self::Sealed(_) => None,
        }
    }

    /// Returns the encryption, if it is that.
    pub const fn seals_mut(&mut self) -> Option<&mut Seals> {
        match self {
            Self::Sealed(seals) => Some(seals),
            Self::Messages(_) | Self::Overlay(_) => None,
        }
    }

    /// Returns the encryption, if it is that.
    pub const fn seals(&self) -> Option<&Seals> {
        match self {
            Self::Sealed(seals) => Some(seals),
            Self::Messages(_) | Self::Overlay(_) => None,
        }
    }
}
