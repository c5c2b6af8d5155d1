//! One connection. Each file adds the methods for one thing that happens; this one holds the state
//! and the list of what is done when.

use core::net::{IpAddr, SocketAddr};

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use weft_units::{Instant, Rng, Seed};
use weft_wire::{Packet, SetupHeader, SetupKind, Terms, U4};

use crate::path::{PathId, Paths, PeerPaths, PeerPorts};
use crate::pool::Pool;
use crate::timers::{Timer, Timers};
use crate::{
    Arrival, CloseReason, ConnectionId, DropReason, Event, Message, Stats, SubmitError,
    TransportConfig, Verdict,
};

mod ack_received;
mod ack_sent;
mod doubt;
mod egress;
mod idle;
mod in_flight;
mod look_ahead;
mod loss;
mod message;
mod nack;
mod pacing;
mod probe;
mod reassembly;
mod reset;
mod rtt;
mod sender;
mod setup;
mod share;
mod tail;

use doubt::{Announcement, Doubt};
use idle::REST_AFTER;
use in_flight::SentPacket;
pub use look_ahead::Step;
pub(crate) use message::Outbox;
use probe::Probes;
use reassembly::{ReceivedPacket, Receiver};
pub(crate) use reset::Proof;
pub(crate) use rtt::RoundTrip;
use sender::{Counts, Cursor, Sender};
use setup::Setup;
pub(crate) use setup::{CAPABILITIES, Identity, MIN_VERSION, VERSION, is_usable};

/// What the connections of an endpoint share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: TransportConfig,
    pub(crate) identity: Identity,
    pub(crate) send_pool: Pool<SentPacket>,
    pub(crate) recv_pool: Pool<ReceivedPacket>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    /// Connections on which nothing has arrived yet: those this end asked for, and those it was asked for.
    pub(crate) requested: u32,
    pub(crate) accepted: u32,
    pub(crate) peer_paths: PeerPaths,
    paths_of_control: Rng,
}

impl Shared {
    pub(crate) fn new(config: TransportConfig, identity: Identity, seed: Seed) -> Self {
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
            paths_of_control: seed.child("paths of control", 0).rng(),
        }
    }

    /// Connections on which nothing has arrived yet, of those that this end asked for or was asked for.
    pub(crate) fn beginners(&mut self, requested: bool) -> &mut u32 {
        if requested { &mut self.requested } else { &mut self.accepted }
    }

    /// The path of a packet that sets up, keeps alive or closes: any, so that no dead path stops
    /// more than one of its repeats. Drawn, because taken in turn two connections could each keep
    /// to one half of the paths.
    pub(crate) fn any_path(&mut self) -> PathId {
        let path = self.paths_of_control.below(self.config.paths.into());
        PathId(u16::try_from(path).expect("at most 4096 paths"))
    }

    /// The congestion control in use, as headers name it.
    #[inline]
    pub(crate) fn cc_type(&self) -> U4 {
        U4::truncate(self.config.congestion as u32)
    }

    pub(crate) fn refuse(&mut self, reason: DropReason) -> Verdict {
        self.stats.drop_packet(reason);
        Verdict::Dropped(reason)
    }
}

/// What the endpoint draws for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Decides which paths its packets take.
    pub(crate) seed: Seed,
    /// Number of its first packet.
    pub(crate) first_psn: u32,
}

/// What a peer calls a connection: its address, its id, and the port it receives on.
pub(crate) type PeerKey = (IpAddr, u32, u16);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// The peer's address and receive port.
    pub(crate) peer: SocketAddr,
    /// The peer's connection id; zero until it is known.
    pub(crate) remote_cid: u32,
    /// The peer's thread, as it calls it.
    pub(crate) peer_thread: u8,
    /// Paths the peer spreads over.
    pub(crate) peer_paths: u16,
    /// Whether this end asked for the connection.
    pub(crate) initiator: bool,
    version: U4,
    /// Largest payload of one packet, as agreed, bytes.
    mtu: u16,
    /// Packets beyond the first unacknowledged one, as agreed.
    send_window: u16,
    /// The peer said that 2^`sharers` connections are about to send to it.
    sharers: u8,
    /// Nothing has arrived yet: it is one of those that this end tells its peers of.
    about_to_begin: bool,
    setup: Setup,
    seed: Seed,
    cursor: Cursor,
    /// Present while there is something to send, and for a while after.
    sender: Option<Box<Sender>>,
    receiver: Receiver,
    probed: Probes,
    keepalive_due: bool,
    /// The peer is probed, for a reason that only encrypted connections have. Boxed as it is there for a few round trips.
    doubt: Option<Box<Doubt>>,
    /// What the owner hears once a packet has proved who the peer of an encrypted connection is. Boxed likewise.
    unannounced: Option<Box<Announcement>>,
    /// The connection is to end for this reason.
    pub(crate) closing: Option<CloseReason>,
    pub(crate) timers: Timers,
    /// When the endpoint's timer queue will look at this connection.
    pub(crate) scheduled: Instant,
    /// Whether the endpoint's transmit queue holds this connection.
    pub(crate) queued: bool,
    heard_anything_at: Instant,
    sent_anything_at: Instant,
    /// Data packets sent, repeats included.
    sent: u64,
    /// The repeats among them.
    repeated: u64,
}

/// What one connection's payload went through, for whoever looks.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Data packets sent, repeats included.
    pub sent: u64,
    /// The repeats among them.
    pub repeated: u64,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u32,
    /// Its paths; `None` while it rests and has forgotten them.
    pub paths: Option<&'a Paths>,
}

