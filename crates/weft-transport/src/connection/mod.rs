//! One connection: its state, and the dispatch of commands, packets and timers. Each submodule implements one event or
//! function.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{Packet, SetupHeader, SetupKind, SetupParameters, U4};

use crate::path::{PathId, Paths, PeerPaths, PeerPorts};
use crate::pool::Pool;
use crate::timers::{Timer, Timers};
use crate::{
    Arrival, CloseReason, ConnectionId, DropReason, Event, Message, Stats, SubmitError,
    TransportConfig, Verdict,
};

mod ack_received;
mod ack_sent;
mod ack_state;
mod credit;
mod egress;
mod idle;
mod in_flight;
mod loss;
mod message;
mod nack;
mod pacing;
mod peer_check;
mod prefetch;
mod probe;
mod reassembly;
mod reset;
mod rtt;
mod sender;
mod setup;
mod share;
mod suspend;
mod tail;
mod trimmed;

use credit::Credits;
use idle::BUFFER_RELEASE_AFTER;
use in_flight::SentPacket;
pub(crate) use message::SendQueue;
use peer_check::{Announcement, PeerCheck};
pub use prefetch::PrefetchStage;
use probe::ReceivedProbes;
use reassembly::{DataPacket, ReceivedPacket, Receiver};
pub(crate) use reset::Proof;
pub(crate) use rtt::RoundTrip;
use sender::{Counts, Cursor, Sender, SenderStart};
use setup::Setup;
pub(crate) use setup::{CAPABILITIES, Identity, MIN_VERSION, PeerRequest, VERSION, is_usable};

/// The state shared by all connections of an endpoint.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<TransportConfig>,
    pub(crate) identity: Identity,
    pub(crate) send_pool: Pool<SentPacket>,
    pub(crate) recv_pool: Pool<ReceivedPacket>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    /// Number of connections without data so far that this end requested, and that it accepted.
    pub(crate) requested: u32,
    pub(crate) accepted: u32,
    pub(crate) peer_paths: PeerPaths,
    /// The time from which the next grant of credit may be sent.
    pub(crate) next_grant_at: Instant,
    control_path_rng: Rng,
}

impl Shared {
    pub(crate) fn new(config: Arc<TransportConfig>, identity: Identity, seed: Seed) -> Self {
        Self {
            config,
            identity,
            send_pool: Pool::new(),
            recv_pool: Pool::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
            requested: 0,
            accepted: 0,
            peer_paths: PeerPaths::default(),
            next_grant_at: Instant::EPOCH,
            control_path_rng: seed.child("paths of control", 0).rng(),
        }
    }

    /// Returns the counter of the connections without data so far: of those that this end requested, or of those that
    /// it accepted.
    pub(crate) fn awaiting_first_data(&mut self, requested: bool) -> &mut u32 {
        if requested { &mut self.requested } else { &mut self.accepted }
    }

    /// Returns a random path, for a packet that sets up, keeps alive or closes, so that a dead path does not stop all
    /// of its transmissions. It is random because in round-robin order two connections could each keep to one half
    /// of the paths.
    pub(crate) fn any_path(&mut self) -> PathId {
        let path = self.control_path_rng.below(self.config.paths.into());
        PathId(u16::try_from(path).expect("at most 4096 paths"))
    }

    /// Returns the congestion control in use, as headers name it.
    #[inline]
    pub(crate) fn cc_type(&self) -> U4 {
        U4::truncate(self.config.congestion as u32)
    }

    /// Counts a refused packet.
    pub(crate) fn refuse(&mut self, reason: DropReason) -> Verdict {
        self.stats.drop_packet(reason);
        Verdict::Dropped(reason)
    }
}

/// The values that the endpoint draws for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The seed of its path choices.
    pub(crate) seed: Seed,
    /// The sequence number of its first packet.
    pub(crate) first_psn: u32,
}

