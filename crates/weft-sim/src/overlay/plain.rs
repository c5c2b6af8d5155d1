//! Frames that leave as plain VXLAN (RFC 7348): segmented as for a wire, each on the path of its flow.

use std::collections::VecDeque;

use weft_transport::path::PathId;
use weft_transport::{Departure, Payload};
use weft_vpc::gateway::forward;
use weft_vpc::{Plain, Reading, Tenants, offload};
use weft_wire::{Packet, U24, VirtioNetHeader, VxlanHeader, VxlanNext};

use super::nics::Nics;
use crate::payload::PacketPayload;

/// An Ethernet frame that is ready to leave.
#[derive(Debug)]
struct PlainFrame {
    departure: Departure,
    vxlan: VxlanHeader,
    ethernet: Vec<u8>,
}

/// The frames that are ready to leave.
#[derive(Debug, Default)]
pub(super) struct PlainQueue {
    frames: VecDeque<PlainFrame>,
    super_frame: Vec<u8>,
    segment: Vec<u8>,
}

impl PlainQueue {
    /// Segments a tenant's frame for the wire, and releases it. A frame that cannot be segmented is dropped; tenants of
    /// this simulator send none.
    pub(super) fn push(&mut self, plain: &Plain, paths: u16, nics: &mut Nics) {
        self.super_frame.resize(plain.len as usize, 0);
        nics.read(plain.port, plain.token, 0, &mut self.super_frame, Reading::First);
        nics.release(plain.port, plain.token);
        if let Some(next) = plain.next {
            forward(&mut self.super_frame[VirtioNetHeader::LEN..], next);
        }
        let vxlan = VxlanHeader { vni: U24::truncate(plain.vni.get()), next: VxlanNext::Frame };
        let frames = &mut self.frames;
        let cut = offload::on_wire(&mut self.super_frame, &mut self.segment, |frame, ethernet| {
            let path = frame.flow_hash() % u32::from(paths);
            let path = PathId(u16::try_from(path).expect("less than the paths"));
            for &to in &plain.to {
                let len = u16::try_from(ethernet.len() - Packet::default().len());
                let len = len.expect("no longer than the network's packets");
                let payload = Some(Payload { token: 0, offset: 0, len });
                let departure = Departure { to, connection: None, path, padding: 0, payload };
                frames.push_back(PlainFrame { departure, vxlan, ethernet: ethernet.to_vec() });
            }
        });
        debug_assert!(cut.is_some(), "the switch has checked the frame");
    }

    /// Writes the next frame to send to `packet` and `payload`, if there is one. For the fabric it is an empty packet
    /// of the transport with the rest of the frame as payload: together they are as long as the frame.
    pub(super) fn poll(
        &mut self,
        packet: &mut Packet,
        payload: &mut PacketPayload,
    ) -> Option<Departure> {
        let PlainFrame { departure, vxlan, ethernet } = self.frames.pop_front()?;
        *packet = Packet::default();
        *payload = PacketPayload { vxlan: Some(vxlan), rdma: None, bytes: ethernet };
        Some(departure)
    }
}
