//! The exchange of path measurements among connections to the same peer ([`PeerPaths`]).
//!
//! [`PeerPaths`]: crate::path::PeerPaths

use alloc::vec::Vec;

use weft_units::Instant;

use super::Shared;
use super::sender::Sender;
use crate::ConnectionId;
use crate::path::PathPolicy;

impl Sender {
    /// Applies the paths that other connections closed or opened. This connection probes those that are down and that
    /// no other probes.
    #[cold]
    pub(super) fn follow_others(&mut self, id: ConnectionId, now: Instant, shared: &mut Shared) {
        for path in self.paths.ids() {
            if self.health.is_watched(path) && self.paths.is_down(path) {
                continue;
            }
            let is_closed = shared.peer_paths.is_closed(self.peer, path);
            if is_closed {
                self.health.forget(path);
            }
            self.paths.set_up(path, !is_closed);
        }
        // While all others are down a lossy path is used, unless this connection found it dead: then its own probe
        // opens it.
        if self.paths.up_count() == 0 {
            for path in self.paths.ids().filter(|&path| !self.health.is_watched(path)) {
                self.paths.set_up(path, shared.peer_paths.is_lossy(self.peer, path));
            }
        }
        let count = self.paths.count();
        let down = shared.peer_paths.down(self.peer);
        let orphans = down.filter(|&(path, is_probed)| !is_probed && path.0 < count);
        let orphans: Vec<_> = orphans.map(|(path, _)| path).collect();
        for path in orphans {
            self.take_down(id, path, now, shared);
        }
        self.known_version = shared.peer_paths.version();
    }

    /// Resets the shared loss counts of the paths that an ACK just covered.
    #[cold]
    pub(super) fn notify_others(&self, now: Instant, shared: &mut Shared) {
        let acked = |path| self.paths.last_response_at(path) == now;
        shared.peer_paths.note_acked(self.peer, acked);
    }

    /// Initialises an idle connection's paths with measurements that others made meanwhile.
    pub(super) fn learn_from_others(&mut self, now: Instant, shared: &mut Shared) {
        if !shared.peer_paths.is_shared() {
            return;
        }
        self.paths.count_packets();
        let (round_trip, changed) = shared.peer_paths.seed(self.peer, &mut self.paths, now);
        self.round_trip.seed(round_trip);
        // The policy's ranking of paths is out of date.
        if changed && self.policy.compares_paths() {
            self.policy = shared.config.build_policy();
        }
    }

    /// Shares the measurements since the last call.
    pub(super) fn share_measurements(&mut self, now: Instant, shared: &mut Shared) {
        let Self { peer, paths, round_trip, shared_at, .. } = self;
        let closed = shared.peer_paths.note_measured(*peer, paths, *round_trip, *shared_at, now);
        shared.stats.paths_lossy += closed as u64;
        self.shared_at = now;
    }
}
