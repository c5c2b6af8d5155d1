//! A guest's two address translations: for its processors through the MMU's table (EPT), and for devices through the
//! IOMMU's. This is the hypervisor's copy of both, and the placement of doorbells for which the two never contradict each
//! other (STELLAR, section 5, figure 5).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::pvdma::{BLOCK_BYTES, Block, Pinning};

/// Bytes of a page, the size of a doorbell.
pub const PAGE_BYTES: u64 = 4096;

/// The guest address of the I/O region: above the largest possible guest memory (48 bits), so no block of memory contains a
/// page of it.
const IO_REGION: u64 = 1 << 48;

/// Number of pages in a block.
const PAGES: usize = (BLOCK_BYTES / PAGE_BYTES) as usize;

/// The number of a doorbell page of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Doorbell(pub u32);

/// The target of a page of guest addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Memory: the guest's page number.
    Memory(u64),
    /// A register of the device.
    Doorbell(Doorbell),
}

/// The placement of doorbells in a guest's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellSpace {
    /// Over a page of memory that the guest offers, as in designs before STELLAR. The block around that page is then
    /// memory for PVDMA and a register for the MMU; `tests/pvdma.rs` shows the resulting fault.
    AmongMemory,
    /// In a region of its own (virtio's shared memory region), which no block of memory overlaps.
    IoRegion,
}

/// The error of mapping a page or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The address is not in the guest's memory.
    #[error("the guest has no memory there")]
    NotMemory,
    /// The page has a doorbell, or the doorbell is already mapped.
    #[error("a doorbell is mapped there, or elsewhere")]
    Mapped,
}

/// The two translation tables of a guest.
#[derive(Debug)]
pub struct GuestSpace {
    memory_bytes: u64,
    space: DoorbellSpace,
    /// Doorbells by page. All other pages of its memory are memory.
    mmu: BTreeMap<u64, Doorbell>,
    /// The contents of blocks at the time of pinning, which devices use.
    iommu: BTreeMap<Block, Box<[Meaning; PAGES]>>,
    /// Doorbells that devices may ring, by page.
    rung_by_devices: BTreeMap<u64, Doorbell>,
}

impl GuestSpace {
    /// Returns the tables of a guest with `memory_bytes` of memory from address zero, and no doorbells.
    ///
    /// # Panics
    /// If the memory exceeds 2^48 bytes.
    pub const fn new(memory_bytes: u64, space: DoorbellSpace) -> Self {
        assert!(memory_bytes <= IO_REGION, "48 bits of memory at most");
        Self {
            memory_bytes,
            space,
            mmu: BTreeMap::new(),
            iommu: BTreeMap::new(),
            rung_by_devices: BTreeMap::new(),
        }
    }

    /// Maps a doorbell for the guest's processors; returns its guest address. `offered` is a page of memory that the guest gives
    /// up, used only with [`DoorbellSpace::AmongMemory`].
    ///
    /// # Errors
    /// The page is not in the guest's memory, or a doorbell is mapped.
    pub fn map_doorbell(&mut self, doorbell: Doorbell, offered: u64) -> Result<u64, MapError> {
        let address = match self.space {
            DoorbellSpace::AmongMemory if offered >= self.memory_bytes => {
                return Err(MapError::NotMemory);
            }
            DoorbellSpace::AmongMemory => offered / PAGE_BYTES * PAGE_BYTES,
            DoorbellSpace::IoRegion => IO_REGION + u64::from(doorbell.0) * PAGE_BYTES,
        };
        let page = address / PAGE_BYTES;
        if self.mmu.contains_key(&page) || self.mmu.values().any(|&other| other == doorbell) {
            return Err(MapError::Mapped);
        }
        self.mmu.insert(page, doorbell);
        Ok(address)
    }

    /// Unmaps a doorbell; a page that the guest offered for it is memory again.
    pub fn unmap_doorbell(&mut self, doorbell: Doorbell) {
        self.mmu.retain(|_, other| *other != doorbell);
        self.rung_by_devices.retain(|_, other| *other != doorbell);
    }

    /// Maps a doorbell of the I/O region for devices too, so that a GPU can post work itself (GPUDirect Async).
    ///
    /// # Errors
    /// The address is not that of a doorbell in the I/O region.
    pub fn map_doorbell_for_devices(&mut self, address: u64) -> Result<(), MapError> {
        let page = address / PAGE_BYTES;
        let doorbell = self.mmu.get(&page).filter(|_| address >= IO_REGION);
        self.rung_by_devices.insert(page, *doorbell.ok_or(MapError::NotMemory)?);
        Ok(())
    }

    /// Returns the target of an address for the guest's processors; `None` is a fault.
    pub fn to_processors(&self, address: u64) -> Option<Meaning> {
        let page = address / PAGE_BYTES;
        let memory = (address < self.memory_bytes).then_some(Meaning::Memory(page));
        self.mmu.get(&page).map(|&doorbell| Meaning::Doorbell(doorbell)).or(memory)
    }

    /// Returns the target of an address for devices; `None` is a fault.
    pub fn to_devices(&self, address: u64) -> Option<Meaning> {
        let page = address / PAGE_BYTES;
        if let Some(&doorbell) = self.rung_by_devices.get(&page) {
            return Some(Meaning::Doorbell(doorbell));
        }
        let block = self.iommu.get(&Block::of(address))?;
        match block[usize::try_from(page % PAGES as u64).expect("a page of a block")] {
            // The last block may extend past the end of the memory.
            Meaning::Memory(_) if address >= self.memory_bytes => None,
            meaning => Some(meaning),
        }
    }
}

impl Pinning for GuestSpace {
    type Error = MapError;

    fn pin(&mut self, block: Block) -> Result<(), MapError> {
        if block.0 >= self.memory_bytes.div_ceil(BLOCK_BYTES) {
            return Err(MapError::NotMemory);
        }
        let first = block.address() / PAGE_BYTES;
        // The hypervisor pins the current target of each page, which is a register where a doorbell is mapped.
        let meaning = |page: u64| match self.mmu.get(&page) {
            Some(&doorbell) => Meaning::Doorbell(doorbell),
            None => Meaning::Memory(page),
        };
        let pages = core::array::from_fn(|index| meaning(first + index as u64));
        self.iommu.insert(block, Box::new(pages));
        Ok(())
    }

    fn unpin(&mut self, block: Block) {
        self.iommu.remove(&block);
    }
}
