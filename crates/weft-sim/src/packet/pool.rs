//! The pool of all packets in flight: packet slots in their stored form.

use std::sync::{Mutex, MutexGuard};

use weft_topo::NodeId;
use weft_units::{prefetch, prefetch_all};
use weft_wire::{AckHeader, DataHeader, MessageHeader, Packet};

use super::common::{COMBINATIONS, CommonFields};
use super::pages::{NUMBERS, Pages, Place, Words};
use super::short_ack::AckPlace;
use super::{Class, Integrity, PacketRef, PacketSlot, halves, word};

/// The place of a data packet, half a cache line, with the fields in which packets differ: the host that sent it (24
/// bits) and the number of its common fields (8), which are stored once ([`CommonFields`]); source port and length; sequence
/// number and connection; timestamp; the message's id, offset and length. Of a packet that is stored apart it has the kind
/// in place of that number, and its place in place of the sequence number.
#[derive(Debug, Default)]
#[repr(align(32))]
struct DataPlace(Words<4>);

/// Number of bits beside the source's that hold the number of the common fields.
const COMMON_BITS: u32 = 8;
/// The values of those bits in the place of a packet that is stored apart, as a short ACK or as it is: no numbers of common
/// fields.
const SHORT_ACK: u32 = COMBINATIONS;
const APART: u32 = SHORT_ACK + 1;

impl DataPlace {
    /// Returns the number of the common fields, [`SHORT_ACK`] or [`APART`].
    #[inline(always)]
    fn common(&self) -> u32 {
        halves(self.0.get(0)).0 % (1 << COMMON_BITS)
    }

    /// Returns the place of a packet that is stored apart.
    #[inline(always)]
    fn apart(&self) -> u32 {
        halves(self.0.get(1)).0
    }

    /// Stores the place of a packet that is stored apart.
    #[inline]
    fn set_apart(&self, kind: u32, place: u32) {
        self.0.set(0, u64::from(kind));
        self.0.set(1, u64::from(place));
    }
}

impl Place for DataPlace {
    #[inline]
    fn clear(&self) {
        self.0.set(0, 0);
    }

    #[inline]
    fn numbers(&self) -> [u32; NUMBERS] {
        let [a, b, c, d] = self.0.load().map(halves);
        [a.1, b.0, b.1, c.0, c.1, d.0, d.1]
    }

    #[inline]
    fn set_numbers(&self, numbers: [u32; NUMBERS]) {
        let [a, b, c, d, e, f, g] = numbers;
        self.0.store([word(0, a), word(b, c), word(d, e), word(f, g)]);
    }
}

/// The place of a packet that is stored as it is.
#[derive(Debug, Default)]
struct ApartPlace {
    packet: Mutex<PacketSlot>,
    numbers: Words<4>,
}

impl ApartPlace {
    /// Locks the packet. No thread waits for it.
    fn packet(&self) -> MutexGuard<'_, PacketSlot> {
        self.packet.lock().expect("nothing panics while it is locked")
    }
}

impl Place for ApartPlace {
    fn clear(&self) {}

    fn numbers(&self) -> [u32; NUMBERS] {
        let [a, b, c, d] = self.numbers.load().map(halves);
        [a.0, a.1, b.0, b.1, c.0, c.1, d.0]
    }

    fn set_numbers(&self, numbers: [u32; NUMBERS]) {
        let [a, b, c, d, e, f, g] = numbers;
        self.numbers.store([word(a, b), word(c, d), word(e, f), word(g, 0)]);
    }
}

/// The pool of all packets in flight, as one part of the world uses it. A packet stays in its place while parts pass it on;
/// the part that its event is in may read, change and free it.
#[derive(Debug, Default)]
pub struct PacketPool {
    slots: Pages<DataPlace>,
    short_acks: Pages<AckPlace>,
    /// Other packets than data packets and ACKs, damaged ones, and those whose common fields are not in the table.
    apart: Pages<ApartPlace>,
    common: CommonFields,
}

impl PacketPool {
    /// Returns the pool as another part uses it.
    pub fn part(&self) -> Self {
        Self {
            slots: self.slots.part(),
            short_acks: self.short_acks.part(),
            apart: self.apart.part(),
            common: self.common.part(),
        }
    }

