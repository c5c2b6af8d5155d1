//! One host's end of every connection: dispatches packets to connections, sets connections up and tears them down, and
//! schedules those that have something to send in round-robin order.

use core::borrow::Borrow;
use core::net::SocketAddr;
use core::num::NonZeroU16;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use weft_units::{Duration, Instant, Seed, SmallMap, prefetch};
use weft_wire::{AckHeader, DataHeader, Packet};

pub use admission::{Admission, EndedConnection, SetupClass, SetupFault};
pub use arrival::{Arrival, TrimmedAt};
pub use connection_id::ConnectionId;
use ids::Connections;
pub use ids::ThreadBits;
pub use payload::{Message, Payload};
use schedule::Schedule;
pub use secret::Secret;
use token::Tokens;
pub use transmit::{Departure, Transmit};

use crate::congestion::HopTelemetry;
use crate::connection::{Connection, ConnectionStats, Identity, PeerKey, PrefetchStage, Shared};
use crate::path::PathNews;
use crate::{
    ConfigError, DropReason, Event, PlacedError, Stats, SubmitError, TransportConfig, Verdict,
};

mod admission;
mod arrival;
mod begin;
mod connection_id;
mod ending;
mod handshake;
mod ids;
#[cfg(test)]
mod inspect;
mod payload;
mod schedule;
mod secret;
mod token;
mod transmit;

/// The configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig<T = TransportConfig> {
    /// The configuration of its connections: a [`TransportConfig`], or an [`Arc`] of one, which an owner of many
    /// endpoints lets all of them share.
    pub transport: T,
    /// The UDP port on which this endpoint receives; peers send there.
    pub receive_port: u16,
    /// This endpoint's thread number, sent to peers during set-up (BIFROST, section 5.2).
    pub thread_id: u8,
    /// `true` if peers may connect.
    pub accept: bool,
    /// Maximum number of connections, 1 to 2^24. A lower limit makes ids harder to guess
    /// (`docs/design/connections.md`).
    pub max_connections: u32,
}

/// The parameters a peer announced when a connection to it was set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's address and the port on which it receives this connection's packets.
    pub address: SocketAddr,
    /// The peer's thread for this connection ([`EndpointConfig::thread_id`]): an owner with several threads assigns
    /// connections that must stay together to one.
    pub thread_id: u8,
    /// Number of paths the peer sprays its packets over.
    pub paths: u16,
}

/// One host's end of every connection.
#[derive(Debug)]
pub struct Endpoint {
    shared: Shared,
    connections: Connections,
    by_peer: SmallMap<PeerKey, u32>,
    /// Connections that may have something to send, in round-robin order.
    ready: VecDeque<u32>,
    /// Number of packets the connection at the front of `ready` has sent in its turn.
    sent_in_turn: usize,
    /// The times at which connections must be served, each no later than its earliest deadline.
    schedule: Schedule,
    /// Queued answers that belong to no connection.
    answers: VecDeque<Transmit>,
    tokens: Tokens,
    accept: bool,
    seed: Seed,
    secret: Secret,
    /// Number of connections created.
    connections_created: u64,
    /// The first sequence number of new connections; `None` draws one.
    first_psn: Option<u32>,
    /// Connections that have ended; `None` unless the owner polls them ([`Self::with_ended`]).
    ended: Option<VecDeque<EndedConnection>>,
}

/// Upper bound of [`EndpointConfig::max_connections`].
const MAX_CONNECTIONS: u32 = 1 << 24;

impl Endpoint {
    /// Creates an endpoint with no connections. `seed` determines the paths of its packets, `secret` its connection
    /// ids, first sequence numbers and address tokens: on a real network both come from the operating system.
    ///
    /// # Errors
    /// [`ConfigError`] for the first field of the configuration that is out of its range.
    pub fn new<T: Into<Arc<TransportConfig>>>(
        config: EndpointConfig<T>,
        seed: Seed,
        secret: Secret,
    ) -> Result<Self, ConfigError> {
        let transport = config.transport.into();
        transport.validate()?;
        let limit = config.max_connections;
        if !(1..=MAX_CONNECTIONS).contains(&limit) {
            let expected = "1 to 16777216";
            return Err(ConfigError { field: "max_connections", got: limit.into(), expected });
        }
        let identity = Identity { receive_port: config.receive_port, thread_id: config.thread_id };
        Ok(Self {
            shared: Shared::new(transport, identity, seed),
            connections: Connections::new(limit, secret),
            by_peer: SmallMap::new(),
            ready: VecDeque::new(),
            sent_in_turn: 0,
            schedule: Schedule::new(),
            answers: VecDeque::new(),
            tokens: Tokens::new(&secret),
            accept: config.accept,
            seed,
            secret,
            connections_created: 0,
            first_psn: None,
            ended: None,
        })
    }

