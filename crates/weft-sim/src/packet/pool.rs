//! The pool of all packets in flight: packet slots in their stored form.

use weft_topo::NodeId;
use weft_units::{prefetch, prefetch_all};
use weft_wire::{DataHeader, MessageHeader, Packet};

use super::{Class, Integrity, PacketRef, PacketSlot};

/// A [`PacketSlot`] as the pool stores it: in one cache line. Most packets are data packets, whose headers take half of
/// the memory of an ACK's.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot {
    source: NodeId,
    source_port: u16,
    payload_len: u16,
    integrity: Integrity,
    headers: Headers,
}

/// The headers of a packet in the pool.
#[derive(Clone, Copy, Debug)]
enum Headers {
    /// The headers of a data packet; also a placeholder in a slot without a packet.
    Data(DataHeader, Option<MessageHeader>),
    /// The position of another packet's headers.
    Apart(u32),
}

impl Default for Headers {
    fn default() -> Self {
        Self::Data(DataHeader::default(), None)
    }
}

/// Number of places in a page.
const PAGE: usize = 1 << 10;

/// Places for values, in pages.
///
/// It grows by a page and nothing moves. One array that doubles would be copied each time, and the system would clear
/// twice as much memory.
#[derive(Debug)]
struct Pages<T> {
    pages: Vec<Box<[T; PAGE]>>,
    free: Vec<u32>,
}

impl<T: Copy> Pages<T> {
    /// Returns no places.
    const fn new() -> Self {
        Self { pages: Vec::new(), free: Vec::new() }
    }

    /// Returns a free place, with its previous contents; a new one contains `initial`.
    #[inline]
    fn reserve(&mut self, initial: T) -> u32 {
        // The place freed last is the one most likely to be in the cache.
        self.free.pop().unwrap_or_else(|| self.add_page(initial))
    }

    /// Adds a page and returns its first place.
    #[cold]
    fn add_page(&mut self, initial: T) -> u32 {
        let first = self.pages.len() * PAGE;
        self.pages.push(Box::new([initial; PAGE]));
        let place = |place| u32::try_from(place).expect("fewer than 2^32 packets in flight");
        self.free.extend((first + 1..first + PAGE).rev().map(place));
        place(first)
    }

    #[inline]
    fn get(&self, place: u32) -> &T {
        &self.pages[place as usize / PAGE][place as usize % PAGE]
    }

    #[inline]
    fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.pages[place as usize / PAGE][place as usize % PAGE]
    }

    /// Returns the number of places that are not free.
    fn used(&self) -> u64 {
        (self.pages.len() * PAGE - self.free.len()) as u64
    }
}

/// The pool of all packets in flight.
#[derive(Debug)]
pub struct PacketPool {
    slots: Pages<Slot>,
    /// The headers of packets that are not data packets.
    headers: Pages<Packet>,
}

impl Default for PacketPool {
    fn default() -> Self {
        Self { slots: Pages::new(), headers: Pages::new() }
    }
}

impl PacketPool {
    /// Returns a free place.
    #[inline]
    pub fn reserve(&mut self) -> PacketRef {
        PacketRef(self.slots.reserve(Slot {
            source: NodeId(0),
            source_port: 0,
            payload_len: 0,
            integrity: Integrity::Sound,
            headers: Headers::default(),
        }))
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
        let headers = match packet.packet {
            Packet::Data(header, message) => {
                self.free_headers(id);
                Headers::Data(header, message)
            }
            other => self.set_apart(id, other),
        };
        let &PacketSlot { source, source_port, payload_len, integrity, .. } = packet;
        *self.slots.get_mut(id.0) = Slot { source, source_port, payload_len, integrity, headers };
    }

    /// Stores the headers of another packet than a data packet.
    #[inline]
    fn set_apart(&mut self, id: PacketRef, packet: Packet) -> Headers {
        let place = match self.slots.get(id.0).headers {
            Headers::Apart(place) => place,
            Headers::Data(..) => self.headers.reserve(packet),
        };
        *self.headers.get_mut(place) = packet;
        Headers::Apart(place)
    }

    /// Frees the place of headers that are stored apart.
    #[inline]
    fn free_headers(&mut self, id: PacketRef) {
        let slot = self.slots.get_mut(id.0);
        if let Headers::Apart(place) = slot.headers {
            slot.headers = Headers::default();
            self.headers.free.push(place);
        }
    }

    /// Returns a packet.
    #[inline]
    pub fn get(&self, id: PacketRef) -> PacketSlot {
        let &Slot { source, source_port, payload_len, integrity, headers } = self.slots.get(id.0);
        let packet = match headers {
            Headers::Data(header, message) => Packet::Data(header, message),
            Headers::Apart(place) => *self.headers.get(place),
        };
        PacketSlot { source, source_port, payload_len, integrity, packet }
    }

    /// Prefetches a packet, or the position of its headers.
    #[inline]
    pub fn prefetch(&self, id: PacketRef) {
        prefetch(self.slots.get(id.0));
    }

    /// Prefetches the headers of a packet of this class, once [`Self::prefetch`] has fetched their position.
    #[inline]
    pub fn prefetch_headers(&self, id: PacketRef, class: Class) {
        if class == Class::Control
            && let Headers::Apart(place) = self.slots.get(id.0).headers
        {
            prefetch_all(self.headers.get(place));
        }
    }

    /// Frees `id`: the packet was delivered or dropped, or was never filled in.
    #[inline]
    pub fn remove(&mut self, id: PacketRef) {
        self.free_headers(id);
        self.slots.free.push(id.0);
    }

    /// Returns the number of packets in flight.
    pub fn live(&self) -> u64 {
        self.slots.used()
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::AckHeader;

    use super::*;

    #[test]
    fn a_data_packet_takes_one_cache_line() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (64, 64));
    }

    #[test]
    fn packets_of_every_kind_come_back_and_leave_no_place_behind() {
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
            payload_len: 9,
            integrity: Integrity::BadChecksum,
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
            assert_eq!((got.source_port, got.payload_len), (50_000, 9));
            assert_eq!(got.integrity, Integrity::BadChecksum);
        }
        assert_eq!((pool.live(), pool.headers.used()), (5, 3));
        ids.into_iter().for_each(|id| pool.remove(id));
        let unused = pool.reserve();
        pool.remove(unused);
        assert_eq!((pool.live(), pool.headers.used()), (0, 0));
    }
}
