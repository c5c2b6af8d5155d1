//! Set-up of one connection: asking, proving the address, agreeing (BIFROST, sections 5.2 and 5.3,
//! appendix C.2).

use core::net::SocketAddr;

use weft_units::{Duration, Instant};
use weft_wire::{Packet, SetupHeader, SetupKind, Terms, U4};

use super::{Connection, Origin, Shared};
use crate::timers::Timer;
use crate::{CloseReason, ConnectionId, Event, TransportConfig};

/// The version this end speaks, and the lowest it still speaks.
pub(crate) const VERSION: u32 = 1;
pub(crate) const MIN_VERSION: u32 = 1;

/// What this end can do, a bit each. A peer that lacks one is talked to without it.
pub(crate) const CAPABILITIES: u32 = capability::MESSAGES | capability::WIDE_WINDOW;

/// The bits of [`Terms::capabilities`].
mod capability {
    /// Data packets carry a message header.
    pub(super) const MESSAGES: u32 = 1 << 0;
    /// ACKs name blocks past the first 256 packets.
    pub(super) const WIDE_WINDOW: u32 = 1 << 1;
}

/// How far set-up has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// We asked and wait.
    Requesting {
        /// What the owner wants the connection for.
        service: u32,
        /// Proof of our address, once the peer challenged us.
        token: u64,
        /// Requests that are to leave, each on a path of its own draw.
        due: u8,
        /// Times that the request was sent again for want of an answer.
        repeats: u8,
        /// When the owner asked.
        since: Instant,
    },
    /// Both ends know each other.
    Established {
        /// The peer is to be told (again).
        accept_due: bool,
    },
}

/// What this end asked for, kept until the peer of an encrypted connection is known to have heard of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    service: u32,
    /// The port that was asked. Another may have accepted.
    port: u16,
    /// When the owner asked.
    since: Instant,
}

impl Request {
    const fn setup(self) -> Setup {
        let Self { service, since, .. } = self;
        Setup::Requesting { service, token: 0, due: 1, repeats: 0, since }
    }
}

impl Setup {
    /// Whether a packet of set-up is to leave.
    pub(crate) fn is_due(&self) -> bool {
        match self {
            Self::Requesting { due, .. } => *due > 0,
            Self::Established { accept_due } => *accept_due,
        }
    }
}

/// First wait before a request is sent again; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// A peer that does not answer is asked at least this often before it is given up.
const MIN_REQUESTS: u64 = 8;

/// Copies of one request at most, each on a path of its own draw. A path that is dead without anybody
/// knowing takes a copy, not a wait, so a connection begins whatever half of the paths is dead.
const MAX_COPIES: u8 = 8;

/// The window the two ends may use without [`capability::WIDE_WINDOW`]: what one bitmap describes.
const NARROW_WINDOW: u16 = 256;

/// What an endpoint tells its peers about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) receive_port: u16,
    pub(crate) thread_id: u8,
}

impl Connection {
    /// A connection this end asks for.
    pub(crate) fn requesting(
        id: ConnectionId,
        peer: SocketAddr,
        service: u32,
        origin: Origin,
        now: Instant,
        config: &TransportConfig,
    ) -> Self {
        let request = Request { service, port: peer.port(), since: now };
        let mut connection = Self::new(id, peer, request.setup(), origin, now);
        connection.timers.arm(Timer::Handshake, now + wait_for_answer(0, config));
        connection
    }

    /// Asks once more, as if the peer had never accepted.
    pub(crate) fn ask_again(&mut self, now: Instant, request: Request, config: &TransportConfig) {
        self.setup = request.setup();
        self.peer.set_port(request.port);
        (self.remote_cid, self.version) = (0, U4::truncate(VERSION));
        (self.doubt, self.keepalive_due) = (None, false);
        self.timers.disarm(Timer::Idle);
        self.timers.arm(Timer::Handshake, now + wait_for_answer(0, config));
    }

    /// A connection the peer asked for and proved its address for.
    pub(crate) fn accepting(
        id: ConnectionId,
        peer: SocketAddr,
        request: &SetupHeader,
        theirs: &Terms,
        origin: Origin,
        now: Instant,
        config: &TransportConfig,
    ) -> Self {
        let setup = Setup::Established { accept_due: true };
        let mut connection = Self::new(id, peer, setup, origin, now);
        connection.version = request.version.min(U4::truncate(VERSION));
        connection.establish(now, request, theirs, config);
        connection.setup = setup;
        connection
    }

    /// Joins this connection to a peer whose terms came over another channel.
    pub(crate) fn joined(
        &mut self,
        now: Instant,
        offer: &SetupHeader,
        theirs: &Terms,
        config: &TransportConfig,
    ) {
        self.establish(now, offer, theirs, config);
    }

