//! The extended memory translation table (STELLAR, section 6): maps a key and an address to an owner and an address in its
//! memory. Every memory access of every packet, local or remote, is checked by [`Emtt::translate`].

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use weft_transport::Secret;

use super::{Access, Owner, Place};
use crate::ProtectionDomain;
use crate::numbers::Numbers;

#[cfg(test)]
mod proofs;
mod windows;

use windows::Window;
pub(crate) use windows::next_window_key;
pub use windows::{Bind, WindowKind};

/// Lengths of the two parts of a key: 24 bits of index and 8 of key (IBTA volume 1, chapter 10).
const KEY_BITS: u32 = 8;
const INDEX_BITS: u32 = 24;

/// The usable indices. Index zero is reserved, so that no key is below 256.
const INDICES: RangeInclusive<u32> = 1..=(1 << INDEX_BITS) - 1;

/// Returns the index part of a key, which finds its entry. Binding a window changes the other part.
const fn index_of(key: u32) -> u32 {
    key >> KEY_BITS
}

/// A memory region to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRequest {
    /// The owner of the memory.
    pub owner: Owner,
    /// The address of the first byte in the owner's memory.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
    /// The address of the first byte in work requests, usually `address`; ignored for zero-based regions.
    pub iova: u64,
    /// The access rights.
    pub access: Access,
}

/// The purpose of a memory access, which determines the required right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The device reads for the owning process.
    LocalRead,
    /// The device writes for the owning process.
    LocalWrite,
    /// A peer writes.
    RemoteWrite,
    /// A peer reads.
    RemoteRead,
    /// A peer executes an atomic operation.
    RemoteAtomic,
}

impl Right {
    const fn access(self) -> Access {
        match self {
            Self::LocalRead => Access::NONE,
            Self::LocalWrite => Access::LOCAL_WRITE,
            Self::RemoteWrite => Access::REMOTE_WRITE,
            Self::RemoteRead => Access::REMOTE_READ,
            Self::RemoteAtomic => Access::REMOTE_ATOMIC,
        }
    }

    const fn is_remote(self) -> bool {
        !matches!(self, Self::LocalRead | Self::LocalWrite)
    }
}

/// The error of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The key does not exist, or no longer exists.
    #[error("no such key")]
    BadKey,
    /// The key belongs to another protection domain.
    #[error("another protection domain's key")]
    WrongDomain,
    /// The key belongs to a type 2 window that is bound on another queue pair.
    #[error("another queue pair's window")]
    WrongQueuePair,
    /// The range is not completely inside the region or window.
    #[error("outside the region")]
    OutOfBounds,
    /// The access rights do not allow the access.
    #[error("not allowed")]
    NotAllowed,
    /// The window is already bound, or has the wrong type.
    #[error("the window cannot be bound so")]
    BadBind,
}

/// The initiator of a memory access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub(crate) domain: ProtectionDomain,
    pub(crate) qp: u32,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    domain: ProtectionDomain,
    owner: Owner,
    address: u64,
    iova: u64,
    length: u64,
    access: Access,
    /// Number of windows that are bound to the region.
    windows: u32,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Free,
    Region(Region),
    Window(Window),
}

/// The keys of one device.
#[derive(Debug)]
pub(crate) struct Emtt {
    /// Entries with their keys.
    entries: Vec<(u32, Entry)>,
    /// Maps indices to entries.
    indices: Numbers,
    /// Determines the first key byte of an index.
    bytes: Secret,
    free: Vec<usize>,
    limit: usize,
    /// Number of times that a key was removed or changed its region.
    changes: u32,
}

/// Returns the offset of `address..address + len` in `start..start + length`; `None` if it is not completely inside.
#[inline]
const fn offset_within(address: u64, len: u64, start: u64, length: u64) -> Option<u64> {
    let Some(offset) = address.checked_sub(start) else { return None };
    match offset.checked_add(len) {
        Some(end) if end <= length => Some(offset),
        _ => None,
    }
}

impl Emtt {
    /// Returns a table for at most `limit` keys, which are derived from a secret.
    pub(crate) fn new(limit: u32, secret: &Secret) -> Self {
        Self {
            entries: Vec::new(),
            indices: Numbers::new(secret.child("indices"), INDEX_BITS, INDICES),
            bytes: secret.child("bytes"),
            free: Vec::new(),
            limit: limit as usize,
            changes: 0,
        }
    }