/// A peer's identification of a connection: its address, its id, and its receive port.
pub(crate) type PeerKey = (IpAddr, u32, u16);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// The peer's address and receive port.
    pub(crate) peer: SocketAddr,
    /// The peer's connection id; zero until it is known.
    pub(crate) remote_cid: u32,
    /// The peer's thread number.
    pub(crate) peer_thread: u8,
    /// Number of paths the peer sprays over.
    pub(crate) peer_paths: u16,
    /// The source port of all packets, if they have one.
    source_port: Option<NonZeroU16>,
    /// `true` if this end requested the connection.
    pub(crate) initiator: bool,
    version: U4,
    /// The largest payload of one packet, as agreed, bytes.
    mtu: u16,
    /// Number of packets beyond the first unacknowledged one, as agreed.
    send_window: u16,
    /// The binary logarithm of the number of connections about to send to the peer, as it announced.
    sharers: u8,
    /// `true` until data arrives: the connection is counted in the number announced to peers.
    awaits_first_data: bool,
    setup: Setup,
    seed: Seed,
    cursor: Cursor,
    /// The sending half; present while there is something to send, and for a while after.
    sender: Option<Box<Sender>>,
    receiver: Receiver,
    received_probes: ReceivedProbes,
    keepalive_due: bool,
    /// The credits of both directions, if any were requested.
    credits: Option<Box<Credits>>,
    /// A liveness check of the peer, for encrypted connections only. It is boxed because it exists for a few round
    /// trips.
    peer_check: Option<Box<PeerCheck>>,
    /// The event deferred until a packet has proved the identity of an encrypted connection's peer. It is boxed
    /// likewise.
    unannounced: Option<Box<Announcement>>,
    /// The reason for which the connection is ending.
    pub(crate) closing: Option<CloseReason>,
    pub(crate) timers: Timers,
    /// The time at which the endpoint's timer queue serves this connection.
    pub(crate) scheduled: Instant,
    /// `true` if the endpoint's transmit queue holds this connection.
    pub(crate) queued: bool,
    last_received_at: Instant,
    last_sent_at: Instant,
    /// The time without a packet from the peer, while it owes an answer, after which it is considered gone.
    peer_timeout: Duration,
    /// Number of data packets sent, retransmissions included.
    sent: u64,
    /// Number of data packets retransmitted.
    retransmitted: u64,
}

/// The statistics of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionStats<'a> {
    /// Number of data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Number of data packets retransmitted.
    pub packets_retransmitted: u64,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u32,
    /// The connection's paths; `None` while it is idle and has released them.
    pub paths: Option<&'a Paths>,
}

impl Connection {
    fn new(
        id: ConnectionId,
        peer: SocketAddr,
        setup: Setup,
        origin: Origin,
        now: Instant,
        config: &TransportConfig,
    ) -> Self {
        let initiator = matches!(setup, Setup::Requesting { .. });
        Self {
            id,
            peer,
            remote_cid: 0,
            peer_thread: 0,
            peer_paths: 0,
            source_port: None,
            initiator,
            version: VERSION,
            mtu: 0,
            send_window: 0,
            sharers: 0,
            awaits_first_data: true,
            setup,
            seed: origin.seed,
            cursor: Cursor { psn: origin.first_psn, message: 0, counts: Counts::default() },
            sender: None,
            receiver: Receiver::new(0),
            received_probes: ReceivedProbes::new(),
            keepalive_due: false,
            credits: None,
            peer_check: None,
            unannounced: None,
            closing: None,
            timers: Timers::new(),
            scheduled: Instant::FAR_FUTURE,
            queued: false,
            last_received_at: now,
            last_sent_at: now,
            peer_timeout: config.peer_timeout,
            sent: 0,
            retransmitted: 0,
        }
    }

