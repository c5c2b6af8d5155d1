//! The pool of all packets in flight: packet slots in their stored form.

use weft_topo::NodeId;
use weft_units::{prefetch, prefetch_all};
use weft_wire::{DataHeader, MessageHeader, Packet};

use super::common::{COMBINATIONS, CommonFields};
use super::pages::{NUMBERS, Pages, Place};
use super::short_ack::ShortAck;
use super::{Class, Integrity, PacketRef, PacketSlot};

/// A data packet as the pool stores it, in half a cache line: the fields in which packets differ. Those that many packets
/// share are stored once ([`CommonFields`]).
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Slot {
    /// The host that sent it (24 bits), then the number of its common fields, [`SHORT_ACK`] or [`APART`].
    source_and_common: u32,
    source_port: u16,
    payload_len: u16,
    /// The sequence number; of a packet that is stored apart, its place.
    psn: u32,
    destination_cid: u32,
    timestamp: u32,
    message: u32,
    offset: u32,
    length: u32,
}

/// Number of bits of [`Slot::source_and_common`] that hold the common fields.
const COMMON_BITS: u32 = 8;
/// The values of those bits in the slot of a packet that is stored apart, as a short ACK or as it is: no numbers of common
/// fields.
const SHORT_ACK: u32 = COMBINATIONS;
const APART: u32 = SHORT_ACK + 1;

impl Slot {
    #[inline]
    const fn common(&self) -> u32 {
        self.source_and_common % (1 << COMMON_BITS)
    }

    /// Returns the slot of a packet that is stored apart.
    #[inline]
    fn apart(kind: u32, place: u32) -> Self {
        Self { source_and_common: kind, psn: place, ..Self::default() }
    }
}

impl Place for Slot {
    #[inline]
    fn clear(&mut self) {
        self.source_and_common = 0;
    }

    #[inline]
    fn numbers(&self) -> [u32; NUMBERS] {
        let Self { psn, destination_cid, timestamp, message, offset, length, .. } = *self;
        let lengths = u32::from(self.source_port) << 16 | u32::from(self.payload_len);
        [psn, destination_cid, timestamp, message, offset, length, lengths]
    }

    #[inline]
    fn set_numbers(&mut self, numbers: [u32; NUMBERS]) {
        let [psn, destination_cid, timestamp, message, offset, length, lengths] = numbers;
        let [port_high, port_low, len_high, len_low] = lengths.to_be_bytes();
        *self = Self {
            source_and_common: 0,
            source_port: u16::from_be_bytes([port_high, port_low]),
            payload_len: u16::from_be_bytes([len_high, len_low]),
            psn,
            destination_cid,
            timestamp,
            message,
            offset,
            length,
        };
    }
}

/// A packet that is stored as it is.
#[derive(Clone, Copy, Debug, Default)]
struct Apart {
    packet: PacketSlot,
    numbers: [u32; NUMBERS],
}

impl Place for Apart {
    fn clear(&mut self) {}

    fn numbers(&self) -> [u32; NUMBERS] {
        self.numbers
    }

    fn set_numbers(&mut self, numbers: [u32; NUMBERS]) {
        self.numbers = numbers;
    }
}

/// The pool of all packets in flight.
#[derive(Debug)]
pub struct PacketPool {
    slots: Pages<Slot>,
    short_acks: Pages<ShortAck>,
    /// Other packets than data packets and ACKs, damaged ones, and those whose common fields are not in the table.
    apart: Pages<Apart>,
    common: CommonFields,
}

impl Default for PacketPool {
    fn default() -> Self {
        let (slots, short_acks, apart) = (Pages::new(), Pages::new(), Pages::new());
        Self { slots, short_acks, apart, common: CommonFields::default() }
    }
}

