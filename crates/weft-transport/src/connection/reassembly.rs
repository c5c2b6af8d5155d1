//! The receiving half of a connection: packets are placed in any order, messages are delivered in order. It stores 16
//! bytes a packet and never payload.

use weft_units::Instant;
use weft_wire::{AckType, DataHeader, MessageHeader};

use super::ack_state::{AckState, Echo};
use super::idle::BUFFER_RELEASE_AFTER;
use super::message::segment_len;
use super::{Connection, Shared};
use crate::pool::{Pool, Window, before};
use crate::timers::Timer;
use crate::{Arrival, CloseReason, DropReason, Event, PlacedError, Placement, Verdict};

/// The stage of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    /// The packet has not arrived.
    #[default]
    Missing,
    /// The owner was asked to place it.
    Arrived,
    /// The owner placed it.
    Placed,
}

/// A packet at or after the first one not placed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceivedPacket {
    /// The number of its message.
    message: u32,
    /// The payload's offset in the message, bytes.
    offset: u32,
    /// The message's length, bytes.
    length: u32,
    /// The payload's length, bytes.
    len: u16,
    opcode: u8,
    /// The `Stage` in the low bits, the congestion mark in the highest bit: 16 bytes in all.
    flags: u8,
}

const MARKED: u8 = 0x80;

impl ReceivedPacket {
    pub(crate) fn stage(&self) -> Stage {
        match self.flags & !MARKED {
            0 => Stage::Missing,
            1 => Stage::Arrived,
            _ => Stage::Placed,
        }
    }

    fn set_stage(&mut self, stage: Stage) {
        self.flags = (self.flags & MARKED) | stage as u8;
    }

    fn is_marked(&self) -> bool {
        self.flags & MARKED != 0
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) received: Window<ReceivedPacket>,
    /// The first packet not placed.
    pub(crate) base: u32,
    /// One past the highest packet placed.
    pub(crate) end: u32,
    /// The number of the message to which the packet at `base` belongs, and the bytes of it that came before.
    expected: (u32, u32),
    /// Number of packets that the owner was asked to place and has not.
    pub(super) waiting: u32,
    /// Number of packets placed, and of congestion marks on them; the wire carries them modulo 2^11.
    pub(crate) placed: u32,
    pub(crate) marked: u32,
    pub(crate) acks: AckState,
}

impl Receiver {
    pub(crate) const fn new(first_psn: u32) -> Self {
        Self {
            received: Window::new(),
            base: first_psn,
            end: first_psn,
            expected: (0, 0),
            waiting: 0,
            placed: 0,
            marked: 0,
            acks: AckState::new(),
        }
    }

    /// Returns `true` if `psn` was placed.
    pub(crate) fn is_placed(&self, psn: u32) -> bool {
        before(psn, self.base)
            || self.received.slot(psn).is_some_and(|packet| packet.stage() == Stage::Placed)
    }

    /// Returns `true` if `psn` arrived.
    pub(super) fn is_held(&self, psn: u32) -> bool {
        before(psn, self.base)
            || self.received.slot(psn).is_some_and(|packet| packet.stage() != Stage::Missing)
    }

    /// Releases memory when no packet is waiting.
    pub(crate) fn release_if_idle(&mut self, pool: &mut Pool<ReceivedPacket>) {
        if self.waiting == 0 && self.end == self.base {
            self.received.release(pool);
        }
    }

    /// Advances past the placed packets and delivers complete messages.
    ///
    /// # Errors
    /// [`DropReason::BadExtent`] if the packets do not follow one another as the messages do: the peer violates the
    /// protocol.
    fn advance(
        &mut self,
        pool: &mut Pool<ReceivedPacket>,
        mut deliver: impl FnMut(u32, &ReceivedPacket),
    ) -> Result<(), DropReason> {
        while let Some(packet) = self.received.slot_mut(self.base) {
            if packet.stage() != Stage::Placed {
                break;
            }
            if (packet.message, packet.offset) != self.expected {
                return Err(DropReason::BadExtent);
            }
            let end = packet.offset + u32::from(packet.len);
            if end == packet.length {
                deliver(packet.message, packet);
                self.expected = (packet.message.wrapping_add(1), 0);
            } else {
                self.expected.1 = end;
            }
            *packet = ReceivedPacket::default();
            self.base = self.base.wrapping_add(1);
        }
        if before(self.end, self.base) {
            self.end = self.base;
        }
        self.received.release_before(self.base, pool);
        Ok(())
    }
}

/// Returns `true` if a payload is all that a sender puts into the packet of a message at that offset. Less is the rest of a
/// packet that a switch cut, with its lengths rewritten and no checksum that would show it (docs/design/trimming.md).
fn fits(message: &MessageHeader, payload_len: u16, mtu: u16) -> bool {
    let is_inside = message.offset < message.length || (message.offset, message.length) == (0, 0);
    is_inside && payload_len == segment_len(message.length, message.offset, mtu)
}

/// A data packet without its payload.
pub(crate) struct DataPacket<'a> {
    pub(crate) header: &'a DataHeader,
    pub(crate) message: &'a MessageHeader,
    pub(crate) payload_len: u16,
}