    /// Adds an entry; returns its key, or `None` at the limit.
    fn insert(&mut self, entry: Entry) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.entries.len() >= self.limit => return None,
            None => {
                self.entries.push((0, Entry::Free));
                self.entries.len() - 1
            }
        };
        let index = self.indices.assign(u32::try_from(slot).expect("keys have 24 bits of index"));
        let key = index << KEY_BITS | self.bytes.shuffle(KEY_BITS, index, 0);
        self.entries[slot] = (key, entry);
        Some(key)
    }

    /// Returns the slot of the entry with the index of `key`; the entry's key may differ.
    #[inline]
    fn slot_of(&self, key: u32) -> Option<usize> {
        self.indices.find(index_of(key)).map(|slot| slot as usize)
    }

    #[inline]
    fn find(&self, key: u32) -> Result<&Entry, AccessError> {
        match self.slot_of(key).map(|slot| &self.entries[slot]) {
            Some((current, entry)) if *current == key => Ok(entry),
            _ => Err(AccessError::BadKey),
        }
    }

    fn region(&self, key: u32) -> Option<&Region> {
        match self.find(key) {
            Ok(Entry::Region(region)) => Some(region),
            _ => None,
        }
    }

    fn window(&self, key: u32) -> Option<&Window> {
        match self.find(key) {
            Ok(Entry::Window(window)) => Some(window),
            _ => None,
        }
    }

    fn window_mut(&mut self, slot: usize) -> &mut Window {
        match &mut self.entries[slot].1 {
            Entry::Window(window) => window,
            _ => unreachable!("the caller found a window there"),
        }
    }

    fn remove(&mut self, key: u32) {
        let slot = self.slot_of(key).expect("the caller found it");
        self.changes = self.changes.wrapping_add(1);
        self.entries[slot].1 = Entry::Free;
        self.indices.remove(index_of(key));
        self.free.push(slot);
    }

    /// Registers memory whose bounds the caller has checked; returns `None` at the limit.
    pub(crate) fn register(
        &mut self,
        domain: ProtectionDomain,
        request: &RegionRequest,
    ) -> Option<u32> {
        self.insert(Entry::Region(Region::new(domain, request)))
    }

    /// Replaces the region with this key; the key stays the same.
    pub(crate) fn change(&mut self, key: u32, domain: ProtectionDomain, request: &RegionRequest) {
        let region = Region::new(domain, request);
        self.changes = self.changes.wrapping_add(1);
        let slot = self.slot_of(key).expect("the caller found it");
        self.entries[slot].1 = Entry::Region(region);
    }

    /// Returns the keys of the windows in these domains.
    pub(crate) fn windows_of(&self, domains: &[ProtectionDomain]) -> Vec<u32> {
        self.keys(
            |entry| matches!(entry, Entry::Window(window) if domains.contains(&window.domain)),
        )
    }

    /// Returns the keys of the regions in these domains.
    pub(crate) fn regions_of(&self, domains: &[ProtectionDomain]) -> Vec<u32> {
        self.keys(
            |entry| matches!(entry, Entry::Region(region) if domains.contains(&region.domain)),
        )
    }

    fn keys(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<u32> {
        self.entries.iter().filter(|(_, entry)| wanted(entry)).map(|(key, _)| *key).collect()
    }

    /// Returns the request that would register the region with this key as it is now.
    pub(crate) fn request(&self, key: u32) -> Option<RegionRequest> {
        let Region { owner, address, length, iova, access, .. } = *self.region(key)?;
        Some(RegionRequest { owner, address, length, iova, access })
    }

    /// Returns the number of times that a key was removed or changed its region. A cached translation is stale if it
    /// differs.
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// Returns the first address of a region in work requests, and its memory, if the accessor is in its domain.
    pub(crate) fn region_in_domain(
        &self,
        accessor: Accessor,
        key: u32,
    ) -> Option<(u64, RegionRequest)> {
        let region = self.region(key).filter(|region| region.domain == accessor.domain)?;
        Some((region.iova, self.request(key)?))
    }

    /// Returns the domain of a region, and the number of windows that are bound to it.
    pub(crate) fn region_use(&self, key: u32) -> Option<(ProtectionDomain, u32)> {
        self.region(key).map(|region| (region.domain, region.windows))
    }

    /// Returns the domain of a region or a window.
    pub(crate) fn domain_of(&self, key: u32) -> Option<ProtectionDomain> {
        match self.find(key) {
            Ok(Entry::Region(region)) => Some(region.domain),
            Ok(Entry::Window(window)) => Some(window.domain),
            _ => None,
        }
    }

    /// Returns the domain of a window.
    pub(crate) fn window_domain(&self, key: u32) -> Option<ProtectionDomain> {
        self.window(key).map(|window| window.domain)
    }

    /// Removes a region.
    ///
    /// # Panics
    /// If there is no region with this key, or a window is bound to it.
    pub(crate) fn deregister(&mut self, key: u32) {
        assert_eq!(
            self.region_use(key).map(|region| region.1),
            Some(0),
            "a region without windows"
        );
        self.remove(key);
    }

    /// Translates `len` bytes at `address` to the owner's memory, after it has checked key, domain, bounds and right.
    ///
    /// # Errors
    /// See [`AccessError`].
    #[inline]
    pub(crate) fn translate(
        &self,
        accessor: Accessor,
        key: u32,
        address: u64,
        len: u32,
        right: Right,
    ) -> Result<Place, AccessError> {
        match self.find(key)? {
            Entry::Region(region) => {
                let needed = right.access();
                region.translate(accessor, address, len, region.access.contains(needed))
            }
            Entry::Window(window) if right.is_remote() => {
                self.translate_window(window, accessor, address, len, right)
            }
            _ => Err(AccessError::BadKey),
        }
    }

    /// Returns `true` if messages through this key may become visible out of order.
    pub(crate) fn is_relaxed(&self, key: u32) -> bool {
        let region = match self.find(key) {
            Ok(Entry::Region(region)) => region,
            Ok(Entry::Window(Window { bound: Some(bound), .. })) => {
                let Entry::Region(region) = &self.entries[bound.region].1 else { return false };
                region
            }
            _ => return false,
        };
        region.access.contains(Access::RELAXED_ORDERING)
    }
}

impl Region {
    const fn new(domain: ProtectionDomain, request: &RegionRequest) -> Self {
        let RegionRequest { owner, address, length, access, .. } = *request;
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { request.iova };
        Self { domain, owner, address, iova, length, access, windows: 0 }
    }

    #[inline]
    fn translate(
        &self,
        accessor: Accessor,
        address: u64,
        len: u32,
        allowed: bool,
    ) -> Result<Place, AccessError> {
        if self.domain != accessor.domain {
            return Err(AccessError::WrongDomain);
        }
        let offset = offset_within(address, len.into(), self.iova, self.length)
            .ok_or(AccessError::OutOfBounds)?;
        if !allowed {
            return Err(AccessError::NotAllowed);
        }
        Ok(Place { owner: self.owner, address: self.address + offset, len })
    }
}