impl PacketPool {
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
            Packet::Ack(ack) if ShortAck::fits(packet, ack) => {
                return self.set_short_ack(id, ShortAck::new(packet, ack));
            }
            _ => return self.set_apart(id, packet),
        };
        let is_usual =
            packet.integrity == Integrity::Sound && packet.source.0 >> (32 - COMMON_BITS) == 0;
        let common = self.common.number(header, message.as_ref()).filter(|_| is_usual);
        let Some(common) = common else { return self.set_apart(id, packet) };
        self.free_apart(id);
        let message = message.unwrap_or_default();
        *self.slots.get_mut(id.0) = Slot {
            source_and_common: packet.source.0 << COMMON_BITS | u32::from(common),
            source_port: packet.source_port,
            payload_len: packet.payload_len,
            psn: header.psn,
            destination_cid: header.destination_cid,
            timestamp: header.timestamp,
            message: message.id,
            offset: message.offset,
            length: message.length,
        };
    }

    #[inline]
    fn set_short_ack(&mut self, id: PacketRef, ack: ShortAck) {
        self.free_apart(id);
        let place = self.short_acks.reserve();
        *self.short_acks.get_mut(place) = ack;
        *self.slots.get_mut(id.0) = Slot::apart(SHORT_ACK, place);
    }

    /// Stores a packet apart, as it is.
    #[cold]
    fn set_apart(&mut self, id: PacketRef, packet: &PacketSlot) {
        self.free_apart(id);
        let place = self.apart.reserve();
        self.apart.get_mut(place).packet = *packet;
        *self.slots.get_mut(id.0) = Slot::apart(APART, place);
    }

    /// Frees the place of a packet that is stored apart.
    #[inline(always)] // A call would take longer than the test, which fails for most packets.
    fn free_apart(&mut self, id: PacketRef) {
        let slot = self.slots.get(id.0);
        if slot.common() == SHORT_ACK {
            self.short_acks.free(slot.psn);
        } else if slot.common() == APART {
            self.apart.free(slot.psn);
        }
    }

    /// Returns a packet.
    #[inline(always)] // Prefetching needs few of the fields, and the rest is then not read.
    pub fn get(&self, id: PacketRef) -> PacketSlot {
        let slot = self.slots.get(id.0);
        match slot.common() {
            SHORT_ACK => return self.short_acks.get(slot.psn).packet(),
            APART => return self.apart.get(slot.psn).packet,
            _ => {}
        }
        let (header, message) = self.common.headers(slot.common());
        let header = DataHeader {
            psn: slot.psn,
            destination_cid: slot.destination_cid,
            timestamp: slot.timestamp,
            ..header
        };
        let message = message.map(|message| MessageHeader {
            id: slot.message,
            offset: slot.offset,
            length: slot.length,
            ..message
        });
        PacketSlot {
            source: NodeId(slot.source_and_common >> COMMON_BITS),
            source_port: slot.source_port,
            payload_len: slot.payload_len,
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
            let slot = self.slots.get(id.0);
            match slot.common() {
                SHORT_ACK => prefetch(self.short_acks.get(slot.psn)),
                APART => prefetch_all(&self.apart.get(slot.psn).packet),
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

    /// Returns the number of packets in flight.
    pub fn live(&self) -> u64 {
        self.slots.used
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::AckHeader;

    use super::*;

    #[test]
    fn a_data_packet_takes_half_a_cache_line_and_a_short_ack_one_more() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (32, 32));
        assert_eq!((size_of::<ShortAck>(), align_of::<ShortAck>()), (64, 64));
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
        let stored_apart = || pool.apart.used + pool.short_acks.used;
        let expected = if integrity == Integrity::Sound { 3 } else { 5 };
        assert_eq!((pool.live(), stored_apart()), (5, expected));
        ids.into_iter().for_each(|id| pool.remove(id));
        let unused = pool.reserve();
        pool.remove(unused);
        assert_eq!((pool.live(), pool.apart.used, pool.short_acks.used), (0, 0, 0));
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
        assert_eq!(pool.apart.used, 1);
    }
}
