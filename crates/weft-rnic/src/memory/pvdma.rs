//! Para-virtualized DMA (STELLAR, section 5, figure 4): of a guest's memory nothing is pinned when the
//! guest starts. What a device is about to use for the first time is pinned then, in blocks of 2 MiB, and
//! stays so until the last that used it has done with it.
//!
//! The one that serves a guest asks [`Pvdma::dma`] before its device is told of an address: for a memory
//! region when it is registered, for anything else when it is handed to a device. Most of the time the
//! answer is in the map cache, and that is all.

use alloc::collections::{BTreeMap, BTreeSet};

/// Bytes of a block: enough for the cache to be small and the IOMMU to be asked seldom (STELLAR,
/// section 5).
pub const BLOCK_BYTES: u64 = 2 << 20;

/// Names a block of a guest's memory: its address over [`BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

impl Block {
    /// The block that an address is in.
    pub const fn of(address: u64) -> Self {
        Self(address / BLOCK_BYTES)
    }

    /// Where it begins, as the guest counts.
    pub const fn address(self) -> u64 {
        self.0 * BLOCK_BYTES
    }
}

/// Names what uses memory for DMA: a memory region by its key, a queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DmaUser(pub u64);

/// The hypervisor, which pins memory and enters it in the IOMMU's table.
pub trait Pinning {
    /// Why a block cannot be pinned.
    type Error;

    /// Keeps a block where it is, and lets devices reach it.
    ///
    /// # Errors
    /// It cannot; nothing has changed.
    fn pin(&mut self, block: Block) -> Result<(), Self::Error>;

    /// Ends both.
    fn unpin(&mut self, block: Block);
}

/// What came of asking for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Blocks that were pinned for it.
    pub pinned: u64,
    /// Blocks that were in the map cache.
    pub hits: u64,
}

/// One guest's blocks that devices use.
#[derive(Debug, Default)]
pub struct Pvdma {
    /// The map cache: pinned blocks and how many use each.
    users: BTreeMap<Block, u32>,
    held: BTreeSet<(DmaUser, Block)>,
}

impl Pvdma {
    /// A guest of which nothing is pinned.
    pub fn new() -> Self {
        Self::default()
    }

    /// Memory at `address`, as the guest counts, is about to be used by a device for `user`, who keeps it
    /// until [`Self::release`].
    ///
    /// # Errors
    /// A block could not be pinned, or the range ends past the address space. What was pinned before it
    /// is kept, for the next attempt or for `release` to find.
    pub fn dma<P: Pinning>(
        &mut self,
        user: DmaUser,
        address: u64,
        len: u64,
        host: &mut P,
    ) -> Result<Mapped, DmaError<P::Error>> {
        let mut mapped = Mapped::default();
        let Some(beyond_first) = len.checked_sub(1) else { return Ok(mapped) };
        let last = address.checked_add(beyond_first).ok_or(DmaError::PastTheEnd)?;
        for block in (Block::of(address).0..=Block::of(last).0).map(Block) {
            if self.held.contains(&(user, block)) {
                mapped.hits += 1;
                continue;
            }
            match self.users.get_mut(&block) {
                Some(users) => {
                    *users += 1;
                    mapped.hits += 1;
                }
                None => {
                    host.pin(block).map_err(DmaError::Pinning)?;
                    self.users.insert(block, 1);
                    mapped.pinned += 1;
                }
            }
            self.held.insert((user, block));
        }
        Ok(mapped)
    }

    /// `user` has done with its memory, and no device uses it for this user from here on. Blocks that
    /// nobody else uses are unpinned.
    pub fn release(&mut self, user: DmaUser, host: &mut impl Pinning) {
        let mut later = self.held.split_off(&(user, Block(0)));
        while let Some(&(other, block)) = later.first() {
            if other != user {
                break;
            }
            later.pop_first();
            let users = self.users.get_mut(&block).expect("held blocks are in the cache");
            *users -= 1;
            if *users == 0 {
                self.users.remove(&block);
                host.unpin(block);
            }
        }
        self.held.append(&mut later);
    }

    /// Bytes that are pinned.
    pub fn pinned_bytes(&self) -> u64 {
        self.users.len() as u64 * BLOCK_BYTES
    }

    /// Users of a block; none of one that is not pinned.
    pub fn users(&self, block: Block) -> u32 {
        self.users.get(&block).copied().unwrap_or(0)
    }
}

/// Why memory cannot be used for DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError<E> {
    /// The range ends past the address space.
    #[error("the range ends past the address space")]
    PastTheEnd,
    /// A block cannot be pinned.
    #[error("a block cannot be pinned: {0}")]
    Pinning(E),
}
