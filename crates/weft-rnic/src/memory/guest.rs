//! What a guest's addresses mean: to its processors, through the MMU's table (EPT), and to devices,
//! through the IOMMU's. The hypervisor's book-keeping of both, and where a doorbell goes so that the two
//! never contradict each other (STELLAR, section 5, figure 5).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::pvdma::{BLOCK_BYTES, Block, Pinning};

/// Bytes of a page, which is what a doorbell takes.
pub const PAGE_BYTES: u64 = 4096;

/// Where the I/O region begins, as the guest counts: above what a guest can have of memory (48 bits), so
/// no block of memory has a page of it.
const IO_REGION: u64 = 1 << 48;

const PAGES: usize = (BLOCK_BYTES / PAGE_BYTES) as usize;

/// Names a doorbell page of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Doorbell(pub u32);

/// What a page of a guest's addresses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Its memory: page number, as the guest counts.
    Memory(u64),
    /// A register of the device.
    Doorbell(Doorbell),
}

/// Where doorbells go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellSpace {
    /// Over a page of the guest's memory that it offers, as solutions before STELLAR have it. The block
    /// around that page is then memory to PVDMA and a register to the MMU; it is here for the test that
    /// shows what comes of it.
    AmongMemory,
    /// In a region of its own (virtio's shared memory region), which no block of memory touches.
    IoRegion,
}

/// Why a page or block cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// It is not in the guest's memory.
    #[error("the guest has no memory there")]
    NotMemory,
    /// A doorbell is there, or this one is mapped already.
    #[error("a doorbell is mapped there, or elsewhere")]
    Mapped,
}

/// A guest's two tables.
#[derive(Debug)]
pub struct GuestSpace {
    memory_bytes: u64,
    space: DoorbellSpace,
    /// Where doorbells are, by page. All other pages of its memory are memory.
    mmu: BTreeMap<u64, Doorbell>,
    /// Blocks as they were when they were entered: devices go by these.
    iommu: BTreeMap<Block, Box<[Meaning; PAGES]>>,
    /// Doorbells that devices may ring.
    rung_by_devices: BTreeMap<u64, Doorbell>,
}

impl GuestSpace {
    /// A guest with so much memory, from address zero on, and no doorbells.
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

    /// Lets the guest reach a doorbell; gives its address. `offered` is a page of memory that the guest
    /// does without, which is only used where doorbells go among memory.
    ///
    /// # Errors
    /// There is no such memory, or a doorbell is there.
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

    /// The guest reaches a doorbell no longer; a page it offered is memory again.
    pub fn unmap_doorbell(&mut self, doorbell: Doorbell) {
        self.mmu.retain(|_, other| *other != doorbell);
        self.rung_by_devices.retain(|_, other| *other != doorbell);
    }

    /// Lets devices ring a doorbell of the I/O region too (GPUDirect Async): a GPU then posts work itself.
    ///
    /// # Errors
    /// No doorbell is at that address of the region.
    pub fn let_devices_ring(&mut self, address: u64) -> Result<(), MapError> {
        let page = address / PAGE_BYTES;
        let doorbell = self.mmu.get(&page).filter(|_| address >= IO_REGION);
        self.rung_by_devices.insert(page, *doorbell.ok_or(MapError::NotMemory)?);
        Ok(())
    }

    /// What an address is to the guest's processors.
    pub fn to_processors(&self, address: u64) -> Option<Meaning> {
        let page = address / PAGE_BYTES;
        let memory = (address < self.memory_bytes).then_some(Meaning::Memory(page));
        self.mmu.get(&page).map(|&doorbell| Meaning::Doorbell(doorbell)).or(memory)
    }

    /// What an address is to devices; `None` is a fault.
    pub fn to_devices(&self, address: u64) -> Option<Meaning> {
        let page = address / PAGE_BYTES;
        if let Some(&doorbell) = self.rung_by_devices.get(&page) {
            return Some(Meaning::Doorbell(doorbell));
        }
        let block = self.iommu.get(&Block::of(address))?;
        Some(block[usize::try_from(page % PAGES as u64).expect("a page of a block")])
    }
}

impl Pinning for GuestSpace {
    type Error = MapError;

    fn pin(&mut self, block: Block) -> Result<(), MapError> {
        if block.0 >= self.memory_bytes.div_ceil(BLOCK_BYTES) {
            return Err(MapError::NotMemory);
        }
        let first = block.address() / PAGE_BYTES;
        // The hypervisor pins what is there now, and that is a register where a doorbell is.
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
