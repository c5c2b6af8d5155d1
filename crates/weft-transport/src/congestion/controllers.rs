//! The controllers of one connection: one, or one for each path. They write each path's window to [`Paths`], where the
//! policies read it, and keep the sum of the windows.

use alloc::vec::Vec;

use weft_units::Instant;

use super::{AckSample, Congestion, Controller, Opening, Scope};
use crate::path::{PathId, Paths};
use crate::{TransportConfig, TrimmedAt};

/// Number of packets that the smallest windows of all paths add up to, if more paths are in use: with fewer in flight
/// most losses wait for a timeout.
pub(super) const MIN_PACKETS_IN_FLIGHT: u16 = 8;

/// The controllers of one connection.
#[derive(Debug)]
pub(crate) struct Controllers {
    scope: Scope,
    each: Vec<Controller>,
    /// The sum of the paths' windows, and `true` if it bounds the bytes in flight: if many paths are in use, their
    /// windows may be below one packet, which permits a packet on some of them and not on all.
    sum: u64,
    sum_bounds: bool,
    opening: Opening,
}

impl Controllers {
    /// Creates the controllers of a connection whose receiver has 2^`sharers` senders.
    pub(crate) fn new(config: &TransportConfig, sharers: u8) -> Self {
        let scope = config.congestion_scope();
        let count = match scope {
            Scope::Connection => 1,
            Scope::Path => config.paths.into(),
        };
        let each: Vec<_> = (0..count).map(|_| config.build_control()).collect();
        let sum_bounds = config.policy.paths_in_use(config) > MIN_PACKETS_IN_FLIGHT;
        Self { scope, each, sum: 0, sum_bounds, opening: Opening::new(config, sharers) }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the controller of `path`.
    #[inline]
    pub(crate) fn of(&mut self, path: PathId) -> &mut Controller {
        match self.scope {
            Scope::Connection => &mut self.each[0],
            Scope::Path => &mut self.each[usize::from(path.0)],
        }
    }

    /// Returns the bytes that may be in flight over all paths together.
    #[inline]
    pub(crate) fn total_window(&self) -> u32 {
        let window = match self.scope {
            Scope::Connection => self.each[0].window(),
            Scope::Path if self.sum_bounds => u32::try_from(self.sum).unwrap_or(u32::MAX),
            Scope::Path => u32::MAX,
        };
        window.min(self.opening.window())
    }

    /// Writes every path's first window.
    pub(crate) fn open_windows(&mut self, paths: &mut Paths) {
        if self.scope == Scope::Path {
            for path in paths.ids() {
                paths.set_window(path, 0);
            }
        }
        paths.ids().for_each(|path| self.publish(path, paths));
    }

    /// Processes acknowledged packets of `path`'s scope.
    #[inline]
    pub(crate) fn on_ack(&mut self, path: PathId, ack: &AckSample, paths: &mut Paths) {
        self.of(path).on_ack(ack);
        self.opening.on_ack(ack);
        self.publish(path, paths);
    }

    pub(crate) fn on_loss(&mut self, path: PathId, now: Instant, paths: &mut Paths) {
        self.of(path).on_loss(now);
        self.publish(path, paths);
    }

    pub(crate) fn on_trimmed(
        &mut self,
        path: PathId,
        now: Instant,
        at: TrimmedAt,
        paths: &mut Paths,
    ) {
        self.of(path).on_trimmed(now, at);
        self.publish(path, paths);
    }

    pub(crate) fn on_timeout(&mut self, path: PathId, now: Instant, paths: &mut Paths) {
        self.of(path).on_timeout(now);
        self.publish(path, paths);
    }

    /// Returns the earliest deadline of the controllers.
    pub(crate) fn timer(&self) -> Option<Instant> {
        self.each.iter().filter_map(Congestion::timer).min()
    }

    /// Runs the controllers whose deadline has passed.
    pub(crate) fn on_timer(&mut self, now: Instant, paths: &mut Paths) {
        for path in (0..self.each.len())
            .map(|path| PathId(u16::try_from(path).expect("at most 4096 paths")))
        {
            let controller = &mut self.each[usize::from(path.0)];
            if controller.timer().is_some_and(|at| at <= now) {
                controller.on_timer(now);
                self.publish(path, paths);
            }
        }
    }

    #[inline]
    fn publish(&mut self, path: PathId, paths: &mut Paths) {
        if self.scope == Scope::Path {
            let window = self.each[usize::from(path.0)].window();
            let published = paths.set_window(path, window);
            self.sum = self.sum + u64::from(window) - u64::from(published);
        }
    }
}
