//! The paths that one packet may take: those of its connection, with what differs for this packet.

use core::cmp::Reverse;
use core::ops::Deref;

use weft_units::{Instant, Rng};

use super::{PathId, Paths};

/// The paths of a connection as candidates for one packet. A policy selects among those that are open.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    paths: &'a Paths,
    /// The path on which the packet was just lost.
    avoid: Option<PathId>,
    /// `true` ignores the windows of paths.
    beyond_windows: bool,
}

impl Deref for Candidates<'_> {
    type Target = Paths;

    #[inline]
    fn deref(&self) -> &Paths {
        self.paths
    }
}

impl Paths {
    /// Returns the paths as candidates for a packet that may take any.
    #[inline]
    pub fn candidates(&self) -> Candidates<'_> {
        Candidates { paths: self, avoid: None, beyond_windows: false }
    }
}

/// Number of retransmissions of a packet after which a random path may be used instead of the likeliest one.
const RANDOM_PATH_AFTER: u8 = 3;

impl Candidates<'_> {
    /// Returns the candidates for a packet that was just lost on `path`, which then counts as closed.
    pub(crate) fn avoiding(self, path: PathId) -> Self {
        Self { avoid: Some(path), ..self }
    }

    /// Returns the candidates for a packet that may exceed the windows of paths.
    pub(crate) fn beyond_windows(self) -> Self {
        Self { beyond_windows: true, ..self }
    }

    /// Returns `true` if the packet was just lost on this path.
    pub(crate) fn is_avoided(&self, path: PathId) -> bool {
        self.avoid == Some(path)
    }

    /// Returns `true` if the packet may take this path: it is up, its window has room, and the packet was not just
    /// lost on it.
    #[inline]
    pub fn is_open(&self, path: PathId) -> bool {
        let state = &self.state(path);
        let fits = state.in_flight == 0 || state.in_flight + self.mtu <= self.window(path);
        let room = fits || self.beyond_windows;
        room && self.is_up(path) && self.avoid != Some(path)
    }

    /// Returns `true` if one of these paths has packets in flight: an ACK or a timeout will open it. Without one the
    /// wait would never end; and a packet lost on the only path takes another.
    pub(super) fn will_open(&self, paths: &[PathId]) -> bool {
        paths.iter().any(|&path| self.in_flight(path) > 0 && !self.is_avoided(path))
    }

    /// Returns the first open path at or after `start`, wrapping around; `None` if none is open.
    #[inline]
    pub fn open_from(&self, start: PathId) -> Option<PathId> {
        if self.is_open(start) {
            return Some(start);
        }
        (start.0 + 1..self.count()).chain(0..start.0).map(PathId).find(|&path| self.is_open(path))
    }

    /// Returns the open path most likely to work: the one with the latest response, or, if every path had a loss since,
    /// the one with the earliest loss; among equals a random one, so that not all packets take the same path. `None` if
    /// none is open.
    ///
    /// For a packet retransmitted several times it is a random open path every other time: in a silence no state
    /// changes, and the two paths with the latest responses may both be dead.
    pub(crate) fn likeliest(&self, retransmissions: u8, rng: &mut Rng) -> Option<PathId> {
        if retransmissions >= RANDOM_PATH_AFTER && rng.chance(1, 2) {
            return self.open_from(self.draw(rng));
        }
        let rank = |path: &PathId| {
            let (last_response_at, suspected_at) =
                (self.last_response_at(*path), self.suspected_at(*path));
            let works = last_response_at >= suspected_at;
            let last_response_at = if works { last_response_at } else { Instant::EPOCH };
            (last_response_at, Reverse(suspected_at))
        };
        let start = self.draw(rng).0;
        let ids = (start..self.count()).chain(0..start).map(PathId);
        ids.filter(|&path| self.is_open(path)).max_by_key(rank)
    }
}
