//! Held payload of messages: the last byte of a WRITE must become visible last, and on services that drop messages the
//! receive request of a message is known only in its turn, when all earlier messages were executed or dropped.

use alloc::vec::Vec;

use weft_transport::Placement;
use weft_wire::RdmaHeader;

use super::active::ActiveQp;
use super::holding::NotHeld;
use super::intake::{Destination, Piece, Put};
use crate::memory::Memory;
use crate::queue_pair::{HeldPart, Intake, Refusal, Role};
use crate::receive_queue::Receive;

impl ActiveQp<'_> {
    /// Holds a packet's payload until its message's turn; `completes_next` is `true` if the packet completes the next
    /// message. At the limit, a packet of a reliable queue pair is declined, and an unreliable message is dropped.
    /// Returns `None` if the payload is lost.
    pub(super) fn hold_payload(
        &mut self,
        role: Role,
        placement: &Placement,
        completes_next: bool,
        memory: &mut impl Memory,
    ) -> Option<Put> {
        let held = self.holding.hold(self.carriers, placement, memory);
        let reliable = self.pair.is_reliable();
        let incoming = self.pair.flow(role)?.inbox.message(placement.message);
        match held {
            Ok(part) => {
                incoming.held.push(part);
                Some(Put::handled(completes_next))
            }
            Err(NotHeld::NoRoom) if reliable => {
                incoming.forget(placement.len);
                Some(Put::Declined)
            }
            Err(NotHeld::NoRoom) => {
                incoming.intake = Intake::Refuse(Refusal::NotReady);
                for part in core::mem::take(&mut incoming.held) {
                    self.holding.release(part, memory);
                }
                Some(Put::handled(completes_next))
            }
            Err(NotHeld::Lost) => None,
        }
    }

    /// Returns `true` if the receive request of a message is known only in its turn, since earlier messages may be dropped.
    pub(super) fn waits_for_turn(&self, destination: Destination) -> bool {
        destination.is_receive() && self.pair.drops_messages()
    }

    /// Places the held payload of a message in its turn.
    pub(super) fn place_waiting(
        &mut self,
        header: &RdmaHeader,
        destination: Destination,
        length: u32,
        held: Vec<HeldPart>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let next = self.pair.receive.first();
        let mut outcome = match next.map(Receive::room) {
            None => Err(Refusal::NotReady),
            Some(room) if room < length.into() => Err(Refusal::TooLong),
            Some(_) => Ok(()),
        };
        for part in held {
            if outcome.is_ok() {
                outcome = self.release(0, header, destination, part, memory);
            } else {
                self.holding.release(part, memory);
            }
        }
        outcome
    }

    /// Places the held payload of a message in a relaxed region, whose other bytes have arrived.
    pub(super) fn place_held(&mut self, role: Role, message: u32, memory: &mut impl Memory) {
        let Some(flow) = self.pair.flow(role) else { return };
        let incoming = flow.inbox.message(message);
        let header = incoming.header;
        let destination = Destination::of(&incoming.operation);
        let Some(part) = incoming.held.pop() else { return };
        let HeldPart { offset, len, .. } = part;
        let released = self.release(message, &header, destination, part, memory);
        let Some(flow) = self.pair.flow(role) else { return };
        match released {
            // Earlier messages must not write over it.
            Ok(()) if flow.inbox.ahead_of(message) > 0 => {
                flow.inbox.note_early(message, offset, len);
            }
            Ok(()) => {}
            Err(refusal) => flow.inbox.message(message).intake = Intake::Refuse(refusal),
        }
    }

    /// Places a held part and releases its packet.
    pub(super) fn release(
        &mut self,
        message: u32,
        header: &RdmaHeader,
        destination: Destination,
        part: HeldPart,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let HeldPart { packet, offset, len, .. } = part;
        let piece = Piece { psn: header.psn, destination, receive: None, offset, len };
        let located = self.locate(Role::Responder, &piece);
        if located.is_ok() {
            self.lay_out(Role::Responder, message, destination);
            self.parts.iter().for_each(|&(place, from)| memory.place_held(packet, place, from));
        }
        self.holding.release(part, memory);
        located
    }
}
