//! The two carriers of a device's messages: the transport over the network, and links to processes of this host. Both have
//! the same interface; the connection id selects the carrier.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;
use core::num::NonZeroU16;

use weft_transport::{
    Acknowledgement, Arrival, ConnectError, ConnectionId, ConnectionStats, Direct, DirectConfig,
    Endpoint, Event, LinkId, Message, Payload, Peer, PlacedError, SubmitError, Verdict,
};
use weft_units::{Duration, Instant};
use weft_wire::Packet;

use super::Transmit;

/// Maximum payload of a packet over a link, bytes: close to the maximum of a 16-bit length.
const LINK_MTU: u16 = 127 * 512;

/// Packets of one connection in flight over a link.
const LINK_WINDOW: u16 = 256;

/// The network and the links.
#[derive(Debug)]
pub(super) struct Carriers {
    pub(super) network: Endpoint,
    direct: Direct,
    /// The links of peers that are reached over a link, by address.
    routes: BTreeMap<SocketAddr, LinkId>,
    /// `true` while transmission to the network is paused.
    network_held: bool,
}

impl Carriers {
    pub(super) fn new(network: Endpoint, receive_port: u16, max_connections: u32) -> Self {
        let transport = network.config();
        let direct = Direct::new(DirectConfig {
            mtu: LINK_MTU,
            window: LINK_WINDOW,
            receive_port,
            peer_timeout: transport.peer_timeout,
            message_queue: transport.message_queue,
            max_connections,
        });
        let network = network.with_ids_below(Direct::FIRST_ID);
        Self { network, direct, routes: BTreeMap::new(), network_held: false }
    }

    pub(super) fn sharing_ports(mut self) -> Self {
        self.network = self.network.with_shared_ports(1);
        self
    }

    pub(super) fn with_ended(mut self) -> Self {
        self.network = self.network.with_ended();
        self
    }

    pub(super) fn link_up(&mut self, now: Instant, link: LinkId) {
        self.direct.link_up(now, link);
    }

    /// Routes new connections to a peer over this link.
    pub(super) fn route_over(&mut self, peer: SocketAddr, link: LinkId) {
        self.routes.insert(peer, link);
    }

    pub(super) fn has_packets_for_links(&self) -> bool {
        self.direct.has_ready()
    }

    pub(super) fn has_messages_for_links(&self) -> bool {
        self.direct.has_messages()
    }

    pub(super) fn pause_link(&mut self, link: LinkId) {
        self.direct.pause(link);
    }

    pub(super) fn resume_link(&mut self, link: LinkId) {
        self.direct.resume(link);
    }

    pub(super) fn set_network_paused(&mut self, held: bool) {
        self.network_held = held;
    }

    pub(super) fn link_down(&mut self, link: LinkId) {
        self.routes.retain(|_, over| *over != link);
        self.direct.link_down(link);
    }

