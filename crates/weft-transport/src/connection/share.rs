//! Path measurements that a connection takes from others to the same peer, and leaves to them ([`PeerPaths`]).
//!
//! [`PeerPaths`]: crate::path::PeerPaths

use alloc::vec::Vec;

use weft_units::Instant;

use super::Shared;
use super::sender::Sender;
use crate::ConnectionId;
use crate::path::PathPolicy;

impl Sender {
    /// Others found paths to a peer closed, or open again: they are so here too. This connection probes those that
    /// are down and that no other does.
    #[cold]
    pub(super) fn follow_others(&mut self, id: ConnectionId, now: Instant, shared: &mut Shared) {
        for path in self.paths.ids() {
            if !self.health.is_watched(path) || self.paths.state(path).up {
                self.paths.set_up(path, !shared.peer_paths.is_closed(self.peer, path));
            }
        }
        // Where all others are down a lossy path is better than none, unless this connection found it dead: then its
        // own probe opens it.
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
        self.known = shared.peer_paths.version();
    }

    /// An ACK arrived: on paths that it covers no losses are in a row any more.
    #[cold]
    pub(super) fn tell_others(&self, now: Instant, shared: &mut Shared) {
        let heard = |path| self.paths.state(path).heard_at == now;
        shared.peer_paths.note_heard(self.peer, heard);
    }

    /// The connection wakes: it begins with what others measured since it rested.
    pub(super) fn learn_from_others(&mut self, now: Instant, shared: &mut Shared) {
        if !shared.peer_paths.is_shared() {
            return;
        }
        let (round_trip, changed) = shared.peer_paths.seed(self.peer, &mut self.paths, now);
        self.round_trip.seed(round_trip);
        // Its ranking of paths is of old.
        if changed && self.policy.compares_paths() {
            self.policy = shared.config.policy.build(&shared.config);
        }
    }

    /// Leaves what was measured since the last time to others.
    pub(super) fn share_measurements(&mut self, now: Instant, shared: &mut Shared) {
        let Self { peer, paths, round_trip, shared_at, .. } = self;
        let closed = shared.peer_paths.note_measured(*peer, paths, *round_trip, *shared_at, now);
        shared.stats.paths_lossy += closed as u64;
        self.shared_at = now;
    }
}
