//! One turn of the loop between sockets and engine: it passes arrivals to the engine and payload to
//! the application, handles timeouts, and sends. This is the hot path; nothing here allocates per
//! packet.

use weft_seal::{OpenError, Seals};
use weft_transport::{
    Arrival, ConnectionId, Departure, Endpoint, Event, Payload, Placement, Verdict,
};
use weft_units::{Duration, Instant};
use weft_wire::{Packet, SealedContent, SetupKind};

use crate::Agent;
use crate::sockets::Received;

/// Packets taken from the engine before the sockets are read again: the maximum in the outbox while
/// an ACK waits to be read.
const TRANSMIT_BUDGET: usize = 176;

/// Distance, in datagrams, from the one being parsed to the one whose header is prefetched.
const TOUCH_AHEAD: usize = 4;

/// The interval at which sockets that only send are read. An arrival there reports that a
/// connection no longer exists, which would otherwise take a peer timeout to detect.
const STRAYS_EVERY: Duration = Duration::from_millis(1);

/// Maximum strays taken at a time.
const STRAYS: usize = 16;

/// The owner of an [`Agent`]: it keeps the bytes of messages and receives events.
pub trait Application {
    /// Copies a piece of a submitted message into `out`, which is exactly `payload.len` long. The
    /// message's bytes must stay unchanged until its `Sent`, or its connection's `Closed`.
    fn read(&mut self, connection: ConnectionId, payload: Payload, out: &mut [u8]);

    /// Writes a piece of an arriving message to its place. Pieces arrive in any order, each once,
    /// and always inside `placement.length`. Two pieces of one message number may disagree about
    /// its length if the peer is hostile.
    fn place(&mut self, now: Instant, placement: &Placement, bytes: &[u8]);

    /// Handles an event. It may call commands of `endpoint`.
    fn on_event(&mut self, endpoint: &mut Endpoint, now: Instant, event: Event);

    /// Runs after all arrivals of a turn and before packets are sent. It may submit messages.
    fn on_turn(&mut self, _endpoint: &mut Endpoint, _now: Instant) {}
}

/// The counts of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Turn {
    /// Datagrams that arrived.
    pub received: usize,
    /// Datagrams that were sent, or wait for the kernel.
    pub sent: usize,
}

impl Turn {
    /// Returns `true` if a datagram arrived or left.
    pub fn worked(self) -> bool {
        self.received + self.sent > 0
    }
}

impl Agent {
    /// Takes one turn without blocking.
    pub fn turn(&mut self, application: &mut impl Application) -> Turn {
        let mut received = self.take_arrivals(application);
        if !self.delay_line.is_short() {
            received = self.take_delayed(application);
        }
        let now = self.clock.now();
        if self.look_for_strays <= now {
            self.look_for_strays = now + STRAYS_EVERY;
            self.take_strays(now);
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            application.on_event(&mut self.endpoint, now, event);
        }
        application.on_turn(&mut self.endpoint, now);
        self.seals.handle_timeout(now);
        let sent = self.send_departures(application, now);
        self.keep_keys();
        Turn { received, sent }
    }

    fn take_arrivals(&mut self, application: &mut impl Application) -> usize {
        let messages = match self.sockets.inbox.receive() {
            Ok(messages) => messages,
            Err(_) => {
                self.counters.receive_errors += 1;
                0
            }
        };
        if messages == 0 {
            return 0;
        }
        let now = self.clock.now();
        let lead = if self.kernel_timestamps { self.clock.wall_clock_lead() } else { 0 };
        let mut datagrams = 0;
        for index in 0..messages {
            let received = self.sockets.inbox.message(index);
            let (arrival, segment) = (arrival_of(&received, now, lead), received.segment.max(1));
            let bytes = self.sockets.inbox.bytes_mut(index);
            for start in (0..bytes.len()).step_by(segment) {
                datagrams += 1;
                touch(bytes, start + TOUCH_AHEAD * segment);
                let end = bytes.len().min(start + segment);
                let datagram = &mut bytes[start..end];
                if !self.delay_line.is_short() {
                    self.delay_line.put(&arrival, datagram);
                    continue;
                }
                let ends = (&mut self.endpoint, &mut self.seals);
                if !ingest(ends, application, now, &arrival, datagram) {
                    self.counters.malformed += 1;
                }
            }
        }
        self.counters.datagrams_received += datagrams as u64;
        datagrams
    }

