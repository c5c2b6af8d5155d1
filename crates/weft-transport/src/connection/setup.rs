//! The set-up of one connection: request, proof of address, agreement (BIFROST, sections 5.2 and 5.3, appendix C.2).

use core::net::SocketAddr;

use weft_units::{Duration, Instant};
use weft_wire::{Packet, SetupHeader, SetupKind, SetupParameters, U4};

use super::{Connection, Origin, Shared};
use crate::timers::Timer;
use crate::{CloseReason, ConnectionId, Event, TransportConfig};

/// The protocol version of this end, and the lowest version it supports.
pub(crate) const VERSION: U4 = U4::truncate(1);
pub(crate) const MIN_VERSION: U4 = U4::truncate(1);

/// The capabilities of this end, one bit each. A capability that the peer lacks is not used with it.
pub(crate) const CAPABILITIES: u32 = capability::MESSAGES | capability::WIDE_WINDOW;

/// The bits of [`SetupParameters::capabilities`].
mod capability {
    /// Data packets carry a message header.
    pub(super) const MESSAGES: u32 = 1 << 0;
    /// ACKs describe blocks past the first 256 packets.
    pub(super) const WIDE_WINDOW: u32 = 1 << 1;
}

/// The state of set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// This end sent a request and waits for the answer.
    Requesting {
        /// The service the owner requested.
        service: u64,
        /// The proof of this end's address, once the peer sent a challenge.
        token: u64,
        /// Number of copies of the request to send, each on a random path.
        due: u8,
        /// Number of retransmissions of the request.
        retransmissions: u8,
        /// The time of the owner's request.
        since: Instant,
    },
    /// Both ends know each other.
    Established {
        /// `true` if an accept must be sent.
        accept_due: bool,
    },
}

/// A request of this end, kept until the peer of an encrypted connection is known to have received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    service: u64,
    /// The peer's port in the request. The accept may come from another.
    port: u16,
    /// The time of the owner's request.
    since: Instant,
}

impl Request {
    const fn setup(self) -> Setup {
        let Self { service, since, .. } = self;
        Setup::Requesting { service, token: 0, due: 1, retransmissions: 0, since }
    }
}

impl Setup {
    /// Returns `true` if a set-up packet must be sent.
    pub(crate) fn is_due(&self) -> bool {
        match self {
            Self::Requesting { due, .. } => *due > 0,
            Self::Established { accept_due } => *accept_due,
        }
    }
}

/// The first wait before a request is retransmitted; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// Minimum number of requests to a silent peer before it is considered gone.
const MIN_REQUESTS: u64 = 8;

/// Maximum number of copies of one request, each on a random path. A dead path that is not yet known to be dead costs a
/// copy and not a wait, so set-up succeeds even if half of the paths are dead.
const MAX_COPIES: u8 = 8;

/// The window the two ends may use without [`capability::WIDE_WINDOW`]: the packets that one bitmap describes.
const NARROW_WINDOW: u16 = 256;

/// The endpoint's identity, which is sent to peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) receive_port: u16,
    pub(crate) thread_id: u8,
}

/// A peer's request for a connection.
#[derive(Clone, Copy)]
pub(crate) struct PeerRequest<'a> {
    /// The peer's address, with the port at which it receives.
    pub(crate) peer: SocketAddr,
    pub(crate) header: &'a SetupHeader,
    /// The terms in `header`.
    pub(crate) terms: &'a SetupParameters,
}

impl Connection {
    /// Creates a connection that this end requests.
    pub(crate) fn requesting(
        id: ConnectionId,
        peer: SocketAddr,
        service: u64,
        origin: Origin,
        now: Instant,
        config: &TransportConfig,
    ) -> Self {
        let request = Request { service, port: peer.port(), since: now };
        let mut connection = Self::new(id, peer, request.setup(), origin, now, config);
        connection.timers.arm(Timer::Handshake, now + wait_for_answer(0, config));
        connection
    }

    /// Restarts set-up, as if the peer had never accepted.
    pub(crate) fn restart_setup(
        &mut self,
        now: Instant,
        request: Request,
        config: &TransportConfig,
    ) {
        self.setup = request.setup();
        self.peer.set_port(request.port);
        (self.remote_cid, self.version) = (0, VERSION);
        (self.peer_check, self.keepalive_due) = (None, false);
        self.timers.disarm(Timer::Idle);
        self.timers.arm(Timer::Handshake, now + wait_for_answer(0, config));
    }

    /// Creates a connection that the peer requested after proving its address.
    pub(crate) fn accepting(
        id: ConnectionId,
        request: PeerRequest<'_>,
        origin: Origin,
        now: Instant,
        config: &TransportConfig,
    ) -> Self {
        let PeerRequest { peer, header, terms } = request;
        let setup = Setup::Established { accept_due: true };
        let mut connection = Self::new(id, peer, setup, origin, now, config);
        connection.version = header.version.min(VERSION);
        connection.establish(now, header, terms, config);
        connection.setup = setup;
        connection
    }

    /// Establishes this connection with a peer whose terms came over another channel.
    pub(crate) fn joined(
        &mut self,
        now: Instant,
        offer: &SetupHeader,
        theirs: &SetupParameters,
        config: &TransportConfig,
    ) {
        self.establish(now, offer, theirs, config);
    }

