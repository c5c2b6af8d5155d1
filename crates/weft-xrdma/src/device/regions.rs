//! The memory registered with a device, sorted by address: every message looks up regions, which change rarely.

use core::cell::Cell;

use weft_msg::Slice;
use weft_verbs_abi::ibv_mr;

use crate::memory::Mapping;

/// Registered memory.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) mapping: Mapping,
    pub(super) mr: *mut ibv_mr,
}

/// All registered memory.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Regions with their start addresses.
    sorted: Vec<(u64, Registered)>,
    /// The index of the region that was used last.
    last: Cell<usize>,
}

impl Regions {
    pub(super) fn insert(&mut self, registered: Registered) {
        let start = registered.mapping.start().expose_provenance() as u64;
        self.sorted.insert(self.count_up_to(start), (start, registered));
    }

    pub(super) fn remove(&mut self, start: u64) -> Option<Registered> {
        let index = self.sorted.binary_search_by_key(&start, |(start, _)| *start).ok()?;
        Some(self.sorted.remove(index).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.sorted.iter().map(|(_, registered)| registered)
    }

    /// Returns the bytes of a slice.
    ///
    /// # Panics
    /// If the slice is not in registered memory.
    #[inline(always)]
    pub(super) fn bytes(&self, slice: Slice) -> &[u8] {
        let (start, registered) = &self.sorted[self.index_of(slice)];
        &registered.mapping.bytes()[within(*start, slice)]
    }

    /// Returns the bytes of a slice for writing.
    ///
    /// # Panics
    /// If the slice is not in registered memory.
    #[inline(always)]
    pub(super) fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let index = self.index_of(slice);
        let (start, registered) = &mut self.sorted[index];
        &mut registered.mapping.bytes_mut()[within(*start, slice)]
    }

    /// Returns the index of the region with the highest start that is not above a slice's.
    ///
    /// # Panics
    /// If all regions begin above it.
    #[inline(always)]
    fn index_of(&self, slice: Slice) -> usize {
        let last = self.last.get();
        let is_in = |(start, registered): &(u64, Registered)| {
            slice.address.wrapping_sub(*start) < registered.mapping.bytes().len() as u64
        };
        if self.sorted.get(last).is_some_and(is_in) { last } else { self.find(slice) }
    }

    fn find(&self, slice: Slice) -> usize {
        let index = self.count_up_to(slice.address).checked_sub(1).expect("registered memory");
        self.last.set(index);
        index
    }

    /// Returns the number of regions that begin there or before.
    fn count_up_to(&self, address: u64) -> usize {
        self.sorted.partition_point(|(start, _)| *start <= address)
    }
}

/// Returns the range of a slice in the region that begins at `start`.
#[inline]
fn within(start: u64, slice: Slice) -> core::ops::Range<usize> {
    let from = usize::try_from(slice.address - start).expect("within a region");
    from..from + slice.len as usize
}
