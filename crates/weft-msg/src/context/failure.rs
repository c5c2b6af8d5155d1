//! Failures of a channel's carrier or peer.
//!
//! A peer that does not answer a probe (X-RDMA, section V.A) is reported by the device after its retries, which may last longer
//! than an owner waits: those of a device in software must outlast a busy host. The context gives up earlier, but only where
//! the whole host is silent.

use weft_units::Instant;

use super::{ChannelId, Context};
use crate::channel::{Renewal, State};
use crate::event::CloseReason;
use crate::verbs::Verbs;

impl<V: Verbs> Context<V> {
    /// Handles a failure of a channel's carrier or peer.
    pub(super) fn fail(&mut self, now: Instant, id: ChannelId, reason: CloseReason) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        let broken = matches!(reason, CloseReason::PeerUnreachable(_));
        if broken && matches!(channel.back.renewal, Renewal::Offered | Renewal::Testing) {
            self.discard_qp(now, id);
            return self.touch(id);
        }
        let device = broken || matches!(reason, CloseReason::Device(_));
        let lost = channel.stream.rdma_lost && !(broken && channel.back.renewal == Renewal::Ready);
        if device && channel.stream.attached && !lost {
            self.shared.current = id;
            match channel.fail_over(now, &mut self.shared) {
                Ok(()) => return self.touch(id),
                Err(reason) => return self.end(now, id, reason),
            }
        }
        let reason = match channel.state {
            // Either both ends closed, or the peer has received everything and ended the channel.
            State::PeerClosed { .. } => CloseReason::ByPeer,
            _ => reason,
        };
        self.end(now, id, reason);
    }

    /// Returns `true` if a channel's probe is unanswered, and nothing arrived from the peer's host for the time limit. Where
    /// something arrived since the probe, the host is busy, and the time limit begins anew.
    pub(super) fn host_is_silent(&mut self, now: Instant, id: ChannelId) -> bool {
        let limit = self.shared.config.keepalive_timeout;
        let Some(channel) = self.channels.get(id) else { return false };
        if channel.unanswered_at(&self.shared.config).is_none_or(|due| due > now) {
            return false;
        }
        let (host, probed_at) = (channel.peer.gid, channel.probed_at);
        let of_host = self.channels.values().filter(|other| other.peer.gid == host);
        let silent_since = of_host.map(|other| other.last_received).fold(probed_at, Instant::max);
        let due = silent_since + limit;
        if due > now {
            self.channels[id].probed_at = silent_since;
            return false;
        }
        // Otherwise the answer may be among the completions that the owner has not polled yet.
        self.drained_at.is_some_and(|drained| drained >= due)
    }
}