    pub(super) fn connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        service: u64,
    ) -> Result<ConnectionId, ConnectError> {
        match self.routes.get(&peer) {
            Some(&link) => self.direct.connect(now, link, peer, service),
            None => self.network.connect(now, peer, service),
        }
    }

    #[inline]
    pub(super) fn submit(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        message: Message,
    ) -> Result<(), SubmitError> {
        if Direct::is_direct(connection) {
            return self.direct.submit(connection, message);
        }
        self.network.submit(now, connection, message)
    }

    #[inline]
    pub(super) fn placed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        psn: u32,
    ) -> Result<(), PlacedError> {
        if Direct::is_direct(connection) {
            return self.direct.placed(connection, psn);
        }
        self.network.placed(now, connection, psn)
    }

    /// Declines a packet, which the peer retransmits as if it had been lost. Links are lossless and ordered, so none of
    /// their packets has to wait: a peer whose packet has to wait violates the protocol, and its connection is closed.
    pub(super) fn decline(&mut self, connection: ConnectionId, psn: u32) {
        if Direct::is_direct(connection) {
            return self.direct.close(connection);
        }
        let _ = self.network.decline(connection, psn);
    }

    pub(super) fn close(&mut self, now: Instant, connection: ConnectionId) {
        if Direct::is_direct(connection) {
            return self.direct.close(connection);
        }
        self.network.close(now, connection);
    }

    /// Informs the network of the source port of all packets of a connection. Links have no ports.
    pub(super) fn set_source_port(&mut self, connection: ConnectionId, port: Option<NonZeroU16>) {
        if !Direct::is_direct(connection) {
            self.network.set_source_port(connection, port);
        }
    }

    /// Sets the time after which the silent peer of a connection is considered gone: what the program asked for, and never less than
    /// the transport's own, in which it tries its paths.
    pub(super) fn set_peer_timeout(&mut self, connection: ConnectionId, asked: Duration) {
        let timeout = asked.max(self.network.config().peer_timeout);
        if Direct::is_direct(connection) {
            return self.direct.set_peer_timeout(connection, timeout);
        }
        self.network.set_peer_timeout(connection, timeout);
    }

    pub(super) fn peer(&self, connection: ConnectionId) -> Option<Peer> {
        if Direct::is_direct(connection) {
            return self.direct.peer(connection);
        }
        self.network.peer(connection)
    }

    /// Returns the link of a connection, and the peer's id for the connection; `None` for a connection over the
    /// network.
    pub(super) fn borrower(&self, connection: ConnectionId) -> Option<(LinkId, ConnectionId)> {
        if Direct::is_direct(connection) { self.direct.route(connection) } else { None }
    }

    /// Returns the statistics of a connection over the network; `None` for one over a link.
    pub(super) fn connection_stats(&self, connection: ConnectionId) -> Option<ConnectionStats<'_>> {
        if Direct::is_direct(connection) { None } else { self.network.connection_stats(connection) }
    }

    /// Handles a packet from `link`, or from the network.
    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Instant,
        link: Option<LinkId>,
        arrival: &Arrival,
        packet: &Packet,
        payload_len: u16,
    ) -> Verdict {
        match link {
            Some(link) => self.direct.handle_packet(now, link, arrival.from, packet, payload_len),
            None => self.network.handle_packet(now, arrival, packet, payload_len),
        }
    }

    /// Handles an acknowledgement that a packet over a link carries.
    #[inline]
    pub(super) fn handle_acknowledged(
        &mut self,
        now: Instant,
        link: LinkId,
        from: SocketAddr,
        acknowledged: Acknowledgement,
    ) {
        let _ = self.direct.handle_acknowledged(now, link, from, acknowledged);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.direct.handle_timeout(now);
        self.network.handle_timeout(now);
    }

    /// Returns `true` if there may be a packet to send.
    #[inline]
    pub(super) fn may_transmit(&self) -> bool {
        self.direct.has_ready() || !self.network_held && self.network.wants_transmit()
    }

    /// Writes the headers and the destination of the next packet to `transmit`; returns its payload.
    #[inline]
    pub(super) fn poll_transmit_into(
        &mut self,
        now: Instant,
        transmit: &mut Transmit,
    ) -> Option<Option<Payload>> {
        if let Some(outgoing) = self.direct.poll_transmit_into(now, &mut transmit.packet) {
            return Some(transmit.set_out(
                Some(outgoing.link),
                outgoing.departure,
                outgoing.acknowledged,
            ));
        }
        if self.network_held {
            return None;
        }
        let departure = self.network.poll_transmit_into(now, &mut transmit.packet)?;
        Some(transmit.set_out(None, departure, None))
    }

    /// Submits a message and writes its packet's headers to `transmit`, if the message can be sent now as one packet over a link;
    /// returns its payload.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        message: Message,
        transmit: &mut Transmit,
    ) -> Option<Payload> {
        if !Direct::is_direct(connection) {
            return None;
        }
        let outgoing = self.direct.send_at_once(now, connection, message, &mut transmit.packet)?;
        transmit.set_out(Some(outgoing.link), outgoing.departure, outgoing.acknowledged)
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.network.poll_timeout().into_iter().chain(self.direct.poll_timeout()).min()
    }

    #[inline]
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.direct.poll_event().or_else(|| self.network.poll_event())
    }
}
