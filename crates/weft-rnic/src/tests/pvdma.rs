//! On-demand pinning, and the doorbell beside a command queue (STELLAR, section 5).

use alloc::collections::{BTreeMap, BTreeSet};

use weft_units::Seed;

use crate::*;

const MIB: u64 = 1 << 20;

/// A host that records pinned blocks, with a limit.
#[derive(Default)]
struct Host {
    pinned: BTreeSet<Block>,
    limit: Option<usize>,
}

impl Pinning for Host {
    type Error = ();

    fn pin(&mut self, block: Block) -> Result<(), ()> {
        if self.limit == Some(self.pinned.len()) {
            return Err(());
        }
        assert!(self.pinned.insert(block), "pinned twice");
        Ok(())
    }

    fn unpin(&mut self, block: Block) {
        assert!(self.pinned.remove(&block), "unpinned, but never pinned");
    }
}

const REGION: DmaUser = DmaUser(1);
const OTHER: DmaUser = DmaUser(2);

#[test]
fn nothing_is_pinned_before_the_first_dma_and_then_only_its_blocks() {
    let (mut pvdma, mut host) = (Pvdma::new(), Host::default());
    assert_eq!(pvdma.pinned_bytes(), 0);
    // The last byte of block 1 to the first of block 3.
    let mapped = pvdma.dma(REGION, 4 * MIB - 1, 2 * MIB + 2, &mut host).unwrap();
    assert_eq!(mapped, Mapped { pinned: 3, hits: 0 });
    assert!(host.pinned.iter().copied().eq((1..=3).map(Block)));
    assert_eq!(pvdma.pinned_bytes(), 6 * MIB);
    let again = pvdma.dma(REGION, 4 * MIB, 1, &mut host).unwrap();
    assert_eq!(again, Mapped { pinned: 0, hits: 1 });
    assert_eq!(pvdma.dma(REGION, 100 * MIB, 0, &mut host), Ok(Mapped::default()), "no byte of it");
}

#[test]
fn a_block_stays_pinned_until_its_last_user_releases_it() {
    let (mut pvdma, mut host) = (Pvdma::new(), Host::default());
    pvdma.dma(REGION, 0, 2 * MIB, &mut host).unwrap();
    pvdma.dma(OTHER, MIB, 2 * MIB, &mut host).unwrap();
    // A user that maps a block twice releases it once.
    pvdma.dma(OTHER, MIB, 1, &mut host).unwrap();
    assert_eq!([pvdma.users(Block(0)), pvdma.users(Block(1))], [2, 1]);
    pvdma.release(OTHER, &mut host);
    assert!(host.pinned.iter().copied().eq([Block(0)]));
    pvdma.release(OTHER, &mut host);
    pvdma.release(REGION, &mut host);
    assert_eq!((host.pinned.len(), pvdma.pinned_bytes()), (0, 0));
}

#[test]
fn a_partly_pinned_range_is_completed_or_released() {
    let (mut pvdma, mut host) = (Pvdma::new(), Host { limit: Some(2), ..Host::default() });
    let refused = pvdma.dma(REGION, 0, 8 * MIB, &mut host);
    assert_eq!(refused, Err(DmaError::Pinning(())));
    host.limit = None;
    let mapped = pvdma.dma(REGION, 0, 8 * MIB, &mut host).unwrap();
    assert_eq!(mapped, Mapped { pinned: 2, hits: 2 });
    pvdma.release(REGION, &mut host);
    assert!(host.pinned.is_empty());
    let wrapped = pvdma.dma(REGION, u64::MAX, 2, &mut host);
    assert_eq!(wrapped, Err(DmaError::PastTheEnd));
}

#[test]
fn pinned_blocks_match_a_model_under_random_users() {
    let mut rng = Seed(5).rng();
    let (mut pvdma, mut host) = (Pvdma::new(), Host::default());
    let mut model: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for _ in 0..2_000 {
        let user = rng.below(8);
        if rng.chance(1, 4) {
            pvdma.release(DmaUser(user), &mut host);
            model.remove(&user);
        } else {
            let (address, len) = (rng.below(64 * MIB), rng.below(6 * MIB) + 1);
            pvdma.dma(DmaUser(user), address, len, &mut host).unwrap();
            let blocks = address / (2 * MIB)..=(address + len - 1) / (2 * MIB);
            model.entry(user).or_default().extend(blocks);
        }
        let expected: BTreeSet<Block> = model.values().flatten().copied().map(Block).collect();
        assert_eq!(host.pinned, expected);
    }
}

const DOORBELL: Doorbell = Doorbell(0);
const RDMA: DmaUser = DmaUser(10);
const GPU: DmaUser = DmaUser(11);

