//! Inspection of frames for a port's tenant, on the frame's first bytes as they arrived in the packet.
//!
//! No decision uses the bytes in the tenant's memory: a guest that writes there during the inspection would pass
//! every rule, and could make the network learn other machines' addresses.

use core::net::SocketAddr;

use weft_transport::Placement;
use weft_units::Instant;
use weft_wire::{MacAddr, VirtioNetHeader};

use super::incoming::{After, Claimed, Inspection};
use super::pair::Pair;
use super::{DropCause, Network, Place, Port};
use crate::{Direction, Frame, Offload};

/// Number of a frame's first bytes that are inspected, with its virtio-net header.
pub(super) const HEAD: usize = VirtioNetHeader::LEN + Frame::MIN_PARSE_BYTES;

/// The part of a frame that one packet carries.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) placement: &'a Placement,
    pub(super) payload: &'a [u8],
}

impl Network {
    /// Returns `true` if a machine's place was set to the host at `peer`, and `false` if none was set. A learned place
    /// refuses no host: the first frame from its new host moves a machine.
    ///
    /// # Errors
    /// The machine's place was set to another one: the host at `peer` may have lost the machine, or never had it.
    pub(super) fn is_set_to(&self, machine: MacAddr, peer: SocketAddr) -> Result<bool, DropCause> {
        match self.table.place_if_set(machine) {
            Some(place) if !place.is_host(peer) => Err(DropCause::WrongHost),
            place => Ok(place.is_some()),
        }
    }
}

impl Port {
    /// Decides when to inspect a frame whose first piece to arrive is `piece`.
    pub(super) fn inspection_of(
        &self,
        piece: &Placement,
        after: After,
        pair: &Pair,
        network: &Network,
    ) -> Inspection {
        if !self.gate.has_rules() {
            return Inspection::OnHead;
        }
        let in_turn = || {
            let ordered = self.gate.tracks_connections() && network.config.in_order;
            !ordered || pair.arriving.may_be_inspected(piece.message, after)
        };
        if piece.offset == 0 && in_turn() { Inspection::OnHead } else { Inspection::OnWhole }
    }

    /// Decides whether a piece of a frame may be placed, and inspects the frame if the piece is its head.
    pub(super) fn admit_piece(
        &mut self,
        frame: &mut Claimed,
        piece: Piece<'_>,
        pair: &Pair,
        network: &mut Network,
        now: Instant,
    ) -> Result<(), DropCause> {
        let Piece { placement, payload } = piece;
        // A packet carries about as much as a frame of the network below, so a super-frame counts as the
        // frames it is cut into.
        if !self.gate.admit(Direction::Ingress, placement.len.into(), 1, now) {
            return Err(DropCause::RateLimited);
        }
        if !frame.pieces.add(placement) {
            return Err(DropCause::Malformed);
        }
        if placement.offset == 0 && frame.inspection == Inspection::OnHead {
            let head = &payload[..payload.len().min(HEAD)];
            self.inspect(head, placement.length, pair, network, now)?;
            frame.inspection = Inspection::Passed;
        }
        Ok(())
    }

    /// Decides whether the tenant may see a frame of `len` bytes that came on a pair's connection and begins with
    /// `head`, and learns its sender's place.
    pub(super) fn inspect(
        &mut self,
        head: &[u8],
        len: u32,
        pair: &Pair,
        network: &mut Network,
        now: Instant,
    ) -> Result<(), DropCause> {
        let parsed = Frame::parse_virtio(head, len as usize);
        let (virtio, frame) = parsed.map_err(|_| DropCause::Malformed)?;
        let bytes = &head[VirtioNetHeader::LEN..];
        // Before the rules: such a frame must not change the state of a tracked connection either.
        let is_set = network.is_set_to(frame.source, pair.peer)?;
        let decision = self.gate.evaluate(Direction::Ingress, &frame, bytes, now);
        self.log_flow(Direction::Ingress, &virtio, &frame, decision, now);
        decision?;
        let found = || network.table.find(&frame, now);
        let is_local = frame.destination == pair.local || found() == Some(Place::Port(pair.port));
        if !is_local {
            return Err(DropCause::Misdirected);
        }
        if is_set {
            network.table.learn_neighbour(&frame, bytes, now);
        } else {
            network.table.learn(&frame, bytes, Place::Peer(pair.peer), now);
        }
        Ok(())
    }

    /// Decides whether the tenant may receive a whole frame of `len` bytes.
    pub(super) fn admit_whole(
        &mut self,
        header: &[u8],
        ethernet: &[u8],
        len: u32,
        now: Instant,
    ) -> Result<(), DropCause> {
        let (virtio, _) = VirtioNetHeader::parse(header).map_err(|_| DropCause::Malformed)?;
        let head = &ethernet[..ethernet.len().min(Frame::MIN_PARSE_BYTES)];
        let frame = Frame::parse(head, ethernet.len()).map_err(|_| DropCause::Malformed)?;
        let frames = count_segments(&virtio, &frame)?;
        if !self.gate.admit(Direction::Ingress, len, frames, now) {
            return Err(DropCause::RateLimited);
        }
        let decision = self.gate.evaluate(Direction::Ingress, &frame, head, now);
        self.log_flow(Direction::Ingress, &virtio, &frame, decision, now);
        decision
    }
}

/// Returns the number of frames into which a frame is cut, as rate limits count it. A segment size without segments
/// counts nothing: the frame stays one.
///
/// # Errors
/// The virtio-net header does not match the frame.
pub(super) fn count_segments(virtio: &VirtioNetHeader, frame: &Frame) -> Result<u64, DropCause> {
    let offload = Offload::check(virtio, frame).map_err(|_| DropCause::Malformed)?;
    Ok(offload.segmentation.map_or(1, |cut| cut.count() as u64))
}
