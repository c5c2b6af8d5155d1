//! Packets as they enter and leave a device.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_transport::path::PathId;
use weft_transport::{Acknowledgement, ConnectionId, Departure, LinkId, Payload};
use weft_wire::{Packet, RdmaHeader};

use crate::{Context, Marking, Place};

/// A packet to send: the transport's headers, the RDMA header, and the length of the payload.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// The link over which it is sent; `None` for the network.
    pub link: Option<LinkId>,
    /// The connection; `None` for a reply without a connection.
    pub connection: Option<ConnectionId>,
    /// The context of the sending queue pair; `None` for a reply without a connection, and for final packets of a queue pair
    /// that was destroyed.
    pub context: Option<Context>,
    /// The path; the owner maps it to a UDP source port.
    pub path: PathId,
    /// The labels that the sending queue pair's program chose.
    pub marking: Marking,
    /// The transport's headers.
    pub packet: Packet,
    /// The RDMA header, if the transport's headers announce one.
    pub rdma: Option<RdmaHeader>,
    /// Bytes of payload after the headers.
    pub payload_len: u16,
    /// An acknowledgement that a packet over a link carries.
    pub acknowledged: Option<Acknowledgement>,
}

/// A received packet: the transport's headers, the RDMA header, and the length of the payload.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    /// The transport's headers.
    pub packet: &'a Packet,
    /// The RDMA header, if the transport's headers announce one.
    pub rdma: Option<&'a RdmaHeader>,
    /// Bytes of payload after the headers.
    pub payload_len: u16,
    /// An acknowledgement that a packet over a link carries; ignored for packets from the network.
    pub acknowledged: Option<Acknowledgement>,
}

impl Default for Transmit {
    /// Returns a packet without destination and content, as a placeholder.
    #[inline]
    fn default() -> Self {
        Self {
            to: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            link: None,
            connection: None,
            context: None,
            path: PathId(0),
            marking: Marking::default(),
            packet: Packet::default(),
            rdma: None,
            payload_len: 0,
            acknowledged: None,
        }
    }
}

impl Transmit {
    /// Sets the destination, the acknowledgement and the padding; returns the payload.
    #[inline]
    pub(super) fn set_out(
        &mut self,
        link: Option<LinkId>,
        departure: Departure,
        acknowledged: Option<Acknowledgement>,
    ) -> Option<Payload> {
        let Departure { to, connection, path, padding, payload } = departure;
        (self.to, self.connection, self.path) = (to, connection, path);
        self.payload_len = padding;
        (self.link, self.acknowledged) = (link, acknowledged);
        payload
    }
}

/// The source of a packet's payload.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Ranges of owners' memory, concatenated.
    Memory(&'a [Place]),
    /// Bytes of the device.
    Inline(&'a [u8]),
    /// Arbitrary bytes: the padding of a probe, or a retransmission that the peer has already received and will discard.
    Anything,
}
