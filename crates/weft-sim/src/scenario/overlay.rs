//! The section `[overlay]`: hosts whose channels are flows between tenants' vNICs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::Topology;
use weft_transport::TransportConfig;
use weft_units::{ByteCount, Duration};
use weft_wire::{EthernetHeader, VirtioNetHeader, VxlanHeader};

use super::{Scenario, ScenarioError};
use crate::fault;
use crate::overlay::{self, Limits};

/// The virtual switch (`weft-vpc`) and the tenants of every host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OverlaySection {
    /// Number of tenants' networks.
    pub tenants: u32,
    /// Number of vNICs that each host has in each network.
    pub ports: u32,
    /// Bytes of a tenant's IP packet. Without it, the frame fills one packet of the transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The largest payload of a frame that a tenant leaves to its device to segment, bytes; below one packet's payload
    /// there is no offload.
    pub offload: ByteCount,
    /// The largest number of bytes of a flow in flight.
    pub window: ByteCount,
    /// The retransmission timeout of tenants.
    pub timeout: Duration,
    /// Number of frames a vNIC has buffers for.
    pub buffers: u32,
    /// `true` if lost packets are retransmitted. Otherwise networks are plain VXLANs.
    pub reliable: bool,
    /// `true` if tenants see a flow's frames in order.
    pub in_order: bool,
    /// Number of frames that may wait for a pair's connection.
    pub waiting_frames: u32,
    /// The time for which an unreachable peer gets plain VXLAN.
    pub plain_for: Duration,
}

impl Default for OverlaySection {
    fn default() -> Self {
        Self {
            tenants: 1,
            ports: 1,
            mtu: None,
            offload: ByteCount(overlay::MAX_PAYLOAD.into()),
            window: ByteCount(4 << 20),
            timeout: Duration::from_millis(5),
            buffers: 1024,
            reliable: true,
            in_order: true,
            waiting_frames: 256,
            plain_for: Duration::from_secs(10),
        }
    }
}

/// Bytes of the transport's message around a tenant's IP packet.
const AROUND_PACKET: u16 = 26;
const _: () = assert!(AROUND_PACKET as usize == VirtioNetHeader::LEN + EthernetHeader::LEN);

/// Minimum MTU of tenants, bytes: the size of a datagram that every IPv4 destination accepts (RFC 791, section 3.2).
const MIN_MTU: u16 = 576;

/// Maximum number of vNICs of a run: each has an address of 10.0.0.0/8.
const MAX_VNICS: u32 = 1 << 24;

/// The error of a section `[overlay]` that is invalid, alone or beside the other sections.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// A host has no vNIC, or too many.
    #[error("tenants times ports is {got}, expected 1 to {}", MAX_VNICS)]
    Vnics {
        /// The vNICs of a host.
        got: u64,
    },
    /// A setting is out of its range.
    #[error("{key} is {got}, expected {min} to {max}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value.
        got: u64,
        /// The least possible value.
        min: u64,
        /// The largest possible value.
        max: u64,
    },
    /// The network has too many vNICs.
    #[error("{hosts} hosts have {vnics} vNICs, expected at most {}", MAX_VNICS)]
    TooManyVnics {
        /// The hosts of the network.
        hosts: u32,
        /// Their vNICs.
        vnics: u64,
    },
    /// A packet of the transport is too small for a packet of a tenant.
    #[error(
        "tenants' packets have {mtu} bytes, expected {}: the transport's mtu is {transport}, expected at least {}",
        MIN_MTU,
        MIN_MTU + AROUND_PACKET
    )]
    PacketsTooSmall {
        /// Bytes of a tenant's packet.
        mtu: u16,
        /// Bytes of a packet of the transport.
        transport: u16,
    },
    /// A packet of a tenant does not fit a packet of the transport.
    #[error("mtu is {mtu}, expected at most {max}")]
    PacketsTooLarge {
        /// Bytes of a tenant's packet.
        mtu: u16,
        /// The largest possible value.
        max: u16,
    },
    /// The hosts have messages or a bus too.
    #[error(
        "an overlay is simulated together with neither messages nor a bus (sections messages and pcie)"
    )]
    WithMessagesOrBus,
    /// The hosts have a handshake or a delay of placement.
    #[error(
        "an overlay sets its connections up itself and places at once: without handshake and place_delay (section host)"
    )]
    WithHandshakeOrDelay,
    /// Hosts restart.
    #[error("an overlay's hosts do not restart: without faults of kind \"restart\"")]
    WithRestarts,
}