    /// Learns what other parts have added to the pool. It precedes the use of packets from other parts.
    pub fn follow(&mut self) {
        self.slots.follow();
        self.short_acks.follow();
        self.apart.follow();
        self.common.follow();
    }

    /// Takes over the packets and the free places of a part.
    pub fn take(&mut self, part: &mut Self) {
        self.slots.take(&mut part.slots);
        self.short_acks.take(&mut part.short_acks);
        self.apart.take(&mut part.apart);
        self.common.follow();
    }

    /// Returns a free place.
    #[inline]
    pub fn reserve(&mut self) -> PacketRef {
        PacketRef(self.slots.reserve())
    }

    /// Stores a packet and returns its id.
    pub fn insert(&mut self, slot: &PacketSlot) -> PacketRef {
        let id = self.reserve();
        self.set(id, slot);
        id
    }

    /// Stores a packet in a place that was reserved, or has a packet.
    #[inline]
    pub fn set(&mut self, id: PacketRef, packet: &PacketSlot) {
        let (header, message) = match &packet.packet {
            Packet::Data(header, message) => (header, message),
            Packet::Ack(ack) if AckPlace::fits(packet, ack) => {
                return self.set_short_ack(id, packet, ack);
            }
            _ => return self.set_apart(id, packet),
        };
        let is_usual =
            packet.integrity == Integrity::Sound && packet.source.0 >> (32 - COMMON_BITS) == 0;
        let common = self.common.number(header, message.as_ref()).filter(|_| is_usual);
        let Some(common) = common else { return self.set_apart(id, packet) };
        self.free_apart(id);
        let message = message.unwrap_or_default();
        let source = packet.source.0 << COMMON_BITS | u32::from(common);
        let lengths = u32::from(packet.source_port) | u32::from(packet.payload_len) << 16;
        self.slots.get(id.0).0.store([
            word(source, lengths),
            word(header.psn, header.destination_cid),
            word(header.timestamp, message.id),
            word(message.offset, message.length),
        ]);
    }

    #[inline]
    fn set_short_ack(&mut self, id: PacketRef, packet: &PacketSlot, ack: &AckHeader) {
        self.free_apart(id);
        let place = self.short_acks.reserve();
        self.short_acks.get(place).set(packet, ack);
        self.slots.get(id.0).set_apart(SHORT_ACK, place);
    }

    /// Stores a packet apart, as it is.
    #[cold]
    fn set_apart(&mut self, id: PacketRef, packet: &PacketSlot) {
        self.free_apart(id);
        let place = self.apart.reserve();
        *self.apart.get(place).packet() = *packet;
        self.slots.get(id.0).set_apart(APART, place);
    }

    /// Frees the place of a packet that is stored apart.
    #[inline(always)] // A call would take longer than the test, which fails for most packets.
    fn free_apart(&mut self, id: PacketRef) {
        let place = self.slots.get(id.0);
        match place.common() {
            SHORT_ACK => self.short_acks.free(place.apart()),
            APART => self.apart.free(place.apart()),
            _ => {}
        }
    }

    /// Returns a packet.
    #[inline(always)] // Prefetching needs few of the fields, and the rest is then not read.
    pub fn get(&self, id: PacketRef) -> PacketSlot {
        let DataPlace(words) = self.slots.get(id.0);
        let (source_and_common, lengths) = halves(words.get(0));
        let common = source_and_common % (1 << COMMON_BITS);
        let (psn, destination_cid) = halves(words.get(1));
        match common {
            SHORT_ACK => return self.short_acks.get(psn).packet(),
            APART => return *self.apart.get(psn).packet(),
            _ => {}
        }
        let (timestamp, message_id) = halves(words.get(2));
        let (offset, length) = halves(words.get(3));
        let (header, message) = self.common.headers(common);
        let header = DataHeader { psn, destination_cid, timestamp, ..header };
        let message =
            message.map(|message| MessageHeader { id: message_id, offset, length, ..message });
        PacketSlot {
            source: NodeId(source_and_common >> COMMON_BITS),
            source_port: (lengths & 0xffff) as u16,
            payload_len: (lengths >> 16) as u16,
            integrity: Integrity::Sound,
            packet: Packet::Data(header, message),
        }
    }

