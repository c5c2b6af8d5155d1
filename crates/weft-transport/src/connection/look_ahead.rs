//! Looking ahead: begins to fetch the memory that coming packets will need, so that an owner with many
//! connections at hand does not wait for each in turn. It changes nothing, and what is fetched in
//! vain costs a little time.

use weft_units::{prefetch, prefetch_all};
use weft_wire::{AckHeader, Packet};

use super::Connection;
use super::ack_received::circle;
use super::sender::Sender;

/// Packets of a cumulative acknowledgement that are looked at; usually it is a few.
const MOST_ACKED: u32 = 8;

/// Packets that are looked ahead for when a port has room.
const PACKETS: usize = 2;

/// How far ahead an owner is. What one step fetches, the next one reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// First: what is known of connections.
    Connections,
    /// Second: their sending halves, and where what was received is kept.
    Senders,
    /// Last: what is known of packets and paths.
    Packets,
}

impl Connection {
    /// For [`Self::handle_packet`].
    #[inline]
    pub(crate) fn look_ahead(&self, packet: &Packet, step: Step) {
        if step == Step::Connections {
            return prefetch_all(self);
        }
        match (step, packet, self.sender.as_deref()) {
            (Step::Senders, Packet::Ack(_), Some(sender)) => prefetch_all(sender),
            (Step::Senders, Packet::Data(..), _) => self.receiver.received.look_ahead(),
            (Step::Packets, Packet::Ack(ack), Some(sender)) => {
                sender.look_ahead_to_acknowledge(ack)
            }
            (Step::Packets, Packet::Data(header, _), _) => {
                if let Some(packet) = self.receiver.received.slot(header.psn) {
                    prefetch(packet);
                }
            }
            _ => {}
        }
    }

    /// For [`Self::poll_burst`].
    #[inline]
    pub(crate) fn look_ahead_to_transmit(&self, step: Step) {
        if step == Step::Connections {
            return prefetch_all(self);
        }
        match (step, self.sender.as_deref()) {
            (Step::Senders, Some(sender)) => prefetch_all(sender),
            (Step::Packets, Some(sender)) => sender.look_ahead_to_send(),
            _ => {}
        }
    }
}

impl Sender {
    #[inline]
    fn look_ahead_to_acknowledge(&self, ack: &AckHeader) {
        // What comes before them an ACK on its way ahead of this one acknowledges.
        let acked = ack.psn_base.wrapping_sub(self.base).min(MOST_ACKED);
        for psn in circle(ack.psn_base.wrapping_sub(acked), ack.psn_base) {
            if let Some(packet) = self.packet(psn) {
                prefetch_all(self.paths.state(packet.path));
            }
        }
    }

    #[inline]
    fn look_ahead_to_send(&self) {
        if let Some(packet) = self.sent.slot(self.next) {
            prefetch(packet);
        }
        // What a policy that sprays at random will draw.
        let mut rng = self.rng.clone();
        for _ in 0..PACKETS {
            prefetch_all(self.paths.state(self.paths.draw(&mut rng)));
        }
    }
}
