//! The controllers of one connection: one, or one for each path. Keeps every path's window where
//! the policies look for it.

use alloc::vec::Vec;

use weft_units::Instant;

use super::{AckSample, Congestion, Controller, Scope};
use crate::TransportConfig;
use crate::path::{PathId, Paths};

/// The controllers of one connection.
#[derive(Debug)]
pub(crate) struct Controllers {
    scope: Scope,
    each: Vec<Controller>,
}

impl Controllers {
    pub(crate) fn new(config: &TransportConfig) -> Self {
        let scope = config.congestion.scope();
        let count = match scope {
            Scope::Connection => 1,
            Scope::Path => config.paths.into(),
        };
        Self { scope, each: (0..count).map(|_| config.congestion.build(config)).collect() }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// The controller that answers for `path`.
    #[inline]
    pub(crate) fn of(&mut self, path: PathId) -> &mut Controller {
        match self.scope {
            Scope::Connection => &mut self.each[0],
            Scope::Path => &mut self.each[usize::from(path.0)],
        }
    }

    /// Bytes that may be in flight over all paths together.
    #[inline]
    pub(crate) fn total_window(&self) -> u32 {
        match self.scope {
            Scope::Connection => self.each[0].window(),
            Scope::Path => u32::MAX,
        }
    }

    /// Writes every path's first window.
    pub(crate) fn open_windows(&mut self, paths: &mut Paths) {
        paths.ids().for_each(|path| self.publish(path, paths));
    }

    /// Packets of `path`'s scope were acknowledged.
    #[inline]
    pub(crate) fn on_ack(&mut self, path: PathId, ack: &AckSample, paths: &mut Paths) {
        self.of(path).on_ack(ack);
        self.publish(path, paths);
    }

    pub(crate) fn on_loss(&mut self, path: PathId, now: Instant, paths: &mut Paths) {
        self.of(path).on_loss(now);
        self.publish(path, paths);
    }

    pub(crate) fn on_timeout(&mut self, path: PathId, now: Instant, paths: &mut Paths) {
        self.of(path).on_timeout(now);
        self.publish(path, paths);
    }

    /// When a controller wants to be called.
    pub(crate) fn timer(&self) -> Option<Instant> {
        self.each.iter().filter_map(Congestion::timer).min()
    }

    /// Calls the controllers whose time has come.
    pub(crate) fn on_timer(&mut self, now: Instant, paths: &mut Paths) {
        for (path, controller) in (0..).map(PathId).zip(&mut self.each) {
            if controller.timer().is_some_and(|at| at <= now) {
                controller.on_timer(now);
                if self.scope == Scope::Path {
                    paths.state_mut(path).window = controller.window();
                }
            }
        }
    }

    #[inline]
    fn publish(&mut self, path: PathId, paths: &mut Paths) {
        if self.scope == Scope::Path {
            paths.state_mut(path).window = self.each[usize::from(path.0)].window();
        }
    }
}
