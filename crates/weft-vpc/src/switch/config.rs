//! What a switch, its networks and its ports are set up with.

use alloc::vec::Vec;

use weft_transport::TransportConfig;
use weft_units::Duration;
use weft_wire::MacAddr;

use crate::TableConfig;

/// A tenant's network: 24 bits (RFC 7348, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vni(pub(super) u32);

impl Vni {
    /// `None` past 24 bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number < 1 << 24 { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which frames may travel in the clear. Packets of connections are the owner's, which encrypts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InClear {
    /// Any: nothing is encrypted here.
    #[default]
    Any,
    /// Those to and from hosts that were found not to encrypt.
    Unable,
    /// None.
    Nothing,
}

/// How a switch behaves.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// How its connections behave.
    pub transport: TransportConfig,
    /// UDP port on which it receives.
    pub receive_port: u16,
    /// Its thread, told to peers (BIFROST, section 5.2).
    pub thread_id: u8,
    /// Threads of this host, each with a switch of its own. At least one.
    pub threads: u8,
    /// Connections at most: pairs of vNICs.
    pub max_connections: u32,
    /// Frames that may wait for a connection to be set up; more are dropped.
    pub waiting_frames: usize,
    /// How long a peer that does not speak Weft, or whose paths have all failed, is spoken to in plain
    /// VXLAN before it is asked again.
    pub plain_for: Duration,
    /// Which frames that no pair's connection carries may leave and arrive in the clear.
    pub in_clear: InClear,
    /// How long and how much each network's table learns.
    pub table: TableConfig,
}

impl SwitchConfig {
    /// A switch whose connections behave as `transport` says, on the port of VXLAN.
    pub fn new(transport: TransportConfig) -> Self {
        Self {
            transport,
            receive_port: weft_wire::VxlanHeader::PORT,
            thread_id: 0,
            threads: 1,
            max_connections: 1 << 17,
            waiting_frames: 256,
            plain_for: Duration::from_secs(10),
            in_clear: InClear::Any,
            table: TableConfig::default(),
        }
    }
}

/// How a tenant's network is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Whether frames are sent again when they are lost. Without, the network is a plain VXLAN.
    pub reliable: bool,
    /// Whether tenants see frames in the order they were sent. Guests with RACK-TLP may do without
    /// (BIFROST, section 7.3).
    pub in_order: bool,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self { reliable: true, in_order: true }
    }
}

/// A tenant's interface, as the switch sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its network.
    pub vni: Vni,
    /// Addresses it may send from; empty allows any.
    pub addresses: Vec<MacAddr>,
}
