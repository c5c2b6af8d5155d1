//! Memory windows: bound by their owner, used by its peer, invalidated by either.

use core::ops::Range;

use weft_units::Rng;

use super::network::BASE;
use super::side::{Side, TARGET};
use crate::{Access, Bind, Device, Operation, Remote, WindowKind};

/// The state of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowState {
    /// The window is not bound.
    Idle,
    /// A request that binds or invalidates the window is posted.
    Changing,
    /// The window is bound.
    Bound,
}

#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) kind: WindowKind,
    pub(super) key: u32,
    /// The key before the last bind, which stays valid if that is not executed.
    pub(super) previous_key: u32,
    pub(super) state: WindowState,
    /// The range of memory to which it is bound.
    pub(super) range: Range<usize>,
    pub(super) access: Access,
    /// Number of requests of the peer through it.
    pub(super) users: usize,
}

/// The use of a window by a request. `Through` and `Invalidate` have the index of the peer's window, the others that of
/// an own window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Through(usize),
    Invalidate(usize),
    Bind(usize),
    Unbind(usize),
}

impl Window {
    pub(super) fn new(kind: WindowKind, key: u32) -> Self {
        let (state, range, access) = (WindowState::Idle, 0..0, Access::NONE);
        Self { kind, key, previous_key: key, state, range, access, users: 0 }
    }

    /// Returns `true` if peers have this right through it.
    pub(super) fn allows(&self, access: Access) -> bool {
        self.state == WindowState::Bound && self.access.contains(access)
    }

    /// Returns a location in it for peers.
    pub(super) fn remote(&self, offset: usize) -> Remote {
        let zero_based = self.access.contains(Access::ZERO_BASED);
        let start = if zero_based { self.range.start as u64 } else { 0 };
        let base = if zero_based { 0 } else { BASE };
        Remote { address: base + offset as u64 - start, rkey: self.key }
    }

    /// Returns a request that binds the window to another range.
    fn bind(&mut self, region: u32, rng: &mut Rng) -> Operation {
        // Aligned to words, so that atomics fit with either kind of address.
        let start = rng.index(TARGET.end / 16) * 8;
        let length = 1024 + rng.index((TARGET.end - start - 1024) / 8) * 8;
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let reads = Access::REMOTE_READ;
        self.access = [reads, reads | writes, writes][rng.index(3)];
        if rng.chance(1, 4) {
            self.access = self.access | Access::ZERO_BASED;
        }
        self.range = start..start + length;
        self.state = WindowState::Changing;
        let (address, length) = (BASE + start as u64, length as u64);
        let bind = Bind { region, address, length, access: self.access };
        let window = self.key;
        let key = match self.kind {
            WindowKind::Type1 => None,
            WindowKind::Type2 => Some(window & !0xff | rng.next_u32() & 0xff),
        };
        self.previous_key = window;
        self.key = key.unwrap_or_else(|| Device::next_window_key(window));
        Operation::BindWindow { window, key, bind }
    }
}

impl Side {
    /// Returns a request that changes one of its windows, drawn at random, if the window can be changed now.
    pub(super) fn change_window(&mut self, rng: &mut Rng) -> Option<(Operation, Use)> {
        let index = rng.index(self.windows.len());
        let region = self.end.key;
        let window = &mut self.windows[index];
        match (window.state, window.kind) {
            (WindowState::Idle, _) => Some((window.bind(region, rng), Use::Bind(index))),
            (WindowState::Bound, WindowKind::Type1) if window.users == 0 => {
                Some((window.bind(region, rng), Use::Bind(index)))
            }
            (WindowState::Bound, WindowKind::Type2) if window.users == 0 => {
                window.state = WindowState::Changing;
                Some((Operation::LocalInvalidate(window.key), Use::Unbind(index)))
            }
            _ => None,
        }
    }

    /// Draws one of its windows; returns its index if peers have this right through it.
    pub(super) fn open_window(&self, access: Access, rng: &mut Rng) -> Option<usize> {
        let index = rng.index(self.windows.len());
        self.windows[index].allows(access).then_some(index)
    }

    /// Returns the index of a window that its peer may invalidate, if any.
    pub(super) fn remotely_invalidated(&self) -> Option<usize> {
        self.windows.iter().position(|window| {
            window.kind == WindowKind::Type2 && window.state == WindowState::Bound
        })
    }
}