    /// Prefetches a packet, or the place of one that is stored apart.
    #[inline]
    pub fn prefetch(&self, id: PacketRef) {
        prefetch(self.slots.get(id.0));
    }

    /// Prefetches a packet of this class that is stored apart, once [`Self::prefetch`] has fetched its place.
    #[inline]
    pub fn prefetch_headers(&self, id: PacketRef, class: Class) {
        if class == Class::Control {
            let place = self.slots.get(id.0);
            match place.common() {
                SHORT_ACK => prefetch(self.short_acks.get(place.apart())),
                APART => prefetch_all(&self.apart.get(place.apart()).packet),
                _ => {}
            }
        }
    }

    /// Frees `id`: the packet was delivered or dropped, or was never filled in.
    #[inline]
    pub fn remove(&mut self, id: PacketRef) {
        self.free_apart(id);
        self.slots.free(id.0);
    }

    /// Returns the number of packets in flight, if no other part uses the pool.
    pub fn live(&self) -> u64 {
        self.slots.used()
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::AckHeader;

    use super::*;

    #[test]
    fn a_data_packet_takes_half_a_cache_line_and_a_short_ack_one_more() {
        assert_eq!((size_of::<DataPlace>(), align_of::<DataPlace>()), (32, 32));
        assert_eq!((size_of::<AckPlace>(), align_of::<AckPlace>()), (64, 64));
    }

    /// Stores packets of every kind, replaces some, and takes all out.
    fn store_and_take(integrity: Integrity, payload_len: u16) {
        let mut pool = PacketPool::default();
        let message = MessageHeader { id: 7, ..MessageHeader::default() };
        let ack = |psn| Packet::Ack(AckHeader { psn, ..AckHeader::default() });
        let data = |psn| DataHeader { psn, ..DataHeader::default() };
        let packets = [
            Packet::data(data(1), Some(message)),
            ack(2),
            Packet::data(data(3), None),
            ack(4),
            ack(5),
        ];
        let slot = |packet, source| PacketSlot {
            source: NodeId(source),
            source_port: 50_000,
            payload_len,
            integrity,
            packet,
        };
        let ids: Vec<_> =
            (0..).zip(packets).map(|(source, packet)| pool.insert(&slot(packet, source))).collect();
        // An ACK becomes another, and a data packet an ACK, as damage may do.
        pool.set(ids[3], &slot(ack(6), 3));
        pool.set(ids[0], &slot(ack(8), 0));
        pool.set(ids[1], &slot(packets[0], 1));
        let expected = [ack(8), packets[0], packets[2], ack(6), packets[4]];
        for ((source, id), packet) in (0..).zip(&ids).zip(expected) {
            let got = pool.get(*id);
            assert_eq!((got.source, got.packet), (NodeId(source), packet));
            assert_eq!((got.source_port, got.payload_len), (50_000, payload_len));
            assert_eq!(got.integrity, integrity);
        }
        let stored_apart = || pool.apart.used() + pool.short_acks.used();
        let expected = if integrity == Integrity::Sound { 3 } else { 5 };
        assert_eq!((pool.live(), stored_apart()), (5, expected));
        ids.into_iter().for_each(|id| pool.remove(id));
        let unused = pool.reserve();
        pool.remove(unused);
        assert_eq!((pool.live(), pool.apart.used(), pool.short_acks.used()), (0, 0, 0));
    }

    #[test]
    fn packets_of_every_kind_come_back_and_leave_no_place_behind() {
        store_and_take(Integrity::BadChecksum, 9);
        store_and_take(Integrity::Sound, 9);
        store_and_take(Integrity::Sound, 0);
    }

    #[test]
    fn a_packet_whose_common_fields_have_no_number_comes_back_too() {
        let mut pool = PacketPool::default();
        let plain = (DataHeader::default(), MessageHeader::default());
        let special = (DataHeader { special: true, ..plain.0 }, plain.1);
        let ids = [plain, special].map(|(header, message)| {
            let packet = Packet::data(header, Some(message));
            pool.insert(&PacketSlot { packet, ..PacketSlot::default() })
        });
        for (id, (header, message)) in ids.into_iter().zip([plain, special]) {
            assert_eq!(pool.get(id).packet, Packet::data(header, Some(message)));
        }
        assert_eq!(pool.apart.used(), 1);
    }
}
