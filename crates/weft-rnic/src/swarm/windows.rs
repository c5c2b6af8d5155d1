//! Memory windows: bound by their owner, used by its peer, taken away by either.

use core::ops::Range;

use weft_units::Rng;

use super::network::BASE;
use super::side::{Side, TARGET};
use crate::{Access, Bind, Device, Operation, Remote, WindowKind};

/// Where in its life a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It shows nothing.
    Idle,
    /// It is being bound, or taken away.
    Changing,
    Bound,
}

#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) kind: WindowKind,
    pub(super) key: u32,
    /// The key before: it stays where a bind is not carried out.
    pub(super) former: u32,
    pub(super) life: Life,
    /// What it shows.
    pub(super) range: Range<usize>,
    pub(super) access: Access,
    /// Requests of the peer that go through it.
    pub(super) users: usize,
}

/// What a request has to do with a window, by its index: of the peer, or of the own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Through(usize),
    Invalidate(usize),
    Bind(usize),
    Unbind(usize),
}

impl Window {
    pub(super) fn new(kind: WindowKind, key: u32) -> Self {
        let (life, range, access) = (Life::Idle, 0..0, Access::NONE);
        Self { kind, key, former: key, life, range, access, users: 0 }
    }

    /// Whether peers can go through it with this right.
    pub(super) fn allows(&self, access: Access) -> bool {
        self.life == Life::Bound && self.access.contains(access)
    }

    /// A place in it, as peers name it.
    pub(super) fn remote(&self, offset: usize) -> Remote {
        let zero_based = self.access.contains(Access::ZERO_BASED);
        let start = if zero_based { self.range.start as u64 } else { 0 };
        let base = if zero_based { 0 } else { BASE };
        Remote { address: base + offset as u64 - start, rkey: self.key }
    }

    /// A request that binds it to another range.
    fn bind(&mut self, region: u32, rng: &mut Rng) -> Operation {
        // Whole words, so that atomics fit as they are counted from either end.
        let start = rng.index(TARGET.end / 16) * 8;
        let length = 1024 + rng.index((TARGET.end - start - 1024) / 8) * 8;
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let reads = Access::REMOTE_READ;
        self.access = [reads, reads | writes, writes][rng.index(3)];
        if rng.chance(1, 4) {
            self.access = self.access | Access::ZERO_BASED;
        }
        self.range = start..start + length;
        self.life = Life::Changing;
        let (address, length) = (BASE + start as u64, length as u64);
        let bind = Bind { region, address, length, access: self.access };
        let window = self.key;
        let key = match self.kind {
            WindowKind::Type1 => None,
            WindowKind::Type2 => Some(window & !0xff | rng.next_u32() & 0xff),
        };
        self.former = window;
        self.key = key.unwrap_or_else(|| Device::next_window_key(window));
        Operation::BindWindow { window, key, bind }
    }
}

impl Side {
    /// What it does with its windows next, if anything can be done now.
    pub(super) fn change_window(&mut self, rng: &mut Rng) -> Option<(Operation, Use)> {
        let index = rng.index(self.windows.len());
        let region = self.end.key;
        let window = &mut self.windows[index];
        match (window.life, window.kind) {
            (Life::Idle, _) => Some((window.bind(region, rng), Use::Bind(index))),
            (Life::Bound, WindowKind::Type1) if window.users == 0 => {
                Some((window.bind(region, rng), Use::Bind(index)))
            }
            (Life::Bound, WindowKind::Type2) if window.users == 0 => {
                window.life = Life::Changing;
                Some((Operation::LocalInvalidate(window.key), Use::Unbind(index)))
            }
            _ => None,
        }
    }

    /// One of its windows that allows this.
    pub(super) fn open_window(&self, access: Access, rng: &mut Rng) -> Option<usize> {
        let index = rng.index(self.windows.len());
        self.windows[index].allows(access).then_some(index)
    }

    /// One that its peer may invalidate.
    pub(super) fn remotely_invalidated(&self) -> Option<usize> {
        self.windows
            .iter()
            .position(|window| window.kind == WindowKind::Type2 && window.life == Life::Bound)
    }
}
