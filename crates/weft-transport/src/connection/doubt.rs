//! Probes of the peer of an encrypted connection.
//!
//! After set-up: neither owner hears of the connection before a packet has proved who is at the other end. The end that asked
//! probes, which tells the peer, and the answer tells this end; only then does payload leave, so that none arrives before the
//! peer's owner knows the connection.
//!
//! After a reset, which cannot be proved: the peer may have forgotten its keys, or somebody has written that it did. The
//! connection ends only if it goes on saying so, and nothing authentic comes back. Where nothing comes back at all, the network
//! may be down: that is for the peer timeout to judge. During set-up it does not end but begins anew: no owner has heard of it.

use alloc::boxed::Box;

use weft_units::{Duration, Instant};
use weft_wire::Packet;

use super::setup::Request;
use super::{Connection, Shared};
use crate::timers::Timer;
use crate::{CloseReason, Event, TransportConfig};

/// Probes after a reset that remain unanswered before the peer is taken to be gone; each may be lost.
const MAX_PROBES: u8 = 6;

/// Resets after the first that have to come meanwhile: who has no keys answers each probe with one.
const MIN_RESETS: u8 = 3;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    since: Instant,
    probes_sent: u8,
    /// Times that somebody said so again.
    resets: u8,
}

impl Doubt {
    /// Whether the peer said often enough that it does not know the connection, and answered no probe.
    const fn is_borne_out(&self) -> bool {
        self.probes_sent >= MAX_PROBES && self.resets >= MIN_RESETS
    }
}

/// What the owner hears when a packet has proved who the peer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Announcement {
    /// A peer asked for this service.
    Accepted(u32),
    /// The peer accepted this request.
    Connected(Request),
}

impl Connection {
    /// Somebody says that the peer does not know this connection.
    pub(crate) fn doubt_peer(&mut self, now: Instant) {
        if let Some(doubt) = self.doubt.as_deref_mut() {
            doubt.resets = doubt.resets.saturating_add(1);
        } else if self.is_established() {
            self.probe_peer(now);
        }
    }

    /// Returns the request to begin set-up anew with, if the peer accepted it and seems to have forgotten that before it
    /// learned who this end is.
    pub(crate) fn take_forgotten_request(&mut self) -> Option<Request> {
        let is_forgotten = self.doubt.as_deref().is_some_and(Doubt::is_borne_out);
        match self.unannounced.as_deref() {
            Some(&Announcement::Connected(request)) if is_forgotten => {
                self.unannounced = None;
                Some(request)
            }
            _ => None,
        }
    }

    /// The peer accepted this request, and has to learn who this end is.
    pub(super) fn introduce(&mut self, now: Instant, request: Request) {
        self.unannounced = Some(Box::new(Announcement::Connected(request)));
        self.probe_peer(now);
    }

    /// The peer that asked for this connection has to prove who it is.
    pub(crate) fn expect_proof(&mut self, now: Instant, service: u32, config: &TransportConfig) {
        self.unannounced = Some(Box::new(Announcement::Accepted(service)));
        self.timers.arm(Timer::Handshake, now + config.peer_timeout);
    }

    /// Returns `true` until a packet has proved who asked for this connection.
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(self.unannounced.as_deref(), Some(Announcement::Accepted(_)))
    }

    fn probe_peer(&mut self, now: Instant) {
        self.doubt = Some(Box::new(Doubt { since: now, probes_sent: 0, resets: 0 }));
        self.timers.arm(Timer::Handshake, now);
    }

    /// Tells the owner of the connection, now that a packet has proved who the peer is. Payload does not: the owner would
    /// have to place it before it hears of the connection. Returns `false` for a packet that comes too early.
    #[cold]
    pub(super) fn announce(&mut self, packet: &Packet, shared: &mut Shared) -> bool {
        if matches!(packet, Packet::Data(header, _) if !header.special) {
            return false;
        }
        let connection = self.id;
        shared.events.extend(self.unannounced.take().map(|announcement| match *announcement {
            Announcement::Accepted(service) => Event::Accepted { connection, service },
            Announcement::Connected(_) => Event::Connected { connection },
        }));
        true
    }

    /// Probes once more, unless something was heard. After [`MAX_PROBES`] the connection is given up, or the doubt; during
    /// set-up the connection after the peer's timeout.
    pub(super) fn on_doubt_timer(&mut self, now: Instant, config: &TransportConfig) {
        let Some(doubt) = self.doubt.as_deref_mut() else {
            self.closing =
                self.is_unproven().then_some(CloseReason::ConnectTimeout).or(self.closing);
            return;
        };
        let is_setup = self.unannounced.is_some();
        let gives_up = match is_setup {
            true => now.since(doubt.since) >= config.peer_timeout,
            false => doubt.probes_sent >= MAX_PROBES,
        };
        if self.heard_anything_at > doubt.since {
            self.doubt = None;
        } else if gives_up {
            let reason = match is_setup {
                true => Some(CloseReason::ConnectTimeout),
                false => doubt.is_borne_out().then_some(CloseReason::Reset),
            };
            self.closing = reason.or(self.closing);
            self.doubt = None;
        } else {
            let wait = wait_for_probe(doubt.probes_sent, config);
            doubt.probes_sent = doubt.probes_sent.saturating_add(1);
            self.keepalive_due = true;
            self.timers.arm(Timer::Handshake, now + wait);
        }
    }
}

/// A retransmission timeout, doubled each time.
fn wait_for_probe(sent: u8, config: &TransportConfig) -> Duration {
    let shortest = config.retransmission.rto_min.max(config.base_rtt * 2);
    (shortest * (1 << sent.min(16))).min(config.retransmission.rto_max.max(shortest))
}
