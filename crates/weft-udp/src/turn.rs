//! One turn of an agent: its endpoint and its application are the [`Node`] of a [driver](crate::Driver).

use std::net::SocketAddr;

use weft_seal::{PacketHandler, Seals};
use weft_transport::{
    Admission, Arrival, ConnectionId, Departure, EndedConnection, Endpoint, Event, Payload,
    Placement, SetupClass, Verdict,
};
use weft_units::Instant;
use weft_wire::{Packet, SetupHeader};

use crate::Node;
use crate::port::Port;
use crate::sockets::Sockets;

/// The owner of an [`Agent`](crate::Agent): it keeps the bytes of messages and receives events.
pub trait Application {
    /// Copies a piece of a submitted message into `out`, which is exactly `payload.len` bytes long. The
    /// message's bytes must stay unchanged until its [`Event::Acked`], or its connection's [`Event::Closed`].
    fn read(&mut self, connection: ConnectionId, payload: Payload, out: &mut [u8]);

    /// Writes a piece of an arriving message to its place. Pieces arrive in any order, each once,
    /// and always inside `placement.length`. A hostile peer may state different lengths in two pieces of one message.
    fn place(&mut self, now: Instant, placement: &Placement, bytes: &[u8]);

    /// Handles an event of the endpoint. It may call commands of `endpoint`.
    fn on_event(&mut self, endpoint: &mut Endpoint, now: Instant, event: Event);

    /// Runs after all arrivals of a turn and before packets are sent. It may submit messages.
    fn on_turn(&mut self, _endpoint: &mut Endpoint, _now: Instant) {}
}

/// An endpoint, its application, and the port that its packets leave through.
pub(crate) struct AgentNode<'a, A> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) application: &'a mut A,
    pub(crate) port: &'a mut Option<Port>,
}

impl<A: Application> Node<Sockets> for AgentNode<'_, A> {
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
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.deliver_events(now);
        self.application.on_turn(self.endpoint, now);
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        room: usize,
        sockets: &mut Sockets,
        seals: &mut Seals,
    ) -> usize {
        let Self { endpoint, application, port } = self;
        let room = port.as_mut().map_or(room, |port| room.min(port.room(now)));
        let mut packet = Packet::default();
        endpoint.poll_burst(now, room, &mut packet, |departure, packet| {
            let wrap = seals.wrap(&departure.to, departure.connection, packet);
            let size = packet.len() + usize::from(departure.payload_len()) + wrap.len();
            let size = u16::try_from(size).expect("an MTU of at most 9000 bytes and a header");
            if let Some(port) = port {
                port.take(size);
            }
            sockets.outbox.push(&departure.to, departure.path.0, size, |out| {
                write(departure, packet, *application, wrap.inside_mut(0, out));
                seals.seal(wrap, 0, out);
            });
        })
    }

    #[inline]
    fn poll_ended(&mut self) -> Option<EndedConnection> {
        self.endpoint.poll_ended()
    }
}

impl<A: Application> AgentNode<'_, A> {
    /// Passes the events of this turn's arrivals and timeouts to the application.
    fn deliver_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.application.on_event(self.endpoint, now, event);
        }
    }
}

impl<'d, A: Application> PacketHandler<'d> for AgentNode<'_, A> {
    #[inline]
    fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: &'d [u8],
    ) -> bool {
        // Applications have no memory that an RDMA header could name.
        if packet.announces_rdma() {
            return false;
        }
        // A payload past 64 KiB cannot come out of a UDP datagram.
        let payload_len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let verdict = self.endpoint.handle_packet(now, arrival, packet, payload_len);
        if let Verdict::Place(placement) = verdict {
            self.application.place(now, &placement, &payload[..usize::from(placement.len)]);
            self.endpoint
                .placed(now, placement.connection, placement.psn)
                .expect("the engine has just asked for this packet to be placed");
        }
        true
    }

    fn classify_setup(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> SetupClass {
        self.endpoint.classify_setup(now, arrival, header)
    }

    fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    ) {
        let _ = self.endpoint.handle_admission(now, arrival, header, admission);
    }

    fn handle_unknown_encrypted(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32) {
        self.endpoint.handle_unknown_encrypted(from, connection, iv);
    }
}

/// Writes a packet's headers and its payload to `out`. Padding is zeros.
#[inline]
fn write(
    departure: &Departure,
    packet: &Packet,
    application: &mut impl Application,
    out: &mut [u8],
) {
    let header_len = packet.emit(out);
    match (departure.payload, departure.connection) {
        (Some(payload), Some(connection)) => {
            application.read(connection, payload, &mut out[header_len..]);
        }
        _ => out[header_len..].fill(0),
    }
}