    /// Numbers the packets of new connections from `psn` instead of from a random number. For tests of sequence number
    /// wrap, which random numbers rarely reach: predictable numbers make packets easier to forge.
    pub fn set_first_psn(&mut self, psn: u32) {
        self.first_psn = Some(psn);
    }

    /// Reserves the connection ids from `first` on for others, such as a [`Direct`](crate::Direct) beside it. `first`
    /// is at least 2^31.
    #[must_use]
    pub fn with_ids_below(mut self, first: u32) -> Self {
        debug_assert!(first >= 1 << 31, "each slot must have ids left");
        self.connections.set_last_id(first - 1);
        self
    }

    /// Lets connections to one address share their findings about its paths: dead, lossy and slow ones. For owners that
    /// send path `p` of every connection from one source port, or from one for each value of [`Peer::thread_id`] modulo
    /// `groups`, which counts as at least one.
    #[must_use]
    pub fn with_shared_ports(mut self, groups: u8) -> Self {
        self.shared.peer_paths.share(groups.max(1));
        self
    }

    /// Keeps findings about paths for [`poll_path_news`](Self::poll_path_news): for processes with several endpoints
    /// that send from the same source ports.
    #[must_use]
    pub fn with_path_news(mut self) -> Self {
        self.shared.peer_paths.keep_news();
        self
    }

    /// Puts this endpoint's [`thread_id`](EndpointConfig::thread_id) into the high bits of all connection ids, for
    /// hosts where several threads receive on one port.
    ///
    /// # Errors
    /// [`ConfigError`] if the thread does not fit the bits, or too few other bits remain: `max_connections` times the
    /// number of threads, each rounded up to a power of two, is at most 2^24.
    pub fn with_thread_in_ids(mut self, bits: ThreadBits) -> Result<Self, ConfigError> {
        let thread = self.shared.identity.thread_id;
        if self.connections.set_thread(thread, bits) {
            return Ok(self);
        }
        let expected =
            "the number of one of the threads, and at most 2^24 connections over all threads";
        Err(ConfigError { field: "thread_id", got: thread.into(), expected })
    }

    // Commands from the owner.

