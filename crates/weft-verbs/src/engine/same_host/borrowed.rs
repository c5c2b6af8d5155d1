//! The regions of a neighbour that this process has mapped, by the numbers of their leases.

use std::cell::LazyCell;
use std::sync::Arc;

use weft_ring::leases::{Backing, Terms};
use weft_rnic::LeasedAccess;

use super::faults::Guard;
use super::mapped_access;
use super::mapping::Mapping;

/// A mapped region.
#[derive(Debug)]
pub(super) struct MappedRegion {
    number: u64,
    terms: Terms,
    mapping: Arc<Mapping>,
}

impl MappedRegion {
    /// Returns `true` if the calling thread may use the mapping.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.mapping.is_usable()
    }

    /// Copies a request's bytes to or from the region. Returns `false` if it is not inside, or if the memory was
    /// truncated: a part may have been copied then.
    #[inline]
    pub(super) fn execute(&self, request: &LeasedAccess<'_>) -> bool {
        let Terms { address, length, writable, .. } = self.terms;
        let Some(offset) = request.address.checked_sub(address) else { return false };
        let end = offset.checked_add(request.length.into());
        let fits = end.is_some_and(|end| end <= length) && (writable || !request.writes);
        let Some(offset) = usize::try_from(offset).ok().filter(|_| fits) else { return false };
        // SAFETY: the region is mapped from its first byte on, and the range is inside it; a fault is handled. The device
        // passes memory of this process that is registered.
        let copied = unsafe {
            let there = self.mapping.region().as_ptr().add(offset);
            mapped_access::execute(there, request)
        };
        copied && !self.mapping.is_broken()
    }

    /// Returns `true` if another lease's mapping is of the same memory.
    fn has_memory_of(&self, terms: &Terms) -> bool {
        let memory = |of: &Terms| (memory_of(of.backing), of.length, of.writable);
        memory(&self.terms) == memory(terms) && !self.mapping.is_broken()
    }
}

/// Returns what identifies memory, without the descriptor, which a lender may have several of.
const fn memory_of(backing: Backing) -> Backing {
    match backing {
        Backing::File { device, inode, offset, .. } => {
            Backing::File { descriptor: 0, device, inode, offset }
        }
        other => other,
    }
}

/// The mapped regions of a neighbour.
#[derive(Debug, Default)]
pub(super) struct MappedRegions(Vec<Option<MappedRegion>>);

/// Returns the index of a lease: its entry in the table.
#[inline]
fn index_of(number: u64) -> usize {
    usize::try_from(number & u64::from(u32::MAX)).expect("32 bits")
}

impl MappedRegions {
    /// Maps the region of a lease that the process with this ID granted. Returns `false` if that is impossible.
    pub(super) fn map(&mut self, pid: i32, number: u64, terms: &Terms) -> bool {
        let index = index_of(number);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        // The lease replaces the one that had this entry.
        let former = self.0[index].take();
        let same = former.iter().chain(self.0.iter().flatten());
        let same = same.into_iter().find(|region| region.has_memory_of(terms));
        let mapping = same
            .map(|region| region.mapping.clone())
            .or_else(|| Mapping::new(pid, terms).map(Arc::new));
        let Some(mapping) = mapping else { return false };
        self.0[index] = Some(MappedRegion { number, terms: *terms, mapping });
        true
    }

    /// Returns the region of a lease, if it is mapped.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&MappedRegion> {
        let region = self.0.get(index_of(number))?.as_ref();
        region.filter(|region| region.number == number)
    }

    /// Unmaps the regions whose leases are not valid any more, that broke, or whose faults the program handles now.
    pub(super) fn retain(&mut self, is_valid: impl Fn(u64) -> bool) {
        // One system call, and only if a mapping needs the handler.
        let handler = LazyCell::new(Guard::has_handler);
        for region in &mut self.0 {
            let stays = |of: &MappedRegion| {
                let is_safe = !of.mapping.is_guarded() || *handler && !of.mapping.is_broken();
                is_safe && is_valid(of.number)
            };
            region.take_if(|region| !stays(region));
        }
    }
}
