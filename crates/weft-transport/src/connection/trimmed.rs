//! Trimmed packets: a switch whose queue was full cut the payload off and sent the headers ahead (Ultra Ethernet 1.0.3,
//! section 4.1; NDP, SIGCOMM 2017). The receiver answers at once with an ACK that names the packet, and the sender
//! retransmits it without waiting for a later packet or for a timeout.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use weft_units::Instant;
use weft_wire::{AckHeader, AckType, DataHeader};

use super::ack_state::{AckState, Echo};
use super::loss::Cause;
use super::sender::Sender;
use super::{Connection, Shared};
use crate::{Arrival, DropReason, TrimmedAt};

/// Maximum number of trimmed packets that wait for their answers. Those beyond it are retransmitted after their timeout.
const MAX_ANSWERS: usize = 1024;

impl AckState {
    /// Queues the answer to a trimmed packet.
    fn queue_trimmed(&mut self, echo: Echo, ack_type: AckType) {
        let answers = self.trimmed.get_or_insert_with(Box::default);
        if answers.len() < MAX_ANSWERS {
            answers.push_back((echo, ack_type));
        }
    }

    /// Returns the next trimmed packet to answer.
    #[inline]
    pub(super) fn next_trimmed(&mut self) -> Option<(Echo, AckType)> {
        let answers: &mut VecDeque<_> = self.trimmed.as_deref_mut()?;
        let next = answers.pop_front();
        if answers.is_empty() {
            self.trimmed = None;
        }
        next
    }
}

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
        let receiver = &mut self.receiver;
        if header.special || receiver.is_held(header.psn) {
            return Err(DropReason::Duplicate);
        }
        if header.psn.wrapping_sub(receiver.base) >= u32::from(shared.config.reorder_window) {
            return Err(DropReason::OutsideWindow);
        }
        let echo = Echo {
            psn: header.psn,
            path_id: header.path_id,
            timestamp: header.timestamp,
            received_at: arrival.received_at,
            hops: arrival.hops,
            marked: arrival.congestion_experienced,
        };
        let ack_type = match at {
            TrimmedAt::Fabric => AckType::Trimmed,
            TrimmedAt::LastHop => AckType::TrimmedLastHop,
        };
        receiver.acks.queue_trimmed(echo, ack_type);
        Ok(())
    }
}

impl Sender {
    /// Queues the packet that an ACK names as trimmed for retransmission, unless that is about an earlier transmission.
    /// The path works, so that its health is not affected.
    #[cold]
    pub(super) fn on_trimmed(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        shared.stats.nacks_received += 1;
        let Some(&packet) = self.packet(ack.psn) else { return };
        if packet.is_in_flight() && packet.sent_at == ack.timestamp_echo {
            self.paths.state_mut(packet.path).last_response_at = now;
            self.declare_lost(ack.psn, &packet, Cause::Trimmed, now, shared);
        }
    }
}
