//! The memory of a host, as its device accesses it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::*;

/// The memory of a host, by owner.
#[derive(Default)]
pub(crate) struct HostMemory {
    pub(crate) bytes: BTreeMap<Owner, Vec<u8>>,
    /// The payload of the packet that is being handled.
    pub(super) payload: Vec<u8>,
    pub(crate) held: BTreeMap<Held, Vec<u8>>,
    /// The places of all writes, in order.
    pub(crate) writes: Vec<Place>,
    /// `true` to lose the payload of packets.
    pub(crate) loses_payload: bool,
}

impl HostMemory {
    pub(crate) fn read(&self, place: &Place) -> &[u8] {
        let from = usize::try_from(place.address).unwrap();
        &self.bytes[&place.owner][from..from + place.len as usize]
    }

    /// Returns the payload of a packet.
    pub(crate) fn payload_of(&self, transmit: &Transmit, source: Source<'_>) -> Vec<u8> {
        let payload: Vec<u8> = match source {
            Source::Memory(places) => {
                places.iter().flat_map(|place| self.read(place)).copied().collect()
            }
            Source::Inline(bytes) => bytes.to_vec(),
            Source::Anything => alloc::vec![0xee; transmit.payload_len.into()],
        };
        assert_eq!(payload.len(), usize::from(transmit.payload_len));
        payload
    }

    fn put(&mut self, place: Place, bytes: &[u8]) {
        assert_eq!(bytes.len(), place.len as usize);
        let from = usize::try_from(place.address).unwrap();
        let owner = self.bytes.get_mut(&place.owner).unwrap();
        owner[from..from + bytes.len()].copy_from_slice(bytes);
        self.writes.push(place);
    }

    fn word(&self, place: &Place) -> u64 {
        u64::from_ne_bytes(self.read(place).try_into().unwrap())
    }
}

impl Memory for HostMemory {
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost> {
        if self.loses_payload {
            return Err(PayloadLost);
        }
        let from = usize::from(from);
        let bytes = self.payload[from..from + place.len as usize].to_vec();
        self.put(place, &bytes);
        Ok(())
    }

    fn hold(&mut self, packet: Held) -> Result<(), PayloadLost> {
        assert!(self.held.insert(packet, self.payload.clone()).is_none(), "held twice");
        Ok(())
    }

    fn place_held(&mut self, packet: Held, place: Place, from: u16) {
        let from = usize::from(from);
        let bytes = self.held[&packet][from..from + place.len as usize].to_vec();
        self.put(place, &bytes);
    }

    fn release(&mut self, packet: Held) {
        self.held.remove(&packet).expect("it is held");
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        self.put(place, bytes);
    }

    fn route_header(&mut self, from: SocketAddr, _length: u32) -> [u8; 40] {
        [u8::try_from(from.port() % 251).unwrap(); 40]
    }

    fn atomic(&mut self, place: Place, operation: AtomicOperation) -> u64 {
        let before = self.word(&place);
        let after = operation.apply(before);
        if after != before {
            self.put(place, &after.to_ne_bytes());
        }
        before
    }
}
