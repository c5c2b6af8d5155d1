//! The configuration of a switch, its networks and its ports.

use alloc::vec::Vec;

use weft_transport::TransportConfig;
use weft_units::Duration;
use weft_wire::MacAddr;

use crate::TableConfig;

/// The identifier of a tenant's network, 24 bits (RFC 7348, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vni(pub(super) u32);

impl Vni {
    /// Returns the identifier; `None` for a number past 24 bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number < 1 << 24 { Some(Self(number)) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The frames that may travel unencrypted. The owner encrypts the packets of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InClear {
    /// All frames: nothing is encrypted here.
    #[default]
    Any,
    /// Frames to and from hosts that do not encrypt.
    Unable,
    /// No frames.
    Nothing,
}

/// The configuration of a switch.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// The configuration of its connections.
    pub transport: TransportConfig,
    /// UDP port on which it receives.
    pub receive_port: u16,
    /// The index of its thread, which peers learn (BIFROST, section 5.2).
    pub thread_id: u8,
    /// Number of threads of this host, at least one, each with a switch of its own.
    pub threads: u8,
    /// Largest number of connections, one for each pair of vNICs.
    pub max_connections: u32,
    /// Largest number of frames that wait for a connection to be set up; more are dropped.
    pub waiting_frames: usize,
    /// The time after which a peer that is sent plain VXLAN, because it does not speak Weft or all its paths have
    /// failed, is sent a connection request again.
    pub plain_period: Duration,
    /// The frames that may leave and arrive unencrypted if no pair's connection carries them.
    pub in_clear: InClear,
    /// The limits of each network's table.
    pub table: TableConfig,
}

impl SwitchConfig {
    /// Returns the configuration of a switch with this `transport`, on the port of VXLAN.
    pub fn new(transport: TransportConfig) -> Self {
        Self {
            transport,
            receive_port: weft_wire::VxlanHeader::PORT,
            thread_id: 0,
            threads: 1,
            max_connections: 1 << 17,
            waiting_frames: 256,
            plain_period: Duration::from_secs(10),
            in_clear: InClear::Any,
            table: TableConfig::default(),
        }
    }
}

/// The configuration of a tenant's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// `true` if lost frames are retransmitted. Otherwise the network is a plain VXLAN.
    pub reliable: bool,
    /// `true` if tenants see frames in the order they were sent. Guests with RACK-TLP may work without it
    /// (BIFROST, section 7.3).
    pub in_order: bool,
    /// `true` if a frame for a machine whose place is unknown goes to all hosts of the network. It is dropped where every
    /// machine's place is set.
    pub flood: bool,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self { reliable: true, in_order: true, flood: true }
    }
}

/// The configuration of a tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its network.
    pub vni: Vni,
    /// The addresses that its tenant may send from; empty allows any.
    pub addresses: Vec<MacAddr>,
}