impl Connection {
    /// Processes a data packet.
    pub(crate) fn handle_data(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &DataPacket<'_>,
        shared: &mut Shared,
    ) -> Verdict {
        let DataPacket { header, message, payload_len } = *packet;
        if self.awaits_first_data {
            self.note_first_data(shared);
        }
        let receiver = &mut self.receiver;
        let echo = Echo {
            psn: header.psn,
            path_id: header.path_id,
            timestamp: header.timestamp,
            received_at: arrival.received_at,
            hops: arrival.hops,
            marked: arrival.congestion_experienced,
        };
        if receiver.is_placed(header.psn) {
            receiver.note_duplicate(&echo, &shared.config.recovery);
            receiver.acks.answer = Some((echo, AckType::Duplicate));
            return shared.refuse(DropReason::Duplicate);
        }
        let packets_ahead = header.psn.wrapping_sub(receiver.base);
        if packets_ahead >= u32::from(shared.config.reorder_window) {
            return shared.refuse(DropReason::OutsideWindow);
        }
        // Each message has at least one packet. The owner makes room for all messages up to the latest.
        let messages_ahead = message.id.wrapping_sub(receiver.expected.0);
        if messages_ahead > packets_ahead || !fits(message, payload_len, self.mtu) {
            return shared.refuse(DropReason::BadExtent);
        }
        if let Err(reason) = receiver.note_order(&echo, now, &shared.config.recovery) {
            return shared.refuse(reason);
        }
        let base = receiver.base;
        if receiver.received.is_empty() {
            self.timers.arm_by(Timer::Idle, now + BUFFER_RELEASE_AFTER);
        }
        let packet = receiver.received.enter(header.psn, base, &mut shared.recv_pool);
        if packet.stage() != Stage::Missing {
            return shared.refuse(DropReason::Duplicate);
        }
        *packet = ReceivedPacket {
            message: message.id,
            offset: message.offset,
            length: message.length,
            len: payload_len,
            opcode: message.opcode,
            flags: Stage::Arrived as u8 | if echo.marked { MARKED } else { 0 },
        };
        receiver.waiting += 1;
        receiver.acks.note_arrival(echo, header.ack_now);
        let stats = &mut shared.stats;
        stats.data_received += 1;
        stats.ecn_marks += u64::from(arrival.congestion_experienced);
        stats.out_of_order += u64::from(header.psn != base);
        Verdict::Place(Placement {
            connection: self.id,
            psn: header.psn,
            opcode: message.opcode,
            tag: message.tag,
            message: message.id,
            offset: message.offset,
            len: payload_len,
            length: message.length,
        })
    }

    /// Returns the packet `psn`, which waits to be placed.
    ///
    /// # Errors
    /// [`PlacedError::NotWaiting`] if the owner was not asked to place it, or has placed or declined it.
    fn waiting(&mut self, psn: u32, window: u16) -> Result<&mut ReceivedPacket, PlacedError> {
        let receiver = &mut self.receiver;
        let held = psn.wrapping_sub(receiver.base) < u32::from(window);
        let packet = held.then(|| receiver.received.slot_mut(psn)).flatten();
        packet
            .filter(|packet| packet.stage() == Stage::Arrived)
            .ok_or(PlacedError::NotWaiting { psn })
    }

    /// Handles a packet that the owner could not place: it is treated as not arrived.
    pub(crate) fn handle_declined(
        &mut self,
        psn: u32,
        shared: &mut Shared,
    ) -> Result<(), PlacedError> {
        *self.waiting(psn, shared.config.reorder_window)? = ReceivedPacket::default();
        self.receiver.waiting -= 1;
        shared.stats.declined += 1;
        Ok(())
    }

    /// Handles a packet that the owner discarded because the sender exceeds its rate: it counts as placed, and as
    /// marked.
    pub(crate) fn handle_policed(
        &mut self,
        now: Instant,
        psn: u32,
        shared: &mut Shared,
    ) -> Result<(), PlacedError> {
        self.waiting(psn, shared.config.reorder_window)?.flags |= MARKED;
        shared.stats.policed += 1;
        self.handle_placed(now, psn, shared)
    }

    /// Handles a packet that the owner placed.
    pub(crate) fn handle_placed(
        &mut self,
        now: Instant,
        psn: u32,
        shared: &mut Shared,
    ) -> Result<(), PlacedError> {
        let packet = self.waiting(psn, shared.config.reorder_window)?;
        packet.set_stage(Stage::Placed);
        let marked = packet.is_marked();
        let receiver = &mut self.receiver;
        receiver.waiting -= 1;
        receiver.placed = receiver.placed.wrapping_add(1);
        receiver.marked = receiver.marked.wrapping_add(marked.into());
        if !before(psn, receiver.end) {
            receiver.end = psn.wrapping_add(1);
        }
        if psn == receiver.base {
            let (connection, events) = (self.id, &mut shared.events);
            let in_order = receiver.advance(&mut shared.recv_pool, |message, packet| {
                let (opcode, length) = (packet.opcode, packet.length);
                events.push_back(Event::Delivered { connection, message, opcode, length });
            });
            if let Err(reason) = in_order {
                shared.stats.drop_packet(reason);
                self.closing = Some(CloseReason::ProtocolViolation);
            }
        }
        self.acknowledge_placed(now, shared);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_16_bytes_a_packet() {
        assert_eq!(size_of::<ReceivedPacket>(), 16);
    }

    #[test]
    fn a_payload_is_all_of_its_message_that_a_packet_can_have() {
        let message = |offset, length| MessageHeader { opcode: 0, tag: 0, id: 0, offset, length };
        assert!(fits(&message(0, 100), 100, 1000));
        assert!(fits(&message(0, 0), 0, 1000));
        assert!(fits(&message(1000, 2500), 1000, 1000));
        assert!(fits(&message(2000, 2500), 500, 1000));
        assert!(!fits(&message(0, 2500), 999, 1000));
        assert!(!fits(&message(2000, 2500), 499, 1000));
        assert!(!fits(&message(0, 2500), 1001, 1000));
        assert!(!fits(&message(50, 100), 51, 1000));
        assert!(!fits(&message(100, 100), 0, 1000));
        assert!(!fits(&message(1, 0), 0, 1000));
        assert!(!fits(&message(u32::MAX, u32::MAX), 1, 1000));
    }
}
