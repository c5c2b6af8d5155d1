//! ACKs as the pool stores them: in one cache line, if their bitmap is short. Nearly all are: of 256 packets that a
//! bitmap can describe, those after the last placed one are left out.

use weft_topo::NodeId;
use weft_wire::{AckHeader, AckType, Bitmap, U3, U4, U5, U6, U11};

use super::pages::{NUMBERS, Place};
use super::{Integrity, PacketSlot};

/// Maximum number of bitmap words of an ACK that is stored so.
const MAX_WORDS: usize = 4;

/// An intact ACK with a short bitmap.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct ShortAck {
    /// The number of the host that sent it.
    source: u32,
    source_port: u16,
    version: U4,
    cc_type: U4,
    special: bool,
    path_id: U3,
    hop_count: U4,
    block: U5,
    ack_type: AckType,
    reserved: U6,
    num_ack: U11,
    num_ece: U11,
    psn: u32,
    destination_cid: u32,
    timestamp: u32,
    timestamp_echo: u32,
    timestamp_nic_rx: u32,
    psn_base: u32,
    bitmap: [u32; MAX_WORDS],
    words: u8,
}

impl ShortAck {
    /// Returns `true` if the pool stores this packet, whose header is `ack`, as a short ACK.
    #[inline]
    pub(super) fn fits(packet: &PacketSlot, ack: &AckHeader) -> bool {
        let is_intact = packet.integrity == Integrity::Sound && packet.payload_len == 0;
        is_intact && ack.bitmap.words().len() <= MAX_WORDS
    }

    /// Returns the stored form of a packet that fits.
    #[inline]
    pub(super) fn new(packet: &PacketSlot, ack: &AckHeader) -> Self {
        let words = ack.bitmap.words();
        let mut bitmap = [0; MAX_WORDS];
        bitmap.iter_mut().zip(words).for_each(|(stored, &word)| *stored = word);
        Self {
            source: packet.source.0,
            source_port: packet.source_port,
            version: ack.version,
            cc_type: ack.cc_type,
            special: ack.special,
            path_id: ack.path_id,
            hop_count: ack.hop_count,
            block: ack.block,
            ack_type: ack.ack_type,
            reserved: ack.reserved,
            num_ack: ack.num_ack,
            num_ece: ack.num_ece,
            psn: ack.psn,
            destination_cid: ack.destination_cid,
            timestamp: ack.timestamp,
            timestamp_echo: ack.timestamp_echo,
            timestamp_nic_rx: ack.timestamp_nic_rx,
            psn_base: ack.psn_base,
            bitmap,
            words: u8::try_from(words.len()).expect("at most four words"),
        }
    }

    /// Returns the packet.
    #[inline]
    pub(super) fn packet(&self) -> PacketSlot {
        let header = AckHeader {
            version: self.version,
            cc_type: self.cc_type,
            special: self.special,
            path_id: self.path_id,
            hop_count: self.hop_count,
            block: self.block,
            ack_type: self.ack_type,
            psn: self.psn,
            destination_cid: self.destination_cid,
            timestamp: self.timestamp,
            timestamp_echo: self.timestamp_echo,
            timestamp_nic_rx: self.timestamp_nic_rx,
            num_ack: self.num_ack,
            num_ece: self.num_ece,
            reserved: self.reserved,
            psn_base: self.psn_base,
            bitmap: Bitmap::from_words(&self.bitmap[..usize::from(self.words)]),
        };
        PacketSlot {
            source: NodeId(self.source),
            source_port: self.source_port,
            payload_len: 0,
            integrity: Integrity::Sound,
            packet: weft_wire::Packet::Ack(header),
        }
    }
}

impl Place for ShortAck {
    #[inline]
    fn clear(&mut self) {}

    #[inline]
    fn numbers(&self) -> [u32; NUMBERS] {
        let [first, second, third, fourth] = self.bitmap;
        [self.source, self.psn, self.psn_base, first, second, third, fourth]
    }

    #[inline]
    fn set_numbers(&mut self, numbers: [u32; NUMBERS]) {
        let [source, psn, psn_base, bitmap @ ..] = numbers;
        *self = Self { source, psn, psn_base, bitmap, ..*self };
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::Packet;

    use super::*;

    #[test]
    fn every_field_of_an_ack_comes_back() {
        for words in 0..=Bitmap::MAX_WORDS {
            let header = AckHeader {
                version: U4::MAX,
                cc_type: U4::truncate(9),
                special: true,
                path_id: U3::truncate(5),
                hop_count: U4::truncate(6),
                block: U5::truncate(17),
                ack_type: AckType::Nack,
                psn: 1,
                destination_cid: 2,
                timestamp: 3,
                timestamp_echo: 4,
                timestamp_nic_rx: 5,
                num_ack: U11::truncate(1000),
                num_ece: U11::truncate(1001),
                reserved: U6::truncate(33),
                psn_base: 6,
                bitmap: Bitmap::from_words(&[7, 8, 9, 10, 11, 12, 13, 14][..words]),
            };
            let packet = PacketSlot {
                source: NodeId(15),
                source_port: 16,
                packet: Packet::Ack(header),
                ..PacketSlot::default()
            };
            assert_eq!(ShortAck::fits(&packet, &header), words <= MAX_WORDS);
            if words > MAX_WORDS {
                continue;
            }
            let got = ShortAck::new(&packet, &header).packet();
            assert_eq!((got.source, got.source_port), (packet.source, packet.source_port));
            assert_eq!((got.payload_len, got.integrity), (0, Integrity::Sound));
            assert_eq!(got.packet, packet.packet);
        }
    }
}
