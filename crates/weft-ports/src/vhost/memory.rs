//! The memory that a guest shares, as the front end describes it.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};

use super::chain::{Descriptors, Segment, for_each_piece};
use super::fault::MemoryFault;
use super::file_kind::check_kind;
use super::log::DirtyLog;
use super::withdrawn::Watched;

/// The guest's memory, mapped here.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Before the mappings, so that none is watched when it is unmapped.
    regions: Vec<Region>,
    guest: GuestMemoryMmap,
    /// The log of written pages during a live migration.
    log: Option<Arc<DirtyLog>>,
}

/// A region and its addresses in the guest and in the front end.
#[derive(Debug)]
struct Region {
    guest: u64,
    user: u64,
    len: u64,
    /// Number of times that the front end has added it and not removed it.
    added: usize,
    watched: Watched,
}

/// The error of memory that is not shared, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing;

impl Memory {
    /// Maps all regions of a table, at most `max_regions`.
    pub(super) fn map(
        table: Vec<(VhostUserMemoryRegion, File)>,
        max_regions: usize,
    ) -> Result<Self, MemoryFault> {
        let mut memory = Self::default();
        for (region, file) in table {
            memory.add(&region, file, max_regions)?;
        }
        Ok(memory)
    }

    /// Maps one more region, unless there are `max_regions` already. QEMU 7.2 adds and removes a region once for each pair
    /// of queues; one that is there already is mapped again.
    pub(super) fn add(
        &mut self,
        region: &VhostUserMemoryRegion,
        file: File,
        max_regions: usize,
    ) -> Result<(), MemoryFault> {
        let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        let same = self.position(region);
        if same.is_none() && self.regions.len() >= max_regions {
            return Err(MemoryFault::TooMany(max_regions));
        }
        check_kind(&file)?;
        let size = file.metadata().map_err(MemoryFault::File)?.len();
        let end = region.mmap_offset.checked_add(len);
        let fits = len > 0
            && guest.checked_add(len).is_some()
            && user.checked_add(len).is_some()
            && end.is_some_and(|end| end <= size);
        if !fits {
            return Err(MemoryFault::OutsideFile { len, offset: region.mmap_offset, size });
        }
        let mapping = region.mmap_region::<()>(file).map_err(MemoryFault::Map)?;
        let watched = Watched::new(mapping.as_ptr() as usize, mapping.size());
        let mapped =
            GuestRegionMmap::new(mapping, GuestAddress(guest)).ok_or(MemoryFault::Overflow)?;
        let mut added = 1;
        if let Some(at) = same {
            added += self.regions.remove(at).added;
            (self.guest, _) = self.guest.remove_region(GuestAddress(guest), len)?;
        }
        self.guest = self.guest.insert_region(Arc::new(mapped))?;
        self.regions.push(Region { guest, user, len, added, watched });
        Ok(())
    }

    /// Returns the index of a region with the same addresses and length.
    fn position(&self, region: &VhostUserMemoryRegion) -> Option<usize> {
        let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        let same = |one: &Region| (one.guest, one.user, one.len) == (guest, user, len);
        self.regions.iter().position(same)
    }

    /// Unmaps a region, if it has been removed as often as it was added.
    pub(super) fn remove(&mut self, region: &VhostUserMemoryRegion) -> Result<(), MemoryFault> {
        let at = self.position(region).ok_or(MemoryFault::NoRegion)?;
        self.regions[at].added -= 1;
        if self.regions[at].added == 0 {
            let Region { guest, len, .. } = self.regions.remove(at);
            (self.guest, _) = self.guest.remove_region(GuestAddress(guest), len)?;
        }
        Ok(())
    }

    /// Sets the log of written pages; `None` if none is kept.
    pub(super) fn set_log(&mut self, log: Option<&Arc<DirtyLog>>) {
        self.log = log.cloned();
    }

    /// Records a write that did not pass through this module.
    #[inline]
    pub(super) fn log_write(&self, address: u64, len: u64) {
        if let Some(log) = &self.log {
            log.mark(address, len);
        }
    }

    /// Returns the number of regions.
    pub(super) fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Returns `true` if the front end has truncated the file of a region since it was mapped.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.regions.iter().any(|region| region.watched.is_withdrawn())
            || self.log.as_ref().is_some_and(|log| log.is_withdrawn())
    }

    /// Returns the guest-physical address of a front end's address.
    pub(super) fn guest_address(&self, user: u64) -> Option<u64> {
        let holds = |region: &&Region| user >= region.user && user - region.user < region.len;
        self.regions.iter().find(holds).map(|region| user - region.user + region.guest)
    }

    /// Returns the memory for virtio-queue.
    pub(super) fn guest(&self) -> &GuestMemoryMmap {
        &self.guest
    }

    pub(super) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Missing> {
        if let Some(slice) = self.slice(address, out.len()) {
            slice.copy_to(out);
            return Ok(());
        }
        self.guest.read_slice(out, GuestAddress(address)).map_err(|_| Missing)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Missing> {
        let written = match self.slice(address, bytes.len()) {
            Some(slice) => {
                slice.copy_from(bytes);
                Ok(())
            }
            None => self.guest.write_slice(bytes, GuestAddress(address)).map_err(|_| Missing),
        };
        self.log_write(address, bytes.len() as u64);
        written
    }

    /// Returns the bytes if they lie within one region. Nearly all do, and this is faster than the
    /// iterator over several.
    fn slice(&self, address: u64, len: usize) -> Option<vm_memory::VolatileSlice<'_>> {
        let region = self.guest.find_region(GuestAddress(address))?;
        region.get_slice(region.to_region_addr(GuestAddress(address))?, len).ok()
    }

    /// Returns the two bytes at an aligned address, as the guest last wrote them.
    pub(super) fn load(&self, address: u64, order: Ordering) -> Result<u16, Missing> {
        let slice = self.slice(address, 2).ok_or(Missing)?;
        slice.load::<u16>(0, order).map(u16::from_le).map_err(|_| Missing)
    }

    pub(super) fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Missing> {
        let slice = self.slice(address, 2).ok_or(Missing)?;
        let stored = slice.store(value.to_le(), 0, order).map_err(|_| Missing);
        self.log_write(address, 2);
        stored
    }

    /// Copies from a buffer of several pieces; missing bytes are zero.
    pub(super) fn gather(
        &self,
        segments: &[Segment],
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), Missing> {
        let copied = for_each_piece(segments, offset, out.len(), |address, range| {
            self.read(address, &mut out[range])
        });
        if copied.is_err() {
            out.fill(0);
        }
        copied
    }

    /// Copies to a buffer of several pieces.
    pub(super) fn scatter(
        &self,
        segments: &[Segment],
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Missing> {
        for_each_piece(segments, offset, bytes.len(), |address, range| {
            self.write(address, &bytes[range])
        })
    }
}

impl Descriptors for Memory {
    fn descriptor(&self, address: u64) -> Option<[u8; 16]> {
        let mut bytes = [0; 16];
        self.read(address, &mut bytes).ok().map(|()| bytes)
    }

    fn holds(&self, address: u64, len: u32) -> bool {
        let len = len as usize;
        self.slice(address, len).is_some() || self.guest.check_range(GuestAddress(address), len)
    }
}
