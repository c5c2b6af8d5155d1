//! The layer between workloads and a host's NIC in place of the plain transport: a messaging context on an RNIC,
//! or an overlay's switch.

use weft_topo::NodeId;
use weft_transport::{ConfigError, EndpointConfig, Stats};
use weft_units::Seed;

use crate::messenger::Messenger;
use crate::overlay::Vtep;
use crate::scenario::OverlaySection;
use crate::traffic::ChannelId;

/// How every host's stack is made.
#[derive(Clone, Debug)]
pub enum StackConfig {
    /// Channels are X-RDMA's, with these parameters.
    Messages(weft_msg::Config),
    /// Channels are tenants' flows.
    Overlay {
        /// The switches and tenants.
        section: OverlaySection,
        /// Hosts of the network.
        hosts: u32,
    },
}

/// One host's stack.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "hosts box it, and all of a run are of one kind")]
pub enum Stack {
    /// A messaging context.
    Messages(Messenger),
    /// An overlay's end.
    Overlay(Vtep),
}

impl StackConfig {
    /// Returns its name, which its seeds are drawn by.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Messages(_) => "messenger",
            Self::Overlay { .. } => "overlay",
        }
    }

    /// Makes a host's; `shares_ports` says that its connections send from the same ports.
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
        }
    }
}

impl Stack {
    /// Returns what its transport counted.
    pub fn stats(&self) -> &Stats {
        match self {
            Self::Messages(messenger) => messenger.context.verbs().device().stats(),
            Self::Overlay(vtep) => vtep.switch().transport(),
        }
    }

    /// Returns the channels it has an end of.
    pub fn channels(&self) -> Vec<ChannelId> {
        match self {
            Self::Messages(messenger) => messenger.channels().collect(),
            Self::Overlay(vtep) => vtep.channels().collect(),
        }
    }

    /// Returns the messaging context, where it is one.
    pub fn messenger_mut(&mut self) -> Option<&mut Messenger> {
        match self {
            Self::Messages(messenger) => Some(messenger),
            Self::Overlay(_) => None,
        }
    }

    /// Returns the overlay's end, where it is one.
    pub fn vtep_mut(&mut self) -> Option<&mut Vtep> {
        match self {
            Self::Overlay(vtep) => Some(vtep),
            Self::Messages(_) => None,
        }
    }

    /// Returns the overlay's end, where it is one.
    pub fn vtep(&self) -> Option<&Vtep> {
        match self {
            Self::Overlay(vtep) => Some(vtep),
            Self::Messages(_) => None,
        }
    }
}
