//! A reset that cannot be proved: the peer of an encrypted connection may have forgotten its keys, or somebody has
//! written that it did. The peer is asked, and the connection ends only if nothing authentic comes back.

use weft_units::{Duration, Instant};

use super::{Connection, Setup};
use crate::timers::Timer;
use crate::{CloseReason, TransportConfig};

/// Questions that remain unanswered before the peer is taken to be gone; each may be lost.
const QUESTIONS: u8 = 6;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    since: Instant,
    /// Questions asked.
    asked: u8,
}

impl Connection {
    /// Somebody says that the peer does not know this connection.
    pub(crate) fn doubt_peer(&mut self, now: Instant) {
        let asked = matches!(self.setup, Setup::Established { .. });
        if asked && self.doubt.is_none() {
            self.doubt = Some(Doubt { since: now, asked: 0 });
            self.timers.arm(Timer::Handshake, now);
        }
    }

    /// Asks once more, unless something was heard; gives up after [`QUESTIONS`].
    pub(super) fn on_doubt_timer(&mut self, now: Instant, config: &TransportConfig) {
        let Some(doubt) = &mut self.doubt else { return };
        if self.heard_anything_at > doubt.since {
            self.doubt = None;
        } else if doubt.asked >= QUESTIONS {
            self.closing = Some(CloseReason::Reset);
        } else {
            let wait = wait_for_answer(doubt.asked, config);
            doubt.asked += 1;
            self.keepalive_due = true;
            self.timers.arm(Timer::Handshake, now + wait);
        }
    }
}

/// A retransmission timeout, doubled each time.
fn wait_for_answer(asked: u8, config: &TransportConfig) -> Duration {
    let shortest = config.retransmission.rto_min.max(config.base_rtt * 2);
    (shortest * (1 << asked)).min(config.retransmission.rto_max.max(shortest))
}
