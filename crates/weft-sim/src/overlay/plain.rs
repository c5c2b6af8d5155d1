//! Frames that leave as plain VXLAN (RFC 7348): as a wire has them, each on the path of its flow.

use std::collections::VecDeque;

use weft_transport::path::PathId;
use weft_transport::{Departure, Payload};
use weft_vpc::gateway::forward;
use weft_vpc::{Plain, Reading, Tenants, offload};
use weft_wire::{Packet, U24, VirtioNetHeader, VxlanHeader, VxlanNext};

use super::nics::Nics;
use crate::payload::PacketPayload;

/// An Ethernet frame on its way out.
#[derive(Debug)]
struct Piece {
    departure: Departure,
    vxlan: VxlanHeader,
    ethernet: Vec<u8>,
}

/// The frames that are ready to leave.
#[derive(Debug, Default)]
pub(super) struct PlainQueue {
    pieces: VecDeque<Piece>,
    frame: Vec<u8>,
    piece: Vec<u8>,
}

impl PlainQueue {
    /// Cuts a frame for the wire, and releases it. A frame that cannot be cut is dropped, which tenants of this
    /// simulator do not send.
    pub(super) fn push(&mut self, plain: &Plain, paths: u16, nics: &mut Nics) {
        self.frame.resize(plain.len as usize, 0);
        nics.read(plain.port, plain.token, 0, &mut self.frame, Reading::First);
        nics.release(plain.port, plain.token);
        if let Some(next) = plain.next {
            forward(&mut self.frame[VirtioNetHeader::LEN..], next);
        }
        let vxlan = VxlanHeader { vni: U24::truncate(plain.vni.get()), next: VxlanNext::Frame };
        let pieces = &mut self.pieces;
        let cut = offload::on_wire(&mut self.frame, &mut self.piece, |frame, ethernet| {
            let path = frame.flow_hash() % u32::from(paths);
            let path = PathId(u16::try_from(path).expect("less than the paths"));
            for &to in &plain.to {
                let len = u16::try_from(ethernet.len() - Packet::default().len());
                let len = len.expect("no longer than the network's packets");
                let payload = Some(Payload { token: 0, offset: 0, len });
                let departure = Departure { to, connection: None, path, padding: 0, payload };
                pieces.push_back(Piece { departure, vxlan, ethernet: ethernet.to_vec() });
            }
        });
        debug_assert!(cut.is_some(), "the switch has checked the frame");
    }

    /// Loads the next frame, if any. To the fabric it is an empty packet of the transport, and the rest of it
    /// payload: together they are as long as the frame.
    pub(super) fn poll(
        &mut self,
        packet: &mut Packet,
        payload: &mut PacketPayload,
    ) -> Option<Departure> {
        let Piece { departure, vxlan, ethernet } = self.pieces.pop_front()?;
        *packet = Packet::default();
        *payload = PacketPayload { vxlan: Some(vxlan), rdma: None, bytes: ethernet };
        Some(departure)
    }
}
