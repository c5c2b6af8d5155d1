//! Reception: from neighbours through shared memory, from other hosts through sockets.

use weft_rnic::{Device, ReceivedPacket};
use weft_seal::{OpenError, Seals};
use weft_transport::Arrival;
use weft_udp::sockets::Received;
use weft_units::Instant;
use weft_wire::{Packet, RdmaHeader, SealedContent, SetupKind};

use super::Host;
use crate::engine::memory::{Payload, ProcessMemory};
use crate::engine::same_host::BUDGET;

impl Host {
    pub(super) fn take_from_neighbours(&mut self, now: Instant, accepts_peers: bool) -> usize {
        if accepts_peers {
            self.neighbours.service();
        }
        let changes = self.apply_link_changes();
        if self.neighbours.have_records() {
            return changes + self.take_packets(now, BUDGET);
        }
        changes
    }

    /// Handles packets of neighbours, at most `most` of each. Returns their number.
    pub(super) fn take_packets(&mut self, now: Instant, most: usize) -> usize {
        let mut taken = 0;
        let Self { device, neighbours, held, faults, .. } = self;
        neighbours.take_leases(|id, lease| device.borrow(lease, id));
        for index in 0..neighbours.len() {
            taken += neighbours.receive(index, most, |arrived| {
                let record = arrived.record;
                let (payload, local) = (record.payload, record.to);
                let mut memory = ProcessMemory { payload, held, faults, local };
                let came = ReceivedPacket {
                    packet: &record.packet,
                    rdma: record.rdma.as_ref(),
                    payload_len: record.payload_len,
                    acknowledged: record.acknowledged,
                };
                device.handle_link_packet(now, arrived.link, arrived.from, came, &mut memory);
            });
        }
        taken
    }

    /// Handles packets that arrived at the active addresses, or at all addresses. Returns the number of messages.
    pub(super) fn take_from_network(&mut self, quiet_ones: bool) -> usize {
        let mut received = 0;
        self.is_quiet = true;
        for index in 0..self.links.len() {
            if quiet_ones || self.links.is_active(index) {
                received += self.take_arrivals(index);
            }
            self.is_quiet &= !self.links.is_active(index);
        }
        received
    }

    fn take_arrivals(&mut self, index: usize) -> usize {
        let Self { device, links, held, faults, clock, .. } = self;
        // A fault in memory is handled first.
        let Some(link) = links.get_mut(index).filter(|_| faults.is_empty()) else { return 0 };
        let local = link.ip;
        let messages = link.receive();
        if messages == 0 {
            return 0;
        }
        let now = clock.now();
        for message in 0..messages {
            let Some((link, seals)) = links.get_with_seals(index) else { break };
            let received = link.inbox.message(message);
            let (arrival, segment) = (arrival_of(&received, now), received.segment.max(1));
            for datagram in link.inbox.bytes_mut(message).chunks_mut(segment) {
                // They count as lost: their senders retransmit them.
                if !faults.is_empty() {
                    return messages;
                }
                let mut memory = ProcessMemory { payload: Payload::of(&[]), held, faults, local };
                ingest(device, seals, now, &arrival, datagram, &mut memory);
            }
            links.record_arrival(arrival.from.ip(), index);
        }
        messages
    }

    /// Handles packets that returned to the sending ports: notices that a connection no longer exists.
    pub(super) fn take_strays(&mut self, now: Instant) {
        let Self { device, links, .. } = self;
        for index in 0..links.len() {
            let Some((link, seals)) = links.get_with_seals(index) else { break };
            while let Some((from, datagram)) = link.stray() {
                if let Ok((Packet::Setup(header), rest)) = &Packet::parse(datagram)
                    && header.kind == SetupKind::Reset
                {
                    let arrival =
                        Arrival { from, received_at: now, congestion_experienced: false, hops: 0 };
                    let named = device.named(now, &arrival, header);
                    let admission = seals.admit(from, header, rest, named);
                    device.handle_admission(now, &arrival, header, admission);
                }
            }
        }
    }
}

/// Returns the arrival record of a message.
#[inline]
fn arrival_of(received: &Received<'_>, now: Instant) -> Arrival {
    Arrival {
        from: received.from,
        received_at: now,
        congestion_experienced: received.congestion_experienced,
        hops: received.hops,
    }
}

/// Decrypts a datagram and passes it to the device, if it is a packet.
#[inline]
fn ingest<'a>(
    device: &mut Device,
    seals: &mut Seals,
    now: Instant,
    arrival: &Arrival,
    datagram: &'a mut [u8],
    memory: &mut ProcessMemory<'a>,
) {
    let inside = match seals.open(datagram, 0) {
        Ok((inside, SealedContent::Packet)) => &*inside,
        Ok((_, SealedContent::Frame)) => return,
        Err(OpenError::UnknownKey { connection, iv }) => {
            return device.handle_unopened(arrival.from, connection, iv);
        }
        Err(_) => return,
    };
    // By reference: a packet moved right after it was parsed waits for its own stores.
    let Ok((packet, rest)) = &Packet::parse(inside) else { return };
    if let Packet::Setup(header) = packet {
        let named = device.named(now, arrival, header);
        let admission = seals.admit(arrival.from, header, rest, named);
        return device.handle_admission(now, arrival, header, admission);
    }
    let (rdma, payload) = if packet.announces_rdma() {
        let Ok((header, payload)) = RdmaHeader::parse(rest) else { return };
        (Some(header), payload)
    } else {
        (None, *rest)
    };
    // A payload past 64 KiB cannot come out of a UDP datagram.
    let payload_len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    memory.payload = Payload::of(payload);
    let rdma = rdma.as_ref();
    let received = ReceivedPacket { packet, rdma, payload_len, acknowledged: None };
    device.handle_packet(now, arrival, received, memory);
}
