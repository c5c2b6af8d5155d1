//! ACKs as the pool stores them: in one cache line, if their bitmap is short. Nearly all are: of 256 packets that a
//! bitmap can describe, those after the last placed one are left out.

use weft_topo::NodeId;
use weft_wire::{AckHeader, AckType, Bitmap, U3, U4, U5, U6, U11};

use super::pages::{NUMBERS, Place, Words};
use super::{Integrity, PacketSlot, halves, word};

/// Maximum number of bitmap words of an ACK that is stored so.
const MAX_WORDS: usize = 4;

/// The place of an intact ACK with a short bitmap: one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct AckPlace(Words<8>);

impl AckPlace {
    /// Returns `true` if the pool stores this packet, whose header is `ack`, as a short ACK.
    #[inline]
    pub(super) fn fits(packet: &PacketSlot, ack: &AckHeader) -> bool {
        let is_intact = packet.integrity == Integrity::Sound && packet.payload_len == 0;
        is_intact && ack.bitmap.words().len() <= MAX_WORDS
    }

    /// Stores a packet that fits.
    #[inline]
    pub(super) fn set(&self, packet: &PacketSlot, ack: &AckHeader) {
        let words = ack.bitmap.words();
        let mut bitmap = [0; MAX_WORDS];
        bitmap.iter_mut().zip(words).for_each(|(stored, &word)| *stored = word);
        let ends = u64::from(packet.source.0)
            | u64::from(packet.source_port) << 32
            | u64::from(ack.version.get()) << 48
            | u64::from(ack.cc_type.get()) << 52
            | u64::from(ack.hop_count.get()) << 56
            | u64::from(ack.path_id.get()) << 60
            | u64::from(ack.special) << 63;
        let counts = u64::from(ack.num_ack.get())
            | u64::from(ack.num_ece.get()) << 16
            | u64::from(ack.block.get()) << 32
            | u64::from(ack.reserved.get()) << 40
            | u64::from(ack.ack_type.number().get()) << 48
            | (words.len() as u64) << 56;
        self.0.store([
            ends,
            counts,
            word(ack.psn, ack.psn_base),
            word(ack.destination_cid, ack.timestamp),
            word(ack.timestamp_echo, ack.timestamp_nic_rx),
            word(bitmap[0], bitmap[1]),
            word(bitmap[2], bitmap[3]),
            0,
        ]);
    }

    /// Returns the packet.
    #[inline]
    pub(super) fn packet(&self) -> PacketSlot {
        let [ends, counts, psns, destination, echoes, first, second, _] = self.0.load();
        let (source, ends) = halves(ends);
        let (num, kinds) = halves(counts);
        let (psn, psn_base) = halves(psns);
        let (destination_cid, timestamp) = halves(destination);
        let (timestamp_echo, timestamp_nic_rx) = halves(echoes);
        let (first, second) = (halves(first), halves(second));
        let bitmap = [first.0, first.1, second.0, second.1];
        let header = AckHeader {
            version: U4::truncate(ends >> 16),
            cc_type: U4::truncate(ends >> 20),
            hop_count: U4::truncate(ends >> 24),
            path_id: U3::truncate(ends >> 28),
            special: ends >> 31 != 0,
            num_ack: U11::truncate(num),
            num_ece: U11::truncate(num >> 16),
            block: U5::truncate(kinds),
            reserved: U6::truncate(kinds >> 8),
            ack_type: AckType::from_number(U3::truncate(kinds >> 16)),
            bitmap: Bitmap::from_words(&bitmap[..(kinds >> 24) as usize]),
            psn,
            psn_base,
            destination_cid,
            timestamp,
            timestamp_echo,
            timestamp_nic_rx,
        };
        PacketSlot {
            source: NodeId(source),
            source_port: (ends & 0xffff) as u16,
            payload_len: 0,
            integrity: Integrity::Sound,
            packet: weft_wire::Packet::Ack(header),
        }
    }
}

impl Place for AckPlace {
    #[inline]
    fn clear(&self) {}

    #[inline]
    fn numbers(&self) -> [u32; NUMBERS] {
        let [a, b, c, d] = std::array::from_fn(|index| halves(self.0.get(index)));
        [a.0, a.1, b.0, b.1, c.0, c.1, d.0]
    }

    #[inline]
    fn set_numbers(&self, numbers: [u32; NUMBERS]) {
        let [a, b, c, d, e, f, g] = numbers;
        let words = [word(a, b), word(c, d), word(e, f), word(g, 0)];
        words.into_iter().enumerate().for_each(|(index, word)| self.0.set(index, word));
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
            assert_eq!(AckPlace::fits(&packet, &header), words <= MAX_WORDS);
            if words > MAX_WORDS {
                continue;
            }
            let place = AckPlace::default();
            place.set(&packet, &header);
            let got = place.packet();
            assert_eq!((got.source, got.source_port), (packet.source, packet.source_port));
            assert_eq!((got.payload_len, got.integrity), (0, Integrity::Sound));
            assert_eq!(got.packet, packet.packet);
        }
    }
}