    fn take_strays(&mut self, now: Instant) {
        for _ in 0..STRAYS {
            let Some((from, datagram)) = self.sockets.stray() else { return };
            let (congestion_experienced, hops) = (false, 0);
            let arrival = Arrival { from, received_at: now, congestion_experienced, hops };
            match &Packet::parse(datagram) {
                Ok((Packet::Setup(header), rest)) if header.kind == SetupKind::Reset => {
                    self.counters.datagrams_received += 1;
                    let named = self.endpoint.classify_setup(now, &arrival, header);
                    let admission = self.seals.admit(from, header, rest, named);
                    let _ = self.endpoint.handle_admission(now, &arrival, header, admission);
                }
                _ => self.counters.malformed += 1,
            }
        }
    }

    /// Handles the packets that are due on the delay line.
    #[cold]
    fn take_delayed(&mut self, application: &mut impl Application) -> usize {
        let now = self.clock.now();
        let mut datagrams = 0;
        while let Some((arrival, mut datagram)) = self.delay_line.take(now) {
            datagrams += 1;
            let ends = (&mut self.endpoint, &mut self.seals);
            if !ingest(ends, application, now, &arrival, &mut datagram) {
                self.counters.malformed += 1;
            }
            self.delay_line.recycle(datagram);
        }
        datagrams
    }

    fn send_departures(&mut self, application: &mut impl Application, now: Instant) -> usize {
        let outbox = &mut self.sockets.outbox;
        // What the kernel has no room for waits; more packets from the engine would only queue here
        // and age.
        let mut room = TRANSMIT_BUDGET.saturating_sub(outbox.waiting());
        let port = &mut self.port;
        if let Some(port) = port {
            room = room.min(port.room(now));
        }
        let seals = &mut self.seals;
        let mut packet = Packet::default();
        let sent = self.endpoint.poll_burst(now, room, &mut packet, |departure, packet| {
            let wrap = seals.wrap(&departure.to, departure.connection, packet);
            let size = packet.len() + usize::from(departure.payload_len()) + wrap.len();
            let size = u16::try_from(size).expect("an MTU of at most 9000 bytes and a header");
            if let Some(port) = port {
                port.take(size);
            }
            outbox.push(&departure.to, departure.path.0, size, |out| {
                write(departure, packet, application, wrap.inside_mut(0, out));
                seals.seal(wrap, 0, out);
            });
        });
        outbox.flush();
        sent
    }
}

/// Returns the arrival data of a message.
#[inline]
fn arrival_of(received: &Received<'_>, now: Instant, lead: u64) -> Arrival {
    Arrival {
        from: received.from,
        received_at: received.received_at(now, lead),
        congestion_experienced: received.congestion_experienced,
        hops: received.hops,
    }
}

/// Prefetches a byte, if there is one, so that the header at it is cached when it is read: headers
/// lie too far apart for the hardware prefetcher, and each would be a cache miss
/// (`docs/performance/transport.md`).
#[inline]
fn touch(bytes: &[u8], at: usize) {
    if let Some(&first) = bytes.get(at) {
        std::hint::black_box(first);
    }
}

/// Opens a datagram, passes the packet to the engine and its payload to the application. Returns
/// `false` if it is no packet.
#[inline]
fn ingest(
    (endpoint, seals): (&mut Endpoint, &mut Seals),
    application: &mut impl Application,
    now: Instant,
    arrival: &Arrival,
    datagram: &mut [u8],
) -> bool {
    let inside = match seals.open(datagram, 0) {
        Ok((inside, SealedContent::Packet)) => inside,
        Ok((_, SealedContent::Frame)) => return false,
        Err(error) => return drop_unopened(endpoint, arrival, error),
    };
    // By reference: a packet moved right after it was parsed stalls on its own stores.
    let Ok((packet, payload)) = &Packet::parse(inside) else { return false };
    // Applications have no memory that an RDMA header could name.
    if packet.announces_rdma() {
        return false;
    }
    if let Packet::Setup(header) = packet {
        let named = endpoint.classify_setup(now, arrival, header);
        let admission = seals.admit(arrival.from, header, payload, named);
        let _ = endpoint.handle_admission(now, arrival, header, admission);
        return true;
    }
    // A payload past 64 KiB cannot come out of a UDP datagram.
    let payload_len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let verdict = endpoint.handle_packet(now, arrival, packet, payload_len);
    if let Verdict::Place(placement) = verdict {
        application.place(now, &placement, &payload[..usize::from(placement.len)]);
        endpoint
            .placed(now, placement.connection, placement.psn)
            .expect("the engine has just asked for this packet to be placed");
    }
    true
}

/// Answers the sender of a packet whose keys are not known. Returns `false` if it is no packet.
#[cold]
fn drop_unopened(endpoint: &mut Endpoint, arrival: &Arrival, error: OpenError) -> bool {
    if let OpenError::UnknownKey { connection, iv } = error {
        endpoint.handle_unknown_encrypted(arrival.from, connection, iv);
    }
    !matches!(error, OpenError::Header(_) | OpenError::TooShort { .. })
}

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
