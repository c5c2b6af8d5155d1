//! The device as the node of the driver: datagrams are opened and become packets of the device; its packets are sealed
//! and go to the network, or to neighbours.

use std::net::{IpAddr, SocketAddr};

use weft_rnic::{Device, ReceivedPacket, Source, Transmit};
use weft_seal::{PacketHandler, Seals};
use weft_transport::{Admission, Arrival, ConnectionId, EndedConnection, LinkId, SetupClass};
use weft_udp::Node;
use weft_units::Instant;
use weft_wire::{Packet, RdmaHeader, SetupHeader};

use crate::engine::links::Links;
use crate::engine::memory::{Fault, HeldPayload, Payload, ProcessMemory};
use crate::engine::same_host::Neighbours;

/// The device, the memory that it uses, and the processes that it reaches without the network.
pub(super) struct DeviceNode<'a> {
    pub(super) device: &'a mut Device,
    pub(super) neighbours: &'a mut Neighbours,
    pub(super) held: &'a mut HeldPayload,
    pub(super) faults: &'a mut Vec<Fault>,
    /// The address of the datagrams that arrive.
    pub(super) local: IpAddr,
    /// Number of packets that left, to neighbours too.
    pub(super) sent: usize,
    /// `true` if packets for the network may be left.
    pub(super) has_unsent: bool,
}

impl Node<Links> for DeviceNode<'_> {
    #[inline]
    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool {
        seals.ingest(self, now, arrival, datagram)
    }

    fn handle_stray(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool {
        seals.ingest_reset(self, now, arrival, datagram)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.device.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        room: usize,
        links: &mut Links,
        seals: &mut Seals,
    ) -> usize {
        let Self { device, neighbours, faults, sent, .. } = self;
        neighbours.with_room_again().for_each(|link| device.resume_link(link));
        let room = room.min(links.room(now));
        device.set_network_paused(room == 0);
        let (mut over_network, mut full) = (0, None);
        // A fault is handled before the device uses more of that memory.
        while over_network < room.max(1)
            && faults.is_empty()
            && device.poll_transmit(now, |packet, source| match packet.link {
                Some(link) => full = push(link, packet, source, links, neighbours),
                None => {
                    over_network += 1;
                    faults.extend(links.push(packet, source, seals).err());
                }
            })
        {
            *sent += 1;
            full.take().into_iter().for_each(|link| device.pause_link(link));
        }
        neighbours.announce();
        self.has_unsent = over_network >= room;
        over_network
    }

    #[inline]
    fn poll_ended(&mut self) -> Option<EndedConnection> {
        self.device.poll_ended()
    }

    /// A fault in memory is handled before more packets. Those that were read count as lost: their senders retransmit
    /// them.
    #[inline]
    fn accepts(&self) -> bool {
        self.faults.is_empty()
    }
}

impl<'d> PacketHandler<'d> for DeviceNode<'_> {
    #[inline]
    fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        rest: &'d [u8],
    ) -> bool {
        let (rdma, payload) = if packet.announces_rdma() {
            let Ok((header, payload)) = RdmaHeader::parse(rest) else { return false };
            (Some(header), payload)
        } else {
            (None, rest)
        };
        // A payload past 64 KiB cannot come out of a UDP datagram.
        let len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let Self { device, held, faults, local, .. } = self;
        let payload = Payload::of(payload);
        let mut memory = ProcessMemory { payload, held, faults, local: *local };
        let rdma = rdma.as_ref();
        let received = ReceivedPacket { packet, rdma, payload_len: len, acknowledged: None };
        device.handle_packet(now, arrival, received, &mut memory);
        true
    }

    fn classify_setup(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> SetupClass {
        self.device.classify_setup(now, arrival, header)
    }

    fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    ) {
        self.device.handle_admission(now, arrival, header, admission);
    }

    fn handle_unknown_encrypted(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32) {
        self.device.handle_unknown_encrypted(from, connection, iv);
    }
}

/// Sends a packet to a neighbour. Returns the link if it is full afterwards.
#[inline]
pub(super) fn push(
    link: LinkId,
    packet: &Transmit,
    source: Source<'_>,
    links: &Links,
    neighbours: &mut Neighbours,
) -> Option<LinkId> {
    let from = links.source_for(packet.context, packet.to.ip());
    (!neighbours.push(link, packet, source, from)).then_some(link)
}