    /// The next set-up packet, if one is due.
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
        let terms = Terms { token, service, ..self.terms(shared) };
        Some(Packet::Setup(self.setup_header(kind, Some(terms), shared)))
    }

    pub(crate) fn setup_header(
        &self,
        kind: SetupKind,
        terms: Option<Terms>,
        shared: &Shared,
    ) -> SetupHeader {
        SetupHeader {
            kind,
            version: self.version,
            cc_type: shared.cc_type(),
            thread_id: shared.identity.thread_id,
            reason: if terms.is_some() { self.sharers_here(shared) } else { 0 },
            local_cid: self.id.0,
            destination_cid: self.remote_cid,
            terms,
        }
    }

    /// Returns the number of connections that are about to send to this end, as a power of two: of those it asked
    /// for, as a client whose servers answer together, or of those it was asked for.
    fn sharers_here(&self, shared: &Shared) -> u8 {
        let count = if self.initiator { shared.requested } else { shared.accepted };
        u8::try_from(count.next_power_of_two().trailing_zeros()).expect("at most 32")
    }

    /// What this end offers.
    pub(crate) fn terms(&self, shared: &Shared) -> Terms {
        let config = &shared.config;
        Terms {
            capabilities: CAPABILITIES,
            first_psn: self.cursor.psn,
            mtu: config.mtu,
            window: config.reorder_window,
            paths: config.paths,
            receive_port: shared.identity.receive_port,
            service: 0,
            min_version: MIN_VERSION,
            token: 0,
        }
    }

    /// The peer wants proof of our address: ask again with its token.
    pub(crate) fn handle_challenge(&mut self, theirs: &Terms) -> bool {
        let Setup::Requesting { token, due, .. } = &mut self.setup else { return false };
        *token = theirs.token;
        *due = (*due).max(1);
        true
    }

    /// The peer accepted.
    pub(crate) fn handle_accept(
        &mut self,
        now: Instant,
        header: &SetupHeader,
        theirs: &Terms,
        sealed: bool,
        shared: &mut Shared,
    ) -> bool {
        let Setup::Requesting { service, since, .. } = self.setup else {
            return (self.remote_cid, self.peer.port()) == (header.local_cid, theirs.receive_port);
        };
        let request = Request { service, port: self.peer.port(), since };
        // The peer may have given the connection to another of its threads than the one asked.
        self.peer.set_port(theirs.receive_port);
        self.version = header.version;
        self.establish(now, header, theirs, &shared.config);
        if sealed {
            self.introduce(now, request);
        } else {
            shared.events.push_back(Event::Connected { connection: self.id });
        }
        true
    }

    /// The peer asks again: our accept was lost.
    pub(crate) fn accept_again(&mut self) {
        if let Setup::Established { accept_due } = &mut self.setup {
            *accept_due = true;
        }
    }

    pub(crate) fn on_handshake_timer(&mut self, now: Instant, config: &TransportConfig) {
        let Setup::Requesting { due, repeats, since, .. } = &mut self.setup else {
            return self.on_doubt_timer(now, config);
        };
        if now.since(*since) >= config.peer_timeout {
            self.closing = Some(CloseReason::ConnectTimeout);
            return;
        }
        *repeats = repeats.saturating_add(1);
        *due = copies(*repeats, config);
        self.timers.arm(Timer::Handshake, now + wait_for_answer(*repeats, config));
    }
}

/// Wait for an answer to a request that was sent again `repeats` times.
fn wait_for_answer(repeats: u8, config: &TransportConfig) -> Duration {
    (FIRST_WAIT * (1 << repeats.min(16))).min(config.peer_timeout / MIN_REQUESTS)
}

/// Copies of a request that is sent again for the `repeats`th time: twice as many as the time before.
fn copies(repeats: u8, config: &TransportConfig) -> u8 {
    let paths = u8::try_from(config.paths).unwrap_or(u8::MAX);
    (1 << repeats.min(7)).min(MAX_COPIES).min(paths)
}

/// The send window against a peer with these terms: what it keeps and can describe.
pub(crate) fn agreed_window(theirs: &Terms, config: &TransportConfig) -> u16 {
    let wide = theirs.capabilities & CAPABILITIES & capability::WIDE_WINDOW != 0;
    let describable = if wide { u16::MAX } else { NARROW_WINDOW };
    theirs.window.min(config.send_window).min(describable).max(1)
}

/// Whether packets can be exchanged under these terms at all.
pub(crate) fn is_usable(theirs: &Terms) -> bool {
    theirs.capabilities & capability::MESSAGES != 0 && theirs.mtu >= 64 && theirs.window > 0
}