/// Performs the five steps of figure 5. Returns the target of the page of the second command queue, for the GPU and for the
/// processors.
fn figure_5(space: DoorbellSpace) -> (Option<Meaning>, Meaning) {
    let mut guest = GuestSpace::new(64 * MIB, space);
    let mut pvdma = Pvdma::new();
    let (page, queue) = (2 * MIB, 2 * MIB + PAGE_BYTES);
    // 1: an RDMA program starts. 2: the GPU's driver allocates the page beside its doorbell.
    pvdma.dma(RDMA, 8 * MIB, MIB, &mut guest).unwrap();
    let doorbell = guest.map_doorbell(DOORBELL, page).unwrap();
    assert_eq!(guest.to_processors(doorbell), Some(Meaning::Doorbell(DOORBELL)));
    // 3: the GPU is about to read its commands.
    pvdma.dma(GPU, queue, PAGE_BYTES, &mut guest).unwrap();
    // 4: the RDMA program ends, the GPU's does not.
    guest.unmap_doorbell(DOORBELL);
    pvdma.release(RDMA, &mut guest);
    // 5: another command queue is at the former, or possible, page of the doorbell.
    pvdma.dma(GPU, page, PAGE_BYTES, &mut guest).unwrap();
    (guest.to_devices(page), guest.to_processors(page).unwrap())
}

#[test]
fn a_doorbell_among_memory_is_taken_for_a_command_queue() {
    // The processor writes commands into memory, and the GPU reads the NIC's register.
    let memory = Meaning::Memory(2 * MIB / PAGE_BYTES);
    let (gpu, processor) = figure_5(DoorbellSpace::AmongMemory);
    assert_eq!((gpu, processor), (Some(Meaning::Doorbell(DOORBELL)), memory));
}

#[test]
fn a_doorbell_in_the_io_region_is_not_taken_for_a_command_queue() {
    let memory = Meaning::Memory(2 * MIB / PAGE_BYTES);
    let (gpu, processor) = figure_5(DoorbellSpace::IoRegion);
    assert_eq!((gpu, processor), (Some(memory), memory));
}

/// Maps a doorbell into a block that is already pinned. Returns its address, and the target of a GPU that rings it.
fn rung_by_a_gpu(guest: &mut GuestSpace) -> (u64, Option<Meaning>) {
    let mut pvdma = Pvdma::new();
    pvdma.dma(GPU, 2 * MIB + PAGE_BYTES, PAGE_BYTES, guest).unwrap();
    let doorbell = guest.map_doorbell(DOORBELL, 2 * MIB).unwrap();
    (doorbell, guest.to_devices(doorbell))
}

#[test]
fn a_doorbell_mapped_into_a_pinned_block_is_taken_for_memory() {
    let mut guest = GuestSpace::new(64 * MIB, DoorbellSpace::AmongMemory);
    let (doorbell, reached) = rung_by_a_gpu(&mut guest);
    assert_eq!(reached, Some(Meaning::Memory(doorbell / PAGE_BYTES)), "the ring is lost");
    assert_eq!(guest.to_processors(doorbell), Some(Meaning::Doorbell(DOORBELL)));
}

#[test]
fn devices_ring_doorbells_of_the_region_where_they_may_and_fault_where_not() {
    let mut guest = GuestSpace::new(64 * MIB, DoorbellSpace::IoRegion);
    let (doorbell, reached) = rung_by_a_gpu(&mut guest);
    assert_eq!(reached, None, "a fault, not somebody's memory");
    guest.map_doorbell_for_devices(doorbell).unwrap();
    assert_eq!(guest.to_devices(doorbell), Some(Meaning::Doorbell(DOORBELL)));
    assert_eq!(guest.map_doorbell_for_devices(doorbell + PAGE_BYTES), Err(MapError::NotMemory));
    guest.unmap_doorbell(DOORBELL);
    assert_eq!((guest.to_devices(doorbell), guest.to_processors(doorbell)), (None, None));
}

#[test]
fn no_block_of_memory_has_a_page_of_the_io_region() {
    let mut guest = GuestSpace::new(1 << 48, DoorbellSpace::IoRegion);
    let mut pvdma = Pvdma::new();
    let first = guest.map_doorbell(Doorbell(0), 0).unwrap();
    pvdma.dma(GPU, first - PAGE_BYTES, PAGE_BYTES, &mut guest).unwrap();
    assert_eq!(guest.to_devices(first), None);
    let beyond = pvdma.dma(GPU, first, PAGE_BYTES, &mut guest);
    assert_eq!(beyond, Err(DmaError::Pinning(MapError::NotMemory)));
}

#[test]
fn devices_and_processors_fault_at_the_same_end_of_memory() {
    // The last block has one page and a quarter.
    let end = 4 * MIB + PAGE_BYTES + PAGE_BYTES / 4;
    let mut guest = GuestSpace::new(end, DoorbellSpace::IoRegion);
    Pvdma::new().dma(GPU, 4 * MIB, 1, &mut guest).unwrap();
    let memory = |address| Some(Meaning::Memory(address / PAGE_BYTES));
    for (address, target) in [
        (4 * MIB, memory(4 * MIB)),
        (end - 1, memory(end - 1)),
        (end, None),
        (4 * MIB + 2 * PAGE_BYTES, None),
        (6 * MIB - 1, None),
    ] {
        let both = (guest.to_devices(address), guest.to_processors(address));
        assert_eq!(both, (target, target), "{address:#x}");
    }
}