    pub(crate) fn stats(&self) -> ConnectionStats<'_> {
        let sender = self.sender.as_deref();
        ConnectionStats {
            packets_sent: self.sent,
            packets_retransmitted: self.retransmitted,
            in_flight: sender.map_or(0, |sender| sender.in_flight),
            paths: sender.map(|sender| &sender.paths),
        }
    }

    /// Records that data has arrived, or that the connection ends.
    pub(crate) fn note_first_data(&mut self, shared: &mut Shared) {
        if core::mem::take(&mut self.awaits_first_data) {
            *shared.awaiting_first_data(self.initiator) -= 1;
        }
    }

    /// Sets the parameters that both ends agreed on.
    fn establish(
        &mut self,
        now: Instant,
        header: &SetupHeader,
        theirs: &SetupParameters,
        config: &TransportConfig,
    ) {
        self.setup = Setup::Established { accept_due: false };
        self.remote_cid = header.local_cid;
        self.peer_thread = header.thread_id;
        self.peer_paths = theirs.paths;
        self.mtu = theirs.mtu.min(config.mtu);
        self.send_window = setup::agreed_window(theirs, config);
        self.sharers = header.reason;
        self.receiver = Receiver::new(theirs.first_psn);
        self.last_received_at = now;
        self.timers.disarm(Timer::Handshake);
        self.arm_idle(now, config);
    }

    /// Returns `true` if `poll_burst` may have packets to send.
    #[inline]
    pub(crate) fn wants_transmit(&self, now: Instant) -> bool {
        self.receiver.acks.is_due()
            || self.sender.as_deref().is_some_and(Sender::has_payload)
            || self.has_rare_work(now)
    }

    /// Returns `true` if set-up packets, probe answers, probes or keepalives are due.
    fn has_rare_work(&self, now: Instant) -> bool {
        self.setup.is_due() || !self.received_probes.is_empty() || self.probe_is_due(now)
    }

    /// Returns the peer's identification of this connection. It does not change once the connection is established.
    pub(crate) fn peer_key(&self) -> PeerKey {
        (self.peer.ip(), self.remote_cid, self.peer.port())
    }

    /// Returns the key of the peer's address and of this end's source ports.
    #[inline]
    fn peer_ports(&self, shared: &Shared) -> PeerPorts {
        match self.source_port {
            Some(port) => PeerPaths::key_of_port(self.peer, port),
            None => shared.peer_paths.key(self.peer, self.peer_thread),
        }
    }

    /// Changes the source port of all packets. The sending half then follows the findings about that port.
    pub(crate) fn set_source_port(&mut self, port: Option<NonZeroU16>, shared: &mut Shared) {
        self.source_port = port;
        let peer = self.peer_ports(shared);
        if let Some(sender) = self.sender.as_deref_mut().filter(|sender| sender.peer != peer) {
            shared.peer_paths.remove_prober(sender.peer, self.id);
            sender.peer = peer;
            sender.known_version = shared.peer_paths.version().wrapping_sub(1);
        }
    }

    /// Changes the time after which a silent peer is considered gone.
    pub(crate) fn set_peer_timeout(&mut self, timeout: Duration) {
        self.peer_timeout = timeout;
    }

    pub(crate) fn is_established(&self) -> bool {
        matches!(self.setup, Setup::Established { .. })
    }

    // Commands from the owner.

    pub(crate) fn submit(
        &mut self,
        now: Instant,
        message: Message,
        shared: &mut Shared,
    ) -> Result<(), SubmitError> {
        if self.closing.is_some() {
            return Err(SubmitError::Closing);
        }
        if !self.is_established() || self.unannounced.is_some() {
            return Err(SubmitError::NotConnected);
        }
        let limit = shared.config.message_queue;
        let peer = self.peer_ports(shared);
        let sender = self.sender.get_or_insert_with(|| {
            let (cursor, mtu, sharers, seed) = (self.cursor, self.mtu, self.sharers, self.seed);
            let start = SenderStart { cursor, peer, mtu, sharers, seed };
            Box::new(Sender::new(start, &shared.config, now))
        });
        if !sender.holds_packets() {
            self.timers.arm_by(Timer::Idle, now + BUFFER_RELEASE_AFTER);
            sender.learn_from_others(now, shared);
        }
        let send_queue = &mut sender.send_queue;
        if send_queue.len() >= limit as usize {
            return Err(SubmitError::QueueFull { limit });
        }
        send_queue.push(message);
        if shared.config.takes_credit() {
            self.request_credit(now, shared);
            self.arm_congestion();
        }
        Ok(())
    }

    // Inputs from the network.

    /// Processes a packet that names this connection and comes from its peer's address.
    #[inline]
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload_len: u16,
        shared: &mut Shared,
    ) -> Verdict {
        if !self.is_established() {
            return shared.refuse(DropReason::UnexpectedSetup);
        }
        if packet.version() != self.version {
            return shared.refuse(DropReason::UnknownVersion);
        }
        if self.unannounced.is_some() && !self.announce(packet, shared) {
            return shared.refuse(DropReason::UnexpectedSetup);
        }
        self.last_received_at = now;
        match packet {
            Packet::Data(header, _) if header.special => {
                self.handle_probe(arrival, header);
                Verdict::Done
            }
            Packet::Data(header, Some(message)) => {
                let packet = DataPacket { header, message, payload_len };
                self.handle_data(now, arrival, &packet, shared)
            }
            Packet::Data(_, None) => shared.refuse(DropReason::Malformed),
            Packet::Ack(ack) => match self.handle_ack(now, arrival, ack, shared) {
                Ok(()) => Verdict::Done,
                Err(reason) => shared.refuse(reason),
            },
            Packet::Setup(_) => unreachable!("the endpoint handles set-up"),
        }
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, shared: &mut Shared) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Loss => self.on_loss_timer(now, shared),
                Timer::Tail => self.on_tail_timer(now, shared),
                Timer::DelayedAck => self.on_ack_timer(),
                // The next `poll_burst` finds the packets that are due.
                Timer::Pacing => {
                    if let Some(sender) = self.sender.as_deref_mut() {
                        sender.on_pacing_timer(now);
                    }
                }
                Timer::Congestion => self.on_congestion_timer(now, shared),
                Timer::PathProbe => self.on_probe_timer(now, shared),
                Timer::Handshake => self.on_handshake_timer(now, &shared.config),
                Timer::Idle => self.on_idle_timer(now, shared),
            }
        }
        if self.is_peer_gone(now) {
            self.closing = Some(CloseReason::PeerGone);
        }
    }

    /// Returns all memory; the connection is about to be dropped.
    pub(crate) fn release(&mut self, now: Instant, shared: &mut Shared) {
        if let Some(mut sender) = self.sender.take() {
            sender.release(&mut shared.send_pool);
            sender.share_measurements(now, shared);
            shared.peer_paths.remove_prober(sender.peer, self.id);
        }
        self.receiver.received.release(&mut shared.recv_pool);
    }

    /// Returns a close packet for the peer, if the connection is established.
    pub(crate) fn close_packet(&self, shared: &Shared) -> Option<Packet> {
        let close = || Packet::Setup(self.setup_header(SetupKind::Close, None, shared));
        self.is_established().then(close)
    }
}

/// Accessors for tests.
#[cfg(test)]
impl Connection {
    pub(crate) fn holds_no_memory(&self) -> bool {
        self.sender.is_none() && self.receiver.received.is_empty()
    }

    pub(crate) fn next_psn(&self) -> u32 {
        self.sender.as_deref().map_or(self.cursor.psn, |sender| sender.next)
    }

    pub(crate) fn send_base(&self) -> u32 {
        self.sender.as_deref().map_or(self.cursor.psn, |sender| sender.base)
    }

    pub(crate) fn receiver_base(&self) -> u32 {
        self.receiver.base
    }
}
