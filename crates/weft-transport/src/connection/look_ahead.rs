//! Looking ahead: touches the memory that coming packets will need, so that an owner with many
//! connections at hand waits for all of it together and not for each in turn. It changes nothing,
//! and what is touched in vain costs a little time.

use core::hint::black_box;

use weft_wire::{AckHeader, Packet};

use super::Connection;
use super::ack_received::circle;
use super::reassembly::ReceivedPacket;
use super::sender::Sender;

/// Packets of a cumulative acknowledgement that are looked at; usually it is a few.
const MOST_ACKED: usize = 8;

/// Packets that are looked ahead for when a port has room.
const PACKETS: usize = 2;

impl Connection {
    /// For [`Self::handle_packet`].
    #[inline]
    pub(crate) fn look_ahead(&self, packet: &Packet) {
        self.touch();
        match (packet, self.sender.as_deref()) {
            (Packet::Data(header, _), _) => {
                black_box(self.receiver.received.slot(header.psn).map(ReceivedPacket::stage));
            }
            (Packet::Ack(ack), Some(sender)) => sender.look_ahead_to_acknowledge(ack),
            _ => {}
        }
    }

    /// For [`Self::poll_transmit`].
    #[inline]
    pub(crate) fn look_ahead_to_transmit(&self) {
        self.touch();
        if let Some(sender) = self.sender.as_deref() {
            sender.look_ahead_to_send();
        }
    }

    /// A field of each cache line.
    #[inline]
    fn touch(&self) {
        black_box((self.id, self.peer.port(), self.timers.next(), self.setup.is_due()));
        black_box(self.receiver.acks.is_due());
    }
}

impl Sender {
    #[inline]
    fn look_ahead_to_acknowledge(&self, ack: &AckHeader) {
        black_box((self.next, self.paced_until));
        for psn in circle(self.base, ack.psn_base).take(MOST_ACKED) {
            if let Some(packet) = self.packet(psn) {
                black_box(self.paths.state(packet.path).up);
            }
        }
    }

    #[inline]
    fn look_ahead_to_send(&self) {
        black_box((self.next, self.paced_until, self.outbox.has_segment()));
        black_box(self.controllers.total_window());
        black_box(self.sent.slot(self.next).map(|packet| packet.sent_at));
        // What a policy that sprays at random will draw.
        let mut rng = self.rng.clone();
        for _ in 0..PACKETS {
            black_box(self.paths.state(self.paths.draw(&mut rng)).up);
        }
    }
}