impl Connection {
    fn new(id: ConnectionId, peer: SocketAddr, setup: Setup, origin: Origin, now: Instant) -> Self {
        let initiator = matches!(setup, Setup::Requesting { .. });
        Self {
            id,
            peer,
            remote_cid: 0,
            peer_thread: 0,
            peer_paths: 0,
            initiator,
            version: U4::truncate(VERSION),
            mtu: 0,
            send_window: 0,
            sharers: 0,
            about_to_begin: true,
            setup,
            seed: origin.seed,
            cursor: Cursor { psn: origin.first_psn, message: 0, counts: Counts::default() },
            sender: None,
            receiver: Receiver::new(0),
            probed: Probes::new(),
            keepalive_due: false,
            doubt: None,
            unannounced: None,
            closing: None,
            timers: Timers::new(),
            scheduled: Instant::FAR_FUTURE,
            queued: false,
            heard_anything_at: now,
            sent_anything_at: now,
            sent: 0,
            repeated: 0,
        }
    }

    pub(crate) fn flow(&self) -> Flow<'_> {
        let sender = self.sender.as_deref();
        Flow {
            sent: self.sent,
            repeated: self.repeated,
            in_flight: sender.map_or(0, |sender| sender.in_flight),
            paths: sender.map(|sender| &sender.paths),
        }
    }

    /// Payload has arrived, or the connection ends: it is not about to begin any more.
    pub(crate) fn note_begun(&mut self, shared: &mut Shared) {
        if core::mem::take(&mut self.about_to_begin) {
            *shared.beginners(self.initiator) -= 1;
        }
    }

    /// Takes over what both ends agreed on.
    fn establish(
        &mut self,
        now: Instant,
        header: &SetupHeader,
        theirs: &Terms,
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
        self.heard_anything_at = now;
        self.timers.disarm(Timer::Handshake);
        self.arm_idle(now, config);
    }

    /// Whether `poll_burst` may have something to say.
    #[inline]
    pub(crate) fn wants_transmit(&self, now: Instant) -> bool {
        self.receiver.acks.is_due()
            || self.sender.as_deref().is_some_and(Sender::has_payload)
            || self.has_rare_work(now)
    }

    /// Set-up, probes, keepalives.
    fn has_rare_work(&self, now: Instant) -> bool {
        self.setup.is_due() || !self.probed.is_empty() || self.probe_is_due(now)
    }

    /// What the peer calls it. Does not change once it is established.
    pub(crate) fn peer_key(&self) -> PeerKey {
        (self.peer.ip(), self.remote_cid, self.peer.port())
    }

    /// Which of the peer's addresses and of this end's source ports its packets have.
    #[inline]
    fn peer_ports(&self, shared: &Shared) -> PeerPorts {
        shared.peer_paths.key(self.peer, self.peer_thread)
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
            let (cursor, seed, sharers) = (self.cursor, self.seed, self.sharers);
            Box::new(Sender::new(cursor, &shared.config, peer, self.mtu, sharers, seed, now))
        });
        if !sender.holds_packets() {
            self.timers.arm_by(Timer::Idle, now + REST_AFTER);
            sender.learn_from_others(now, shared);
        }
        let outbox = &mut sender.outbox;
        if outbox.len() >= limit as usize {
            return Err(SubmitError::QueueFull { limit });
        }
        outbox.push(message);
        Ok(())
    }

    // Inputs from the network.

    /// Takes in a packet that names this connection and comes from its peer's address.
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
        self.heard_anything_at = now;
        match packet {
            Packet::Data(header, _) if header.special => {
                self.handle_probe(arrival, header);
                Verdict::Done
            }
            Packet::Data(header, Some(message)) => {
                self.handle_data(now, arrival, header, message, payload_len, shared)
            }
            Packet::Data(_, None) => shared.refuse(DropReason::Malformed),
            Packet::Ack(ack) => match self.handle_ack(now, arrival, ack, shared) {
                Ok(()) => Verdict::Done,
                Err(reason) => shared.refuse(reason),
            },
            Packet::Setup(_) => unreachable!("the endpoint handles set-up"),
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, shared: &mut Shared) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Loss => self.on_loss_timer(now, shared),
                Timer::Tail => self.on_tail_timer(now, shared),
                Timer::DelayedAck => self.on_ack_timer(),
                // What is due, `poll_burst` finds when it is asked again.
                Timer::Pacing => {
                    if let Some(sender) = self.sender.as_deref_mut() {
                        sender.on_pacing_timer(now);
                    }
                }
                Timer::Congestion => self.on_congestion_timer(now),
                Timer::PathProbe => self.on_probe_timer(now, shared),
                Timer::Handshake => self.on_handshake_timer(now, &shared.config),
                Timer::Idle => self.on_idle_timer(now, shared),
            }
        }
        if self.is_peer_gone(now, &shared.config) {
            self.closing = Some(CloseReason::PeerGone);
        }
    }

    /// Gives every chunk back; the connection is about to be dropped.
    pub(crate) fn release(&mut self, now: Instant, shared: &mut Shared) {
        if let Some(mut sender) = self.sender.take() {
            sender.release(&mut shared.send_pool);
            sender.share_measurements(now, shared);
            shared.peer_paths.note_rest(sender.peer, self.id);
        }
        self.receiver.received.release(&mut shared.recv_pool);
    }

    /// A close packet for the peer, if it knows the connection.
    pub(crate) fn close_packet(&self, shared: &Shared) -> Option<Packet> {
        let close = || Packet::Setup(self.setup_header(SetupKind::Close, None, shared));
        self.is_established().then(close)
    }
}

/// What tests look at.
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
