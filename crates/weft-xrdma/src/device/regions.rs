//! The memory registered with a device, sorted by address: every message looks up regions, few are added or removed.

use weft_msg::Slice;
use weft_verbs_abi::ibv_mr;

use crate::memory::Mapping;

/// Registered memory.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) mapping: Mapping,
    pub(super) mr: *mut ibv_mr,
}

/// All registered memory, with its start addresses.
#[derive(Debug, Default)]
pub(super) struct Regions(Vec<(u64, Registered)>);

impl Regions {
    pub(super) fn insert(&mut self, registered: Registered) {
        let start = registered.mapping.start().expose_provenance() as u64;
        self.0.insert(self.end_of(start), (start, registered));
    }

    pub(super) fn remove(&mut self, start: u64) -> Option<Registered> {
        let index = self.0.binary_search_by_key(&start, |(start, _)| *start).ok()?;
        Some(self.0.remove(index).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.0.iter().map(|(_, registered)| registered)
    }

    /// # Panics
    /// If it is not registered.
    pub(super) fn bytes(&self, slice: Slice) -> &[u8] {
        let (start, registered) = &self.0[self.of(slice)];
        &registered.mapping.bytes()[within(*start, slice)]
    }

    /// # Panics
    /// If it is not registered.
    pub(super) fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let index = self.of(slice);
        let (start, registered) = &mut self.0[index];
        &mut registered.mapping.bytes_mut()[within(*start, slice)]
    }

    /// Returns the index of the region that contains a slice, if there is one.
    fn of(&self, slice: Slice) -> usize {
        self.end_of(slice.address).checked_sub(1).expect("registered memory")
    }

    /// Returns the number of regions that begin there or before.
    fn end_of(&self, address: u64) -> usize {
        self.0.partition_point(|(start, _)| *start <= address)
    }
}

/// Returns the offset of a slice in the region that begins at `start`.
fn within(start: u64, slice: Slice) -> core::ops::Range<usize> {
    let from = usize::try_from(slice.address - start).expect("within a region");
    from..from + slice.len as usize
}
