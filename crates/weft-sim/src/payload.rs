//! The contents of packets, if hosts read them: VXLAN and RDMA headers, and payload.

use weft_wire::{RdmaHeader, VxlanHeader};

use crate::packet::PacketRef;

/// The part of one packet after the transport's headers.
#[derive(Clone, Debug, Default)]
pub struct PacketPayload {
    /// The VXLAN header, between the hosts of an overlay. If it announces a tenant's frame, the frame is the payload,
    /// and there are no transport headers.
    pub vxlan: Option<VxlanHeader>,
    /// The RDMA header, if one was announced.
    pub rdma: Option<RdmaHeader>,
    /// The payload after it.
    pub bytes: Vec<u8>,
}

/// The contents of packets in flight. They are stored apart from the packet slots: plain transports have none, and
/// their packets only hold the length of the payload.
#[derive(Debug, Default)]
pub struct PacketPayloads(Vec<PacketPayload>);

impl PacketPayloads {
    /// Returns a packet's contents for its sender to fill; the previous packet in the slot may have left its own.
    pub fn of(&mut self, packet: PacketRef) -> &mut PacketPayload {
        if self.0.len() <= packet.index() {
            self.0.resize_with(packet.index() + 1, PacketPayload::default);
        }
        &mut self.0[packet.index()]
    }

    /// Copies the original's contents to its copy.
    pub fn copy(&mut self, original: PacketRef, copy: PacketRef) {
        if !self.0.is_empty() {
            *self.of(copy) = self.of(original).clone();
        }
    }
}
