//! Para-virtualized DMA (STELLAR, section 5, figure 4): no guest memory is pinned when the guest starts. Memory is pinned
//! before its first use by a device, in blocks of 2 MiB, and stays pinned until its last user releases it.
//!
//! The process that serves a guest calls [`Pvdma::dma`] before its device gets an address: for a memory region when it is
//! registered, for anything else when it is passed to a device. In most cases the block is in the map cache.

use alloc::collections::{BTreeMap, BTreeSet};

/// Bytes of a block: large enough for a small cache and few updates of the IOMMU (STELLAR, section 5).
pub const BLOCK_BYTES: u64 = 2 << 20;

/// The number of a block of a guest's memory: its address divided by [`BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

impl Block {
    /// Returns the block of an address.
    pub const fn of(address: u64) -> Self {
        Self(address / BLOCK_BYTES)
    }

    /// Returns the first guest address of the block.
    pub const fn address(self) -> u64 {
        self.0 * BLOCK_BYTES
    }
}

/// The id of a user of memory for DMA: a memory region by its key, or a queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DmaUser(pub u64);

/// The hypervisor, which pins memory and maps it in the IOMMU.
pub trait Pinning {
    /// The error of pinning a block.
    type Error;

    /// Pins a block and maps it for devices.
    ///
    /// # Errors
    /// The block cannot be pinned; nothing has changed.
    fn pin(&mut self, block: Block) -> Result<(), Self::Error>;

    /// Unmaps a block and unpins it.
    fn unpin(&mut self, block: Block);
}

/// The result of [`Pvdma::dma`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Blocks that were pinned.
    pub pinned: u64,
    /// Blocks that were in the map cache.
    pub hits: u64,
}

/// The blocks of one guest that devices use.
#[derive(Debug, Default)]
pub struct Pvdma {
    /// The map cache: pinned blocks with their number of users.
    users: BTreeMap<Block, u32>,
    /// The blocks of each user.
    held: BTreeSet<(DmaUser, Block)>,
}

impl Pvdma {
    /// Returns the state of a guest without pinned memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pins `len` bytes at guest address `address`, which a device is about to use for `user`, until [`Self::release`].
    ///
    /// # Errors
    /// A block could not be pinned, or the range ends past the address space. Blocks that were pinned before the error stay
    /// pinned, until the next attempt uses them or `release` unpins them.
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

    /// Releases the memory of `user`, for which no device uses it any more. Blocks without another user are unpinned.
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

    /// Returns the number of pinned bytes.
    pub fn pinned_bytes(&self) -> u64 {
        self.users.len() as u64 * BLOCK_BYTES
    }

    /// Returns the number of users of a block; zero if it is not pinned.
    pub fn users(&self, block: Block) -> u32 {
        self.users.get(&block).copied().unwrap_or(0)
    }
}

/// The error of making memory available for DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError<E> {
    /// The range ends past the address space.
    #[error("the range ends past the address space")]
    PastTheEnd,
    /// A block cannot be pinned.
    #[error("a block cannot be pinned: {0}")]
    Pinning(E),
}
