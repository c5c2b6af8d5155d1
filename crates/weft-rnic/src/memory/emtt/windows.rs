//! Memory windows: parts of regions that are opened to peers and closed again without registration.

use super::{AccessError, Accessor, Emtt, Entry, Right, index_of, offset_within};
use crate::ProtectionDomain;
use crate::memory::{Access, Place};

/// The type of a memory window (IBTA volume 1, chapter 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WindowKind {
    /// Bound by a command, which assigns the key; valid for every queue pair of its domain.
    Type1,
    /// Bound by a work request, which names the key; valid for the queue pair on which it was bound.
    Type2,
}

/// The memory to which a window is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bind {
    /// The region's key.
    pub region: u32,
    /// The first address of the window, as an address of the region.
    pub address: u64,
    /// The length in bytes; zero unbinds a window of type 1.
    pub length: u64,
    /// The rights of peers; addresses in a zero-based window are offsets from its start.
    pub access: Access,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) domain: ProtectionDomain,
    kind: WindowKind,
    pub(super) bound: Option<Bound>,
}

/// The binding of a window. The region outlives it: it cannot be deregistered while windows are bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) region: usize,
    /// The first address of the window, as an address of the region.
    address: u64,
    length: u64,
    access: Access,
    /// The queue pair on which a window of type 2 is bound.
    qp: Option<u32>,
}

/// Returns the key of a window of type 1 after its next bind.
pub(crate) fn next_window_key(key: u32) -> u32 {
    key & !0xff | u32::from(key.to_le_bytes()[0].wrapping_add(1))
}

impl Emtt {
    /// Creates an unbound window; returns its key, or `None` at the limit.
    pub(crate) fn allocate_window(
        &mut self,
        domain: ProtectionDomain,
        kind: WindowKind,
    ) -> Option<u32> {
        self.insert(Entry::Window(Window { domain, kind, bound: None }))
    }

    /// Removes a window, bound or not.
    pub(crate) fn deallocate_window(&mut self, key: u32) {
        self.unbind(self.slot_of(key).expect("the caller found it"));
        self.remove(key);
    }

    fn unbind(&mut self, slot: usize) {
        let Some(bound) = self.window_mut(slot).bound.take() else { return };
        if let Entry::Region(region) = &mut self.entries[bound.region].1 {
            region.windows -= 1;
        }
    }

    /// Binds the window with the current key `window`; returns its new key. For type 2 the caller chooses the low byte of the
    /// new key, for type 1 the byte is incremented.
    ///
    /// # Errors
    /// See [`AccessError`]; the window is unchanged.
    pub(crate) fn bind(
        &mut self,
        accessor: Accessor,
        window: u32,
        new_key: Option<u32>,
        bind: &Bind,
    ) -> Result<u32, AccessError> {
        let slot = self.slot_of(window).ok_or(AccessError::BadKey)?;
        let Window { domain, kind, bound } = *self.window(window).ok_or(AccessError::BadKey)?;
        if domain != accessor.domain {
            return Err(AccessError::WrongDomain);
        }
        let new_key = match (kind, new_key) {
            (WindowKind::Type1, None) => next_window_key(window),
            (WindowKind::Type2, Some(key))
                if index_of(key) == index_of(window) && bound.is_none() =>
            {
                key
            }
            _ => return Err(AccessError::BadBind),
        };
        let unbinds = kind == WindowKind::Type1 && bind.length == 0;
        let target = if unbinds { None } else { Some(self.bound(accessor, kind, bind)?) };
        self.unbind(slot);
        if let Some(Bound { region, .. }) = target
            && let Entry::Region(region) = &mut self.entries[region].1
        {
            region.windows += 1;
        }
        self.window_mut(slot).bound = target;
        self.entries[slot].0 = new_key;
        Ok(new_key)
    }

    /// Checks a bind; returns the binding.
    fn bound(
        &self,
        accessor: Accessor,
        kind: WindowKind,
        bind: &Bind,
    ) -> Result<Bound, AccessError> {
        let region = self.region(bind.region).ok_or(AccessError::BadKey)?;
        if region.domain != accessor.domain {
            return Err(AccessError::WrongDomain);
        }
        offset_within(bind.address, bind.length, region.iova, region.length)
            .ok_or(AccessError::OutOfBounds)?;
        let writes = bind.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let writable = region.access.contains(Access::LOCAL_WRITE);
        if !region.access.contains(Access::MW_BIND) || writes && !writable {
            return Err(AccessError::NotAllowed);
        }
        Ok(Bound {
            region: self.slot_of(bind.region).ok_or(AccessError::BadKey)?,
            address: bind.address,
            length: bind.length,
            access: bind.access,
            qp: (kind == WindowKind::Type2).then_some(accessor.qp),
        })
    }

    /// Unbinds a window of type 2: its key is invalid until it is bound again.
    ///
    /// # Errors
    /// The key is not that of a bound window of type 2 on this queue pair.
    pub(crate) fn invalidate(&mut self, accessor: Accessor, key: u32) -> Result<(), AccessError> {
        let window = self.window(key).ok_or(AccessError::BadKey)?;
        if window.domain != accessor.domain {
            return Err(AccessError::WrongDomain);
        }
        let bound = window.bound.ok_or(AccessError::BadKey)?;
        match bound.qp {
            None => Err(AccessError::NotAllowed),
            Some(qp) if qp != accessor.qp => Err(AccessError::WrongQueuePair),
            Some(_) => {
                self.unbind(self.slot_of(key).ok_or(AccessError::BadKey)?);
                Ok(())
            }
        }
    }

    pub(super) fn translate_window(
        &self,
        window: &Window,
        accessor: Accessor,
        address: u64,
        len: u32,
        right: Right,
    ) -> Result<Place, AccessError> {
        let bound = window.bound.ok_or(AccessError::BadKey)?;
        if bound.qp.is_some_and(|qp| qp != accessor.qp) {
            return Err(AccessError::WrongQueuePair);
        }
        let start = if bound.access.contains(Access::ZERO_BASED) { 0 } else { bound.address };
        let offset = offset_within(address, len.into(), start, bound.length)
            .ok_or(AccessError::OutOfBounds)?;
        let Entry::Region(region) = &self.entries[bound.region].1 else {
            return Err(AccessError::BadKey);
        };
        let allowed = bound.access.contains(right.access());
        region.translate(accessor, bound.address + offset, len, allowed)
    }
}
