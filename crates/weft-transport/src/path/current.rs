//! The current path of a flow, for every policy that uses one path at a time: drawn at random, kept until the policy
//! leaves it or it goes down.

use weft_units::Rng;

use super::{Candidates, PathId};

/// The current path of a flow.
#[derive(Debug, Default)]
pub(super) struct Current {
    path: Option<PathId>,
    /// The path left last, which the next draw skips.
    left: Option<PathId>,
}

impl Current {
    /// Returns the path, drawing one if there is none or it is down. Returns `None` while it is closed: a flow waits
    /// for its path.
    #[inline]
    pub(super) fn select(&mut self, paths: &Candidates<'_>, rng: &mut Rng) -> Option<PathId> {
        match self.path {
            Some(path) if paths.is_up(path) => paths.is_open(path).then_some(path),
            _ => {
                self.path = self.draw(paths, rng);
                self.path
            }
        }
    }

    /// As [`Self::select`], but returns another path for a packet that was just lost on the current one: if the path is
    /// dead, nothing else detects it.
    #[inline]
    pub(super) fn select_or_other(
        &mut self,
        paths: &Candidates<'_>,
        rng: &mut Rng,
    ) -> Option<PathId> {
        match self.select(paths, rng) {
            None if self.path.is_some_and(|path| paths.is_avoided(path)) => {
                paths.open_from(paths.draw(rng))
            }
            chosen => chosen,
        }
    }

    fn draw(&mut self, paths: &Candidates<'_>, rng: &mut Rng) -> Option<PathId> {
        let drawn = paths.draw(rng);
        let start = if self.left.take() == Some(drawn) { paths.after(drawn) } else { drawn };
        paths.open_from(start)
    }

    /// Returns the path, if one is chosen.
    #[inline]
    pub(super) fn path(&self) -> Option<PathId> {
        self.path
    }

    #[inline]
    pub(super) fn is(&self, path: PathId) -> bool {
        self.path == Some(path)
    }

    /// Leaves the path; another is drawn when the next packet leaves.
    pub(super) fn leave(&mut self) {
        self.left = self.path.take();
    }

    /// Moves to `path`.
    pub(super) fn move_to(&mut self, path: PathId) {
        self.path = Some(path);
    }
}