    /// Returns the next set-up packet, if one is due.
    #[inline]
    pub(crate) fn poll_setup(&mut self, shared: &mut Shared) -> Option<Packet> {
        let (kind, token, service) = match &mut self.setup {
            Setup::Established { accept_due: false } | Setup::Requesting { due: 0, .. } => {
                return None;
            }
            Setup::Established { accept_due } => {
                *accept_due = false;
                (SetupKind::Accept, 0, 0)
            }
            Setup::Requesting { due, token, service, .. } => {
                *due -= 1;
                (SetupKind::Request, *token, *service)
            }
        };
        let terms = SetupParameters { token, service, ..self.terms(shared) };
        Some(Packet::Setup(self.setup_header(kind, Some(terms), shared)))
    }

    pub(crate) fn setup_header(
        &self,
        kind: SetupKind,
        terms: Option<SetupParameters>,
        shared: &Shared,
    ) -> SetupHeader {
        SetupHeader {
            kind,
            version: self.version,
            cc_type: shared.cc_type(),
            thread_id: shared.identity.thread_id,
            reason: if terms.is_some() { self.sharers_log2(shared) } else { 0 },
            local_cid: self.id.0,
            destination_cid: self.remote_cid,
            terms,
        }
    }

    /// Returns the binary logarithm, rounded up, of the number of connections that are about to send to this end: of
    /// those it requested, as a client whose servers answer together, or of those it accepted.
    fn sharers_log2(&self, shared: &Shared) -> u8 {
        let count = if self.initiator { shared.requested } else { shared.accepted };
        u8::try_from(count.next_power_of_two().trailing_zeros()).expect("at most 32")
    }

    /// Returns the terms that this end offers.
    pub(crate) fn terms(&self, shared: &Shared) -> SetupParameters {
        let config = &shared.config;
        SetupParameters {
            capabilities: CAPABILITIES,
            first_psn: self.cursor.psn,
            mtu: config.mtu,
            window: config.reorder_window,
            paths: config.paths,
            receive_port: shared.identity.receive_port,
            service: 0,
            min_version: MIN_VERSION.get(),
            token: 0,
        }
    }

    /// Handles a challenge: retransmits the request with the peer's token. Returns `false` if no request is open.
    pub(crate) fn handle_challenge(&mut self, theirs: &SetupParameters) -> bool {
        let Setup::Requesting { token, due, .. } = &mut self.setup else { return false };
        *token = theirs.token;
        *due = (*due).max(1);
        true
    }

    /// Handles an accept. Returns `false` if it contradicts an earlier one.
    pub(crate) fn handle_accept(
        &mut self,
        now: Instant,
        header: &SetupHeader,
        theirs: &SetupParameters,
        sealed: bool,
        shared: &mut Shared,
    ) -> bool {
        let Setup::Requesting { service, since, .. } = self.setup else {
            return (self.remote_cid, self.peer.port()) == (header.local_cid, theirs.receive_port);
        };
        let request = Request { service, port: self.peer.port(), since };
        // The peer may have assigned the connection to another of its threads.
        self.peer.set_port(theirs.receive_port);
        self.version = header.version;
        self.establish(now, header, theirs, &shared.config);
        if sealed {
            self.prove_identity(now, request);
        } else {
            shared.events.push_back(Event::Connected { connection: self.id });
        }
        true
    }

    /// Handles a duplicate request: the accept was lost and is retransmitted.
    pub(crate) fn retransmit_accept(&mut self) {
        if let Setup::Established { accept_due } = &mut self.setup {
            *accept_due = true;
        }
    }

    /// Handles the handshake timer: retransmits the request, or closes after the peer timeout.
    pub(crate) fn on_handshake_timer(&mut self, now: Instant, config: &TransportConfig) {
        let Setup::Requesting { due, retransmissions, since, .. } = &mut self.setup else {
            return self.on_peer_check_timer(now, config);
        };
        if now.since(*since) >= self.peer_timeout {
            self.closing = Some(CloseReason::ConnectTimeout);
            return;
        }
        *retransmissions = retransmissions.saturating_add(1);
        *due = copies(*retransmissions, config);
        self.timers.arm(Timer::Handshake, now + wait_for_answer(*retransmissions, config));
    }
}

/// Returns the wait for an answer to a request that was retransmitted `retransmissions` times.
fn wait_for_answer(retransmissions: u8, config: &TransportConfig) -> Duration {
    (FIRST_WAIT * (1 << retransmissions.min(16))).min(config.peer_timeout / MIN_REQUESTS)
}

/// Returns the number of copies of a request at its retransmission number `retransmissions`: twice as many as the time
/// before.
fn copies(retransmissions: u8, config: &TransportConfig) -> u8 {
    let paths = u8::try_from(config.paths).unwrap_or(u8::MAX);
    (1 << retransmissions.min(7)).min(MAX_COPIES).min(paths)
}

/// Returns the send window towards a peer with these terms: the packets it keeps and can describe.
pub(crate) fn agreed_window(theirs: &SetupParameters, config: &TransportConfig) -> u16 {
    let wide = theirs.capabilities & CAPABILITIES & capability::WIDE_WINDOW != 0;
    let describable = if wide { u16::MAX } else { NARROW_WINDOW };
    theirs.window.min(config.send_window).min(describable).max(1)
}

/// Returns `true` if packets can be exchanged under these terms.
pub(crate) fn is_usable(theirs: &SetupParameters) -> bool {
    theirs.capabilities & capability::MESSAGES != 0 && theirs.mtu >= 64 && theirs.window > 0
}
