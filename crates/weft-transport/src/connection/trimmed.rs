//! Trimmed packets: a switch whose queue was full cut the payload off and sent the headers ahead (Ultra Ethernet 1.0.3,
//! section 4.1; NDP, SIGCOMM 2017). The receiver answers at once with an ACK that names the packet, and the sender
//! retransmits it without waiting for a later packet or for a timeout.
//!
//! The answer is a special ACK, queued with those to probes, and acknowledges nothing: the packets that arrived are
//! reported by the ACKs that carry their round trips. So connections without trimmed packets do nothing for them.

use weft_units::Instant;
use weft_wire::{AckHeader, AckType, DataHeader};

use super::in_flight::SentPacket;
use super::loss::Cause;
use super::{Connection, Shared};
use crate::{Arrival, DropReason, TrimmedAt};

/// Maximum number of queued answers. Trimmed packets beyond it are retransmitted after their timeout.
pub(super) const MAX_ANSWERS: usize = 1024;

impl Connection {
    /// Processes the headers of a data packet whose payload a switch cut off.
    ///
    /// # Errors
    /// The reason why they are not answered.
    pub(crate) fn handle_trimmed(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &DataHeader,
        at: TrimmedAt,
        shared: &Shared,
    ) -> Result<(), DropReason> {
        if !self.is_established() || self.unannounced.is_some() {
            return Err(DropReason::UnexpectedSetup);
        }
        if header.version != self.version {
            return Err(DropReason::UnknownVersion);
        }
        self.last_received_at = now;
        let receiver = &self.receiver;
        if header.special || receiver.is_held(header.psn) {
            return Err(DropReason::Duplicate);
        }
        if header.psn.wrapping_sub(receiver.base) >= u32::from(shared.config.reorder_window) {
            return Err(DropReason::OutsideWindow);
        }
        let ack_type = match at {
            TrimmedAt::Fabric => AckType::Trimmed,
            TrimmedAt::LastHop => AckType::TrimmedLastHop,
        };
        self.queue_answer(arrival, header, ack_type, MAX_ANSWERS);
        Ok(())
    }

    /// Processes the answer to a trimmed packet: queues the packet for retransmission. The path works, so that its
    /// health is not affected.
    ///
    /// # Errors
    /// [`DropReason::StaleAck`] if the transmission that it names is not in flight.
    #[cold]
    pub(super) fn handle_trimmed_answer(
        &mut self,
        now: Instant,
        ack: &AckHeader,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        let sender = self.sender.as_deref_mut().ok_or(DropReason::StaleAck)?;
        let is_latest = |packet: &&SentPacket| names_latest(packet, ack);
        let packet = *sender.packet(ack.psn).filter(is_latest).ok_or(DropReason::StaleAck)?;
        shared.stats.nacks_received += 1;
        sender.waiting_since = now;
        sender.paths.note_response(packet.path, now);
        let at = match ack.ack_type {
            AckType::TrimmedLastHop => TrimmedAt::LastHop,
            _ => TrimmedAt::Fabric,
        };
        sender.declare_lost(ack.psn, &packet, Cause::Trimmed(at), now, shared);
        self.arm_congestion();
        Ok(())
    }
}

/// Returns `true` if the answer is about the latest transmission of a packet, and this one is in flight.
fn names_latest(packet: &SentPacket, ack: &AckHeader) -> bool {
    packet.is_in_flight() && packet.sent_at == ack.timestamp_echo
}