    /// Queues a message on an established connection.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        message: Message,
    ) -> Result<(), SubmitError> {
        let slot = self.connections.find(connection.0).ok_or(SubmitError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.submit(now, message, &mut self.shared)?;
        self.reschedule(now, slot);
        Ok(())
    }

    /// Reports that the payload of packet `psn` is where [`Verdict::Place`] required it; the packet may be
    /// acknowledged.
    ///
    /// # Errors
    /// See [`PlacedError`].
    #[inline]
    pub fn placed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        psn: u32,
    ) -> Result<(), PlacedError> {
        let slot = self.connections.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.handle_placed(now, psn, &mut self.shared)?;
        self.reschedule(now, slot);
        Ok(())
    }

    /// Reports that there is no room for packet `psn`: it is treated as lost in the network, and the peer retransmits
    /// it (BIFROST, section 4.3: reliability covers the guest's queue).
    ///
    /// # Errors
    /// See [`PlacedError`].
    pub fn decline(&mut self, connection: ConnectionId, psn: u32) -> Result<(), PlacedError> {
        let slot = self.connections.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.handle_declined(psn, &mut self.shared)
    }

    /// Reports that packet `psn` was discarded because its sender exceeds its rate: the packet is acknowledged and
    /// marked as congested, so that the peer does not retransmit it and slows down (BIFROST, section 7.1). Its message
    /// is delivered all the same; the owner knows which parts are missing.
    ///
    /// # Errors
    /// See [`PlacedError`].
    pub fn police(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        psn: u32,
    ) -> Result<(), PlacedError> {
        let slot = self.connections.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.handle_policed(now, psn, &mut self.shared)?;
        self.reschedule(now, slot);
        Ok(())
    }

    // Inputs from the network and the clock.

    /// Processes a received packet. `payload_len` is the number of bytes after its headers.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload_len: u16,
    ) -> Verdict {
        let cid = match packet {
            Packet::Data(header, _) => header.destination_cid,
            Packet::Ack(header) => header.destination_cid,
            Packet::Setup(header) => return self.handle_setup(now, arrival, header, false),
        };
        let slot = match self.find(arrival, cid) {
            Ok(slot) => slot,
            Err(reason) => {
                self.reset(arrival.from, cid, packet);
                return self.shared.refuse(reason);
            }
        };
        let connection = self.connections.get_mut(slot).expect("found just now");
        let verdict = connection.handle_packet(now, arrival, packet, payload_len, &mut self.shared);
        self.reschedule(now, slot);
        verdict
    }

    /// Processes a data packet that a switch cut to its headers: its sender is asked at once to retransmit it. Headers
    /// that fit no connection, or name a packet that arrived, are counted as refused.
    #[inline(never)]
    pub fn handle_trimmed(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &DataHeader,
        at: TrimmedAt,
    ) {
        let taken = self.find(arrival, header.destination_cid).and_then(|slot| {
            let connection = self.connections.get_mut(slot).expect("found just now");
            connection.handle_trimmed(now, arrival, header, at, &self.shared)?;
            self.reschedule(now, slot);
            Ok(())
        });
        if let Err(reason) = taken {
            self.shared.stats.drop_packet(reason);
        }
    }

    /// Processes the telemetry that switches wrote on the packet which an ACK echoes, the first switch first. Call it
    /// before [`Self::handle_packet`] of that ACK. Telemetry that fits no connection is ignored.
    #[cold]
    pub fn handle_telemetry(&mut self, arrival: &Arrival, ack: &AckHeader, hops: &[HopTelemetry]) {
        if let Ok(slot) = self.find(arrival, ack.destination_cid) {
            let connection = self.connections.get_mut(slot).expect("found just now");
            connection.handle_telemetry(ack, hops);
        }
    }

    /// Prefetches the data that [`Self::prefetch`] reads to find connections, and the next deadline.
    #[inline]
    pub fn prefetch_tables(&self) {
        self.connections.prefetch_table();
        self.schedule.prefetch_next();
        if let Some(slot) = self.ready.front() {
            prefetch(slot);
        }
    }

    /// Prefetches the data that [`Self::handle_packet`] needs for these packets, and [`Self::poll_transmit`] for the
    /// next one. Changes nothing: an owner of many endpoints calls it for one that it will serve soon, one
    /// [`PrefetchStage`] at a time with other work between, to hide memory latency.
    #[inline]
    pub fn prefetch(&self, packets: impl Iterator<Item: Borrow<Packet>>, step: PrefetchStage) {
        for packet in packets {
            let packet = packet.borrow();
            let cid = match packet {
                Packet::Data(header, _) => header.destination_cid,
                Packet::Ack(header) => header.destination_cid,
                Packet::Setup(_) => continue,
            };
            // Prefetching a connection twice costs less than a mispredicted branch on whether it changed.
            if let Some(connection) = self.connections.occupant(cid) {
                connection.prefetch(packet, step);
            }
        }
        if let Some(connection) = self.ready.front().and_then(|&slot| self.connections.get(slot)) {
            connection.prefetch_for_transmit(step);
        }
    }

    /// Informs the endpoint that the owner sends all packets of a connection from one source port, whatever their path, or
    /// again from that of each path. The connection then shares its findings about paths with those that send from the same
    /// port. Without effect on a connection that has ended.
    pub fn set_source_port(&mut self, connection: ConnectionId, port: Option<NonZeroU16>) {
        let Self { connections, shared, .. } = self;
        let slot = connections.find(connection.0);
        if let Some(connection) = slot.and_then(|slot| connections.get_mut(slot)) {
            connection.set_source_port(port, shared);
        }
    }

    /// Sets the time without a packet from the peer of a connection, while it owes an answer, after which it is considered gone, in place
    /// of the configuration's [`peer_timeout`](crate::TransportConfig::peer_timeout); `Duration::MAX` never is. It bounds set-up too.
    /// Without effect on a connection that has ended.
    pub fn set_peer_timeout(&mut self, connection: ConnectionId, timeout: Duration) {
        let slot = self.connections.find(connection.0);
        if let Some(connection) = slot.and_then(|slot| self.connections.get_mut(slot)) {
            connection.set_peer_timeout(timeout);
        }
    }

    /// Processes a finding of another endpoint of the process about a path.
    pub fn handle_path_news(&mut self, now: Instant, news: &PathNews) {
        let path_down_after = self.shared.config.path_down_after;
        self.shared.peer_paths.handle_news(now, news, path_down_after);
    }

    /// Runs the timers that are due. Call it at or after [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, slot)) = self.schedule.pop_due(now) {
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            // Skips entries of a connection that was rescheduled, or of the slot's former connection.
            if connection.scheduled != at {
                continue;
            }
            connection.scheduled = Instant::FAR_FUTURE;
            connection.handle_timeout(now, &mut self.shared);
            self.reschedule(now, slot);
        }
    }

    // Outputs.

    /// Returns the time at which [`Self::handle_timeout`] must be called next. No timer may be due then.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// Returns the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Returns the next finding about a path, for [`handle_path_news`](Self::handle_path_news) of the other endpoints
    /// of the process. The owner may drop it: the others then detect the change by themselves.
    #[inline]
    pub fn poll_path_news(&mut self) -> Option<PathNews> {
        self.shared.peer_paths.poll_news()
    }

    // Getters.

    /// Returns the endpoint's counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Returns the configuration of its connections.
    pub fn config(&self) -> &TransportConfig {
        &self.shared.config
    }

    /// Returns the peer of a connection; `None` until it is established.
    pub fn peer(&self, connection: ConnectionId) -> Option<Peer> {
        let slot = self.connections.find(connection.0)?;
        self.connections.get(slot).filter(|connection| connection.is_established()).map(
            |connection| Peer {
                address: connection.peer,
                thread_id: connection.peer_thread,
                paths: connection.peer_paths,
            },
        )
    }

    /// Returns the statistics of a connection; `None` once it has ended.
    pub fn connection_stats(&self, connection: ConnectionId) -> Option<ConnectionStats<'_>> {
        let slot = self.connections.find(connection.0)?;
        self.connections.get(slot).map(Connection::stats)
    }

    /// Returns the number of connections held, in any state.
    pub fn connections(&self) -> u32 {
        self.connections.len()
    }

    // Internal functions.

    fn connection(&mut self, slot: u32) -> &mut Connection {
        self.connections.get_mut(slot).expect("the caller found this slot")
    }

    /// Returns the slot of the connection a packet names, if the packet came from its peer's address.
    #[inline]
    fn find(&self, arrival: &Arrival, cid: u32) -> Result<u32, DropReason> {
        let slot = self.connections.find(cid).ok_or(DropReason::UnknownConnection)?;
        let peer = self.connections.get(slot).expect("found just now").peer;
        if peer.ip() == arrival.from.ip() { Ok(slot) } else { Err(DropReason::UnknownConnection) }
    }

    /// Updates the schedules after any change to a connection: ends it if it is closing, queues it if it may send, and
    /// schedules its timeout.
    #[inline]
    fn reschedule(&mut self, now: Instant, slot: u32) {
        let connection = self.connections.get_mut(slot).expect("the caller found this slot");
        if let Some(reason) = connection.closing {
            return self.retire(now, slot, reason);
        }
        if !connection.queued && connection.wants_transmit(now) {
            connection.queued = true;
            self.ready.push_back(slot);
        }
        self.schedule_timeout(slot);
    }

    /// Schedules the connection's earliest deadline, if that is earlier than its scheduled time.
    #[inline]
    fn schedule_timeout(&mut self, slot: u32) {
        let connection = self.connections.get_mut(slot).expect("the caller found this slot");
        let at = connection.timers.next();
        if at < connection.scheduled {
            connection.scheduled = at;
            self.schedule.push(at, slot, &self.connections);
        }
    }
}
