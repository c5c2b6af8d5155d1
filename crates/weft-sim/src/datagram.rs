//! Packets as bytes, if hosts encrypt, and the pattern of their payload.

use weft_units::Seed;

use crate::packet::PacketRef;
use crate::traffic::{ChannelId, Side};

/// The datagrams in flight: the bytes after their UDP headers. They are stored apart from the packet slots: if hosts
/// do not encrypt, there are none, and packets are values.
#[derive(Debug, Default)]
pub struct Datagrams(Vec<Vec<u8>>);

impl Datagrams {
    /// Returns a packet's datagram for its sender to fill; the previous packet in the slot may have left its own.
    pub fn of(&mut self, packet: PacketRef) -> &mut Vec<u8> {
        if self.0.len() <= packet.index() {
            self.0.resize_with(packet.index() + 1, Vec::new);
        }
        &mut self.0[packet.index()]
    }

    /// Returns a packet's datagram; `None` if a switch made the packet, or packets are values.
    pub fn get_mut(&mut self, packet: PacketRef) -> Option<&mut Vec<u8>> {
        self.0.get_mut(packet.index()).filter(|datagram| !datagram.is_empty())
    }

    /// Takes the datagram of a packet that has arrived.
    pub fn take(&mut self, packet: PacketRef) -> Vec<u8> {
        self.0.get_mut(packet.index()).map(std::mem::take).unwrap_or_default()
    }

    /// Removes the datagram that the previous packet in a switch's slot may have left.
    pub fn clear(&mut self, packet: PacketRef) {
        if let Some(datagram) = self.0.get_mut(packet.index()) {
            datagram.clear();
        }
    }
}

/// The bytes of a message, if they are checked: every channel, direction and message has its own pattern, so that
/// misplaced bytes show their origin.
#[derive(Clone, Copy, Debug)]
pub struct Contents(Seed);

impl Contents {
    /// Returns the pattern of one end's message of this number.
    pub fn new(channel: ChannelId, from: Side, message: u32) -> Self {
        let end = u64::from(channel.0) << 1 | from as u64;
        Self(Seed(end).child("message", message.into()))
    }

    /// Writes the bytes from `offset` on.
    pub fn read(self, offset: u32, out: &mut [u8]) {
        (offset..).zip(out).for_each(|(at, byte)| *byte = self.byte(at));
    }

    /// Returns `true` if `bytes` are those from `offset` on.
    pub fn are(self, offset: u32, bytes: &[u8]) -> bool {
        (offset..).zip(bytes).all(|(at, &byte)| byte == self.byte(at))
    }

    /// Returns the byte at offset `at`. Eight consecutive bytes, from a multiple of eight on, are those of one word.
    fn byte(self, at: u32) -> u8 {
        let word = (self.0.0 ^ u64::from(at / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.rotate_left(29).to_le_bytes()[at as usize % 8]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_those_of_one_message_at_one_place() {
        let contents = Contents::new(ChannelId(3), Side::Peer, 9);
        let mut bytes = [0; 100];
        contents.read(5, &mut bytes);
        assert!(contents.are(5, &bytes) && contents.are(25, &bytes[20..]));
        assert!(!contents.are(6, &bytes) && !contents.are(13, &bytes));
        for other in [
            Contents::new(ChannelId(3), Side::Opener, 9),
            Contents::new(ChannelId(3), Side::Peer, 8),
            Contents::new(ChannelId(2), Side::Peer, 9),
        ] {
            assert!(!other.are(5, &bytes), "{other:?}");
        }
    }

    #[test]
    fn a_packet_of_a_switch_has_no_datagram() {
        let (mut datagrams, packet) = (Datagrams::default(), PacketRef::default());
        assert_eq!(datagrams.get_mut(packet), None);
        datagrams.of(packet).push(7);
        assert_eq!(datagrams.get_mut(packet), Some(&mut vec![7]));
        datagrams.clear(packet);
        assert_eq!(datagrams.get_mut(packet), None);
    }
}
