//! The contents of packets, where hosts look at them: VXLAN and RDMA headers, and payload.

use weft_wire::{RdmaHeader, VxlanHeader};

use crate::packet::ParcelId;

/// What follows the transport's headers in one packet.
#[derive(Clone, Debug, Default)]
pub struct Freight {
    /// The VXLAN header, between overlays' hosts. Where it says that a tenant's frame follows, the frame is the
    /// payload, and the transport's headers are none.
    pub vxlan: Option<VxlanHeader>,
    /// The RDMA header, if one was announced.
    pub rdma: Option<RdmaHeader>,
    /// The payload after it.
    pub payload: Vec<u8>,
}

/// The freight of packets in flight. It is kept apart from the parcels: where hosts are transports and
/// nothing more, nobody has any, and packets only say how long their payload would be.
#[derive(Debug, Default)]
pub struct Freights(Vec<Freight>);

impl Freights {
    /// What a packet carries, to be filled by its sender: whoever had its parcel's place before left its own.
    pub fn of(&mut self, packet: ParcelId) -> &mut Freight {
        if self.0.len() <= packet.index() {
            self.0.resize_with(packet.index() + 1, Freight::default);
        }
        &mut self.0[packet.index()]
    }

    /// Gives a copy what the original carries.
    pub fn copy(&mut self, original: ParcelId, copy: ParcelId) {
        if !self.0.is_empty() {
            *self.of(copy) = self.of(original).clone();
        }
    }
}
