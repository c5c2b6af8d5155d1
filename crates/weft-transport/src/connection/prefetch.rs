//! Prefetching of the memory that coming packets will need, so that an owner of many connections does not wait for each
//! in turn. It changes nothing; a useless prefetch costs a little time.

use weft_units::{prefetch, prefetch_all};
use weft_wire::{AckHeader, Packet};

use super::Connection;
use super::ack_received::psn_range;
use super::sender::Sender;

/// Maximum number of packets of a cumulative acknowledgement that are prefetched; usually there are a few.
const MAX_ACKED: u32 = 8;

/// Number of packets prefetched when a port has room.
const PACKETS_AHEAD: usize = 2;

/// A stage of prefetching. One stage reads what the stage before it fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchStage {
    /// The first stage: connections.
    Connections,
    /// The second stage: their sending halves and receive windows.
    Senders,
    /// The last stage: the state of packets and paths.
    Packets,
}

impl Connection {
    /// Prefetches for [`Self::handle_packet`].
    #[inline]
    pub(crate) fn prefetch(&self, packet: &Packet, step: PrefetchStage) {
        if step == PrefetchStage::Connections {
            return prefetch_all(self);
        }
        match (step, packet, self.sender.as_deref()) {
            (PrefetchStage::Senders, Packet::Ack(_), Some(sender)) => prefetch_all(sender),
            (PrefetchStage::Senders, Packet::Data(..), _) => {
                self.receiver.received.prefetch_first()
            }
            (PrefetchStage::Packets, Packet::Ack(ack), Some(sender)) => {
                sender.prefetch_for_ack(ack)
            }
            (PrefetchStage::Packets, Packet::Data(header, _), _) => {
                if let Some(packet) = self.receiver.received.slot(header.psn) {
                    prefetch(packet);
                }
            }
            _ => {}
        }
    }

    /// Prefetches for [`Self::poll_burst`].
    #[inline]
    pub(crate) fn prefetch_for_transmit(&self, step: PrefetchStage) {
        if step == PrefetchStage::Connections {
            return prefetch_all(self);
        }
        match (step, self.sender.as_deref()) {
            (PrefetchStage::Senders, Some(sender)) => prefetch_all(sender),
            (PrefetchStage::Packets, Some(sender)) => sender.prefetch_for_send(),
            _ => {}
        }
    }
}

impl Sender {
    #[inline]
    fn prefetch_for_ack(&self, ack: &AckHeader) {
        // Earlier packets are acknowledged by an ACK that arrives before this one.
        let acked = ack.psn_base.wrapping_sub(self.base).min(MAX_ACKED);
        for psn in psn_range(ack.psn_base.wrapping_sub(acked), ack.psn_base) {
            if let Some(packet) = self.packet(psn) {
                prefetch_all(self.paths.state(packet.path));
            }
        }
    }

    #[inline]
    fn prefetch_for_send(&self) {
        if let Some(packet) = self.sent.slot(self.next) {
            prefetch(packet);
        }
        // The paths that a policy with random spray will draw.
        let mut rng = self.rng.clone();
        for _ in 0..PACKETS_AHEAD {
            prefetch_all(self.paths.state(self.paths.draw(&mut rng)));
        }
    }
}
