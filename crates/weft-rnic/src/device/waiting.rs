//! Messages whose payload waits for their turn: what comes last must be seen last, and where messages may be dropped it is
//! not known before which receive request they take.

use alloc::vec::Vec;

use weft_transport::Placement;
use weft_wire::RdmaHeader;

use super::Device;
use super::holding::NotHeld;
use super::intake::{Destination, Piece, Put};
use crate::QueuePairNumber;
use crate::memory::Memory;
use crate::queue_pair::{HeldPart, Intake, QueuePair, Refusal, Role};
use crate::receive_queue::Receive;

impl Device {
    /// Has a packet's payload held for its message's turn, which may have come with it. Where there is no room, it is to
    /// come again; a message that may be lost is.
    pub(super) fn put_aside(
        &mut self,
        qp: QueuePairNumber,
        role: Role,
        placement: &Placement,
        comes: bool,
        memory: &mut impl Memory,
    ) -> Option<Put> {
        let held = self.hold(placement, memory);
        let reliable = self.qps.get(qp.0)?.is_reliable();
        let incoming = self.qps.get_mut(qp.0)?.flow(role)?.inbox.message(placement.message);
        match held {
            Ok(part) => {
                incoming.held.push(part);
                Some(Put::turn(comes))
            }
            Err(NotHeld::NoRoom) if reliable => {
                incoming.forget(placement.len);
                Some(Put::Declined)
            }
            Err(NotHeld::NoRoom) => {
                incoming.intake = Intake::Refuse(Refusal::NotReady);
                for part in core::mem::take(&mut incoming.held) {
                    self.let_go(part, memory);
                }
                Some(Put::turn(comes))
            }
            Err(NotHeld::Lost) => None,
        }
    }

    /// Whether it is known only in a message's turn which receive request it takes: where messages may be
    /// dropped, the peer's count is not ours.
    pub(super) fn waits_for_turn(&self, qp: QueuePairNumber, destination: Destination) -> bool {
        destination.is_receive() && self.qps.get(qp.0).is_some_and(QueuePair::drops_messages)
    }

    /// Places what is held of a message that waited for its turn.
    pub(super) fn place_waiting(
        &mut self,
        qp: QueuePairNumber,
        header: &RdmaHeader,
        destination: Destination,
        length: u32,
        held: Vec<HeldPart>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let next = self.qps.get(qp.0).and_then(|pair| pair.receive.first());
        let mut outcome = match next.map(Receive::room) {
            None => Err(Refusal::NotReady),
            Some(room) if room < length.into() => Err(Refusal::TooLong),
            Some(_) => Ok(()),
        };
        for part in held {
            if outcome.is_ok() {
                outcome = self.release(qp, 0, header, destination, part, memory);
            } else {
                self.let_go(part, memory);
            }
        }
        outcome
    }

    /// Places what is held of a message in a relaxed region, whose other bytes have all come.
    pub(super) fn place_held(
        &mut self,
        qp: QueuePairNumber,
        role: Role,
        message: u32,
        memory: &mut impl Memory,
    ) {
        let Some(flow) = self.qps.get_mut(qp.0).and_then(|pair| pair.flow(role)) else { return };
        let incoming = flow.inbox.message(message);
        let header = incoming.header;
        let destination = Destination::of(&incoming.operation());
        let Some(part) = incoming.held.pop() else { return };
        let HeldPart { offset, len, .. } = part;
        let released = self.release(qp, message, &header, destination, part, memory);
        let Some(flow) = self.qps.get_mut(qp.0).and_then(|pair| pair.flow(role)) else { return };
        match released {
            // Earlier messages must not write over it.
            Ok(()) if flow.inbox.ahead_of(message) > 0 => {
                flow.inbox.note_early(message, offset, len);
            }
            Ok(()) => {}
            Err(refusal) => flow.inbox.message(message).intake = Intake::Refuse(refusal),
        }
    }

    /// Places a held part and lets its packet go.
    pub(super) fn release(
        &mut self,
        qp: QueuePairNumber,
        message: u32,
        header: &RdmaHeader,
        destination: Destination,
        part: HeldPart,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let HeldPart { packet, offset, len, .. } = part;
        let piece = Piece { psn: header.psn, destination, receive: None, offset, len };
        let located = self.locate(qp, Role::Responder, &piece);
        if located.is_ok() {
            self.lay_out(qp, Role::Responder, message, destination);
            self.parts.iter().for_each(|&(place, from)| memory.place_held(packet, place, from));
        }
        self.let_go(part, memory);
        located
    }
}
