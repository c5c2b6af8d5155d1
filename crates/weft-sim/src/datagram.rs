//! Packets as bytes, where hosts encrypt, and what the payload in them is.

use weft_units::Seed;

use crate::packet::ParcelId;
use crate::traffic::{ChannelId, Side};

/// The datagrams in flight: what follows their UDP headers. They are kept apart from the parcels: where hosts do not
/// encrypt, nobody has any, and packets are values.
#[derive(Debug, Default)]
pub struct Datagrams(Vec<Vec<u8>>);

impl Datagrams {
    /// The datagram of a parcel, to be filled by its sender: whoever had the place before left its own.
    pub fn of(&mut self, packet: ParcelId) -> &mut Vec<u8> {
        if self.0.len() <= packet.index() {
            self.0.resize_with(packet.index() + 1, Vec::new);
        }
        &mut self.0[packet.index()]
    }

    /// The datagram of a parcel; `None` of one that a switch made, or where packets are values.
    pub fn get_mut(&mut self, packet: ParcelId) -> Option<&mut Vec<u8>> {
        self.0.get_mut(packet.index()).filter(|datagram| !datagram.is_empty())
    }

    /// Takes it from a parcel that has arrived.
    pub fn take(&mut self, packet: ParcelId) -> Vec<u8> {
        self.0.get_mut(packet.index()).map(std::mem::take).unwrap_or_default()
    }

    /// The parcel of a switch has none, whoever had its place before.
    pub fn clear(&mut self, packet: ParcelId) {
        if let Some(datagram) = self.0.get_mut(packet.index()) {
            datagram.clear();
        }
    }
}

/// The bytes that messages consist of where they are looked at: every channel, direction and message has its own, so
/// that whatever is placed shows where it is from.
#[derive(Clone, Copy, Debug)]
pub struct Contents(Seed);

impl Contents {
    /// What one end of a channel sends in its message of this number.
    pub fn new(channel: ChannelId, from: Side, message: u32) -> Self {
        let end = u64::from(channel.0) << 1 | from as u64;
        Self(Seed(end).child("message", message.into()))
    }

    /// Writes the bytes from `offset` on.
    pub fn read(self, offset: u32, out: &mut [u8]) {
        (offset..).zip(out).for_each(|(at, byte)| *byte = self.byte(at));
    }

    /// Whether these are the bytes from `offset` on.
    pub fn are(self, offset: u32, bytes: &[u8]) -> bool {
        (offset..).zip(bytes).all(|(at, &byte)| byte == self.byte(at))
    }

    /// Of eight bytes in a row each depends on where the eight begin.
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
    fn a_parcel_of_a_switch_has_no_datagram() {
        let (mut datagrams, packet) = (Datagrams::default(), ParcelId::default());
        assert_eq!(datagrams.get_mut(packet), None);
        datagrams.of(packet).push(7);
        assert_eq!(datagrams.get_mut(packet), Some(&mut vec![7]));
        datagrams.clear(packet);
        assert_eq!(datagrams.get_mut(packet), None);
    }
}
