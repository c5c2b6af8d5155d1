//! Liveness checks of the peer of an encrypted connection.
//!
//! After set-up, neither owner gets an event for the connection before a packet has proved the identity of the other
//! end. The initiator probes, which proves its identity to the peer, and the answer proves the peer's to this end; only
//! then is payload sent, so that none arrives before the peer's owner knows the connection.
//!
//! After a reset, which cannot be proved, the peer may have lost its keys, or somebody has forged the reset. The
//! connection ends only if resets keep coming and no authentic packet does. If nothing arrives at all, the network may
//! be down: the peer timeout decides. During set-up the connection does not end but set-up is restarted: no owner has
//! seen it.

use alloc::boxed::Box;

use weft_units::{Duration, Instant};
use weft_wire::Packet;

use super::setup::Request;
use super::{Connection, Shared};
use crate::timers::Timer;
use crate::{CloseReason, Event, TransportConfig};

/// Number of unanswered probes after a reset before the peer is considered gone; each may be lost.
const MAX_PROBES: u8 = 6;

/// Minimum number of further resets meanwhile: a peer without keys answers each probe with one.
const MIN_RESETS: u8 = 3;

/// The state of a liveness check.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerCheck {
    since: Instant,
    probes_sent: u8,
    /// Number of further resets received.
    resets: u8,
}

impl PeerCheck {
    /// Returns `true` if enough resets came and no probe was answered.
    const fn is_confirmed(&self) -> bool {
        self.probes_sent >= MAX_PROBES && self.resets >= MIN_RESETS
    }
}

/// The event that is deferred until a packet has proved the peer's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Announcement {
    /// A peer requested this service.
    Accepted(u64),
    /// The peer accepted this request.
    Connected(Request),
}

impl Connection {
    /// Handles an unproven reset.
    pub(crate) fn check_peer(&mut self, now: Instant) {
        if let Some(check) = self.peer_check.as_deref_mut() {
            check.resets = check.resets.saturating_add(1);
        } else if self.is_established() {
            self.probe_peer(now);
        }
    }

    /// Returns the request with which set-up is restarted, if the peer accepted it and seems to have lost the
    /// connection before it learned this end's identity.
    pub(crate) fn take_forgotten_request(&mut self) -> Option<Request> {
        let is_forgotten = self.peer_check.as_deref().is_some_and(PeerCheck::is_confirmed);
        match self.unannounced.as_deref() {
            Some(&Announcement::Connected(request)) if is_forgotten => {
                self.unannounced = None;
                Some(request)
            }
            _ => None,
        }
    }

    /// Begins to prove this end's identity to the peer that accepted `request`.
    pub(super) fn prove_identity(&mut self, now: Instant, request: Request) {
        self.unannounced = Some(Box::new(Announcement::Connected(request)));
        self.probe_peer(now);
    }

    /// Waits for a proof of the identity of the peer that requested this connection.
    pub(crate) fn expect_proof(&mut self, now: Instant, service: u64, config: &TransportConfig) {
        self.unannounced = Some(Box::new(Announcement::Accepted(service)));
        self.timers.arm(Timer::Handshake, now + config.peer_timeout);
    }

    /// Returns `true` until a packet has proved the identity of the peer that requested this connection.
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(self.unannounced.as_deref(), Some(Announcement::Accepted(_)))
    }

    /// Starts a liveness check.
    fn probe_peer(&mut self, now: Instant) {
        self.peer_check = Some(Box::new(PeerCheck { since: now, probes_sent: 0, resets: 0 }));
        self.timers.arm(Timer::Handshake, now);
    }

    /// Emits the deferred event, now that a packet has proved the peer's identity. A data packet does not: the owner
    /// would have to place it before it knows the connection. Returns `false` for such a packet.
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

    /// Sends one more probe, unless a packet arrived. After [`MAX_PROBES`] the connection or the check ends; during
    /// set-up the connection ends after the peer's timeout.
    pub(super) fn on_peer_check_timer(&mut self, now: Instant, config: &TransportConfig) {
        let Some(check) = self.peer_check.as_deref_mut() else {
            self.closing =
                self.is_unproven().then_some(CloseReason::ConnectTimeout).or(self.closing);
            return;
        };
        let is_setup = self.unannounced.is_some();
        let gives_up = match is_setup {
            true => now.since(check.since) >= self.peer_timeout,
            false => check.probes_sent >= MAX_PROBES,
        };
        if self.last_received_at > check.since {
            self.peer_check = None;
        } else if gives_up {
            let reason = match is_setup {
                true => Some(CloseReason::ConnectTimeout),
                false => check.is_confirmed().then_some(CloseReason::Reset),
            };
            self.closing = reason.or(self.closing);
            self.peer_check = None;
        } else {
            let wait = wait_for_probe(check.probes_sent, config);
            check.probes_sent = check.probes_sent.saturating_add(1);
            self.keepalive_due = true;
            self.timers.arm(Timer::Handshake, now + wait);
        }
    }
}

/// Returns the wait after a probe: a retransmission timeout, doubled for each probe sent.
fn wait_for_probe(sent: u8, config: &TransportConfig) -> Duration {
    let shortest = config.retransmission.rto_min.max(config.base_rtt * 2);
    (shortest * (1 << sent.min(16))).min(config.retransmission.rto_max.max(shortest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/threats.md` gives these times: a peer that is silent for so long loses the connection to forged resets.
    #[test]
    fn a_check_of_a_silent_peer_takes_188_ms_under_bifrost_and_12_ms_under_stellar() {
        for (config, micros) in
            [(TransportConfig::bifrost(), 188_000), (TransportConfig::stellar(), 11_750)]
        {
            let waits = (0..MAX_PROBES).map(|sent| wait_for_probe(sent, &config).as_nanos());
            assert_eq!(waits.sum::<u64>(), micros * 1_000);
        }
    }
}