impl OverlaySection {
    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// A setting is out of its range.
    fn check(&self) -> Result<(), OverlayError> {
        let vnics = u64::from(self.tenants) * u64::from(self.ports);
        if vnics == 0 || vnics > u64::from(MAX_VNICS) {
            return Err(OverlayError::Vnics { got: vnics });
        }
        let within = |key: &'static str, got: u64, min: u64, max: u64| {
            let fits = (min..=max).contains(&got);
            if fits { Ok(()) } else { Err(OverlayError::OutOfRange { key, got, min, max }) }
        };
        if let Some(mtu) = self.mtu {
            within("mtu", mtu.into(), MIN_MTU.into(), 9000)?;
        }
        within("offload", self.offload.0, 0, overlay::MAX_PAYLOAD.into())?;
        within("window", self.window.0, 10_000, 1 << 30)?;
        within("timeout", self.timeout.as_nanos(), 1_000, 10_000_000_000)?;
        within("buffers", self.buffers.into(), 2, 1 << 20)?;
        within("waiting_frames", self.waiting_frames.into(), 1, 1 << 20)?;
        within("plain_for", self.plain_for.as_nanos(), 1_000_000, u64::MAX)
    }

    /// Checks the settings against `hosts` hosts and the transport.
    ///
    /// # Errors
    /// The network has too many vNICs, or packets do not fit.
    pub(super) fn check_network(
        &self,
        hosts: u32,
        transport: &TransportConfig,
    ) -> Result<(), OverlayError> {
        let vnics = u64::from(self.tenants) * u64::from(self.ports) * u64::from(hosts);
        if vnics > MAX_VNICS.into() {
            return Err(OverlayError::TooManyVnics { hosts, vnics });
        }
        let mtu = self.packet(transport);
        if mtu < MIN_MTU {
            return Err(OverlayError::PacketsTooSmall { mtu, transport: transport.mtu });
        }
        if mtu + AROUND_PACKET > transport.mtu {
            return Err(OverlayError::PacketsTooLarge { mtu, max: transport.mtu - AROUND_PACKET });
        }
        Ok(())
    }

    /// Returns the bytes of a tenant's IP packet.
    fn packet(&self, transport: &TransportConfig) -> u16 {
        self.mtu.unwrap_or_else(|| transport.mtu.saturating_sub(AROUND_PACKET))
    }

    /// Returns the limits on a tenant's flow.
    pub(crate) fn limits(&self, transport: &TransportConfig) -> Limits {
        let mss = u64::from(self.packet(transport) - overlay::PACKET_HEADERS);
        Limits {
            mss,
            frame: (self.offload.0 / mss).max(1) * mss,
            window: self.window.0.max(2 * mss),
            timeout: self.timeout,
        }
    }

    /// Returns the bytes around a packet's payload: those of the transport's own packets, and a VXLAN header.
    pub(super) fn packet_overhead(transport: &TransportConfig) -> u16 {
        transport.packet_overhead + u16::try_from(VxlanHeader::LEN).expect("8 bytes")
    }
}

impl Scenario {
    /// Rejects the settings that an overlay cannot be combined with.
    ///
    /// # Errors
    /// A setting is out of its range, or excludes an overlay.
    pub(super) fn check_overlay(&self) -> Result<(), OverlayError> {
        let Some(overlay) = &self.overlay else { return Ok(()) };
        if self.messages.is_some() || self.pcie.is_some() {
            return Err(OverlayError::WithMessagesOrBus);
        }
        if self.host.handshake || self.host.place_delay > Duration::ZERO {
            return Err(OverlayError::WithHandshakeOrDelay);
        }
        if self.faults.iter().any(|fault| fault.kind() == fault::Kind::Restart) {
            return Err(OverlayError::WithRestarts);
        }
        overlay.check()
    }

    /// Returns the transport's configuration; with an overlay, including the overhead of its packets.
    pub(super) fn resolved_transport(
        &self,
        topology: &Topology,
    ) -> Result<TransportConfig, ScenarioError> {
        let mut transport = self.transport.resolve(topology)?;
        if self.overlay.is_some() && !self.transport.overrides.contains_key("packet_overhead") {
            transport.packet_overhead = OverlaySection::packet_overhead(&transport);
        }
        Ok(transport)
    }
}
