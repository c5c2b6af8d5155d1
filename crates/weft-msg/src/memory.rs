//! The memory cache (X-RDMA, section IV.E): registered memory in regions of one size, divided into blocks of a
//! few lengths. It allocates a region when it is full, and frees regions that have been empty for some time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use slotmap::SlotMap;
use weft_units::{Duration, Instant};

use crate::verbs::{DeviceError, Region, Registrar, Slice};

slotmap::new_key_type! { struct RegionKey; }

/// A block of registered memory. Its holder returns it to its context
/// ([`Context::free`](crate::Context::free)); a dropped block stays in use.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "dropped memory stays in use until its context goes"]
pub struct Block {
    region: RegionKey,
    index: u32,
    slice: Slice,
}

impl Block {
    /// Returns its location, which is at least as long as requested.
    pub const fn slice(&self) -> Slice {
        self.slice
    }
}

/// The limits of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// Length in bytes of a region that is divided into blocks.
    pub(crate) region: u64,
    /// Maximum length in bytes of all regions together.
    pub(crate) total: u64,
    /// Time after which an empty region is freed.
    pub(crate) keep: Duration,
}

#[derive(Debug)]
pub(crate) struct MemoryCache {
    limits: MemoryLimits,
    regions: SlotMap<RegionKey, CachedRegion>,
    /// Block lengths, shortest first. A longer block has a region of its own.
    classes: Vec<Class>,
    /// Length in bytes of all regions.
    registered: u64,
    /// Length in bytes of all blocks in use.
    used: u64,
    /// The earliest time at which a region has been empty for long enough.
    shrink_at: Option<Instant>,
}

/// The regions with blocks of one length.
#[derive(Debug)]
struct Class {
    len: u32,
    /// Regions with a free block. Allocation uses the first, so that the last ones become empty.
    partial: BTreeSet<RegionKey>,
}

/// The memory of a context's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Registered memory, bytes.
    pub registered: u64,
    /// Registered memory that is in use, bytes.
    pub used: u64,
}

/// A region divided into blocks.
#[derive(Debug)]
struct CachedRegion {
    region: Region,
    /// The class; `None` for a region that is one block.
    class: Option<usize>,
    /// Length of a block in bytes.
    block_len: u32,
    /// Indices of the free blocks.
    free: Vec<u32>,
    /// Number of blocks.
    blocks: u32,
    empty_since: Option<Instant>,
}

impl MemoryCache {
    /// Returns a cache whose shortest blocks have room for a frame.
    pub(crate) fn new(limits: MemoryLimits, frame: u32) -> Self {
        let mut lens = alloc::vec![frame.next_multiple_of(64)];
        for len in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            if len > lens[lens.len() - 1] && u64::from(len) <= limits.region {
                lens.push(len);
            }
        }
        let class = |len| Class { len, partial: BTreeSet::new() };
        let classes = lens.into_iter().map(class).collect();
        Self {
            limits,
            regions: SlotMap::with_key(),
            classes,
            registered: 0,
            used: 0,
            shrink_at: None,
        }
    }

    /// Changes the limits; regions above them are freed when they are empty.
    pub(crate) fn set_limits(&mut self, limits: MemoryLimits) {
        self.limits = limits;
        // Empty regions may be due earlier now.
        let empty = self.regions.values().filter_map(|cached| cached.empty_since);
        self.shrink_at = empty.min().map(|since| since + limits.keep);
    }

    /// Returns the registered memory and its use.
    pub(crate) const fn usage(&self) -> MemoryUse {
        MemoryUse { registered: self.registered, used: self.used }
    }

    /// Allocates a block of at least `len` bytes.
    ///
    /// # Errors
    /// The cache is at its limit, or the device has no memory.
    pub(crate) fn allocate(
        &mut self,
        verbs: &mut impl Registrar,
        len: u32,
    ) -> Result<Block, DeviceError> {
        let class = self.classes.iter().position(|class| class.len >= len);
        self.allocate_in(verbs, class, len)
    }

    /// Allocates a block of the shortest length, which has room for a frame.
    ///
    /// # Errors
    /// The errors of [`allocate`](Self::allocate).
    #[inline(always)]
    pub(crate) fn allocate_frame(
        &mut self,
        verbs: &mut impl Registrar,
    ) -> Result<Block, DeviceError> {
        self.allocate_in(verbs, Some(0), 0)
    }

    /// Allocates a block of a class, or a single one of `len` bytes.
    #[inline(always)]
    fn allocate_in(
        &mut self,
        verbs: &mut impl Registrar,
        class: Option<usize>,
        len: u32,
    ) -> Result<Block, DeviceError> {
        let partial = class.and_then(|class| self.classes[class].partial.first().copied());
        let key = match partial {
            Some(key) => key,
            None => self.grow(verbs, class, len)?,
        };
        let cached = &mut self.regions[key];
        cached.empty_since = None;
        let index = cached.free.pop().expect("the region has a free block");
        if let (Some(class), true) = (class, cached.free.is_empty()) {
            self.classes[class].partial.remove(&key);
        }
        let slice = cached.block(index);
        self.used += u64::from(slice.len);
        Ok(Block { region: key, index, slice })
    }

    /// Registers a region for a class, or for a single block of `len` bytes.
    #[cold]
    fn grow(
        &mut self,
        verbs: &mut impl Registrar,
        class: Option<usize>,
        len: u32,
    ) -> Result<RegionKey, DeviceError> {
        let (bytes, block_len) = match class {
            Some(class) => {
                let len = self.classes[class].len;
                (self.limits.region.max(len.into()), len)
            }
            None => {
                let bytes = u64::from(len).next_multiple_of(4096);
                (bytes, u32::try_from(bytes).expect("a block's length"))
            }
        };
        let blocks = u32::try_from(bytes / u64::from(block_len)).unwrap_or(u32::MAX);
        if self.registered + bytes > self.limits.total {
            let why = "the memory cache is at its limit (memory_limit)";
            return Err(DeviceError { doing: "registering memory", why, code: 0 });
        }
        let region = verbs.allocate(bytes)?;
        self.registered += bytes;
        let free = (0..blocks).rev().collect();
        let cached = CachedRegion { region, class, block_len, free, blocks, empty_since: None };
        let key = self.regions.insert(cached);
        if let Some(class) = class {
            self.classes[class].partial.insert(key);
        }
        Ok(key)
    }

    /// Returns a block to the cache.
    #[inline]
    pub(crate) fn release(&mut self, now: Instant, block: Block) {
        let Some(cached) = self.regions.get_mut(block.region) else {
            debug_assert!(false, "a block of another context");
            return;
        };
        self.used -= u64::from(block.slice.len);
        if let (Some(class), true) = (cached.class, cached.free.is_empty()) {
            self.classes[class].partial.insert(block.region);
        }
        cached.free.push(block.index);
        if cached.free.len() == cached.blocks as usize {
            cached.empty_since = Some(now);
            self.shrink_at.get_or_insert(now + self.limits.keep);
        }
    }

    /// Returns the time of the next [`shrink`](Self::shrink); `None` if no region is empty.
    pub(crate) const fn shrink_at(&self) -> Option<Instant> {
        self.shrink_at
    }

    /// Frees regions that have been empty for long enough.
    pub(crate) fn shrink(&mut self, now: Instant, verbs: &mut impl Registrar) {
        let keep = self.limits.keep;
        let due = |cached: &CachedRegion| cached.empty_since.map(|since| since + keep);
        self.regions.retain(|key, cached| {
            let stays = due(cached).is_none_or(|due| due > now);
            if !stays {
                verbs.free(cached.region);
                self.registered -= cached.region.len;
                if let Some(class) = cached.class {
                    self.classes[class].partial.remove(&key);
                }
            }
            stays
        });
        self.shrink_at = self.regions.values().filter_map(due).min();
    }

    /// Frees all regions, including blocks in use.
    pub(crate) fn free_all(&mut self, verbs: &mut impl Registrar) {
        for (_, cached) in self.regions.drain() {
            verbs.free(cached.region);
        }
        self.classes.iter_mut().for_each(|class| class.partial.clear());
        (self.registered, self.used) = (0, 0);
    }
}

impl CachedRegion {
    /// Returns the location of a block.
    #[inline]
    const fn block(&self, index: u32) -> Slice {
        let Region { address, lkey, rkey, .. } = self.region;
        let len = self.block_len;
        Slice { address: address + index as u64 * len as u64, len, lkey, rkey }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;
    use crate::tests::NoDevice;

    const LIMITS: MemoryLimits =
        MemoryLimits { region: 4 << 20, total: 32 << 20, keep: Duration::from_millis(10) };

    #[test]
    fn the_cache_follows_the_load_up_and_down() {
        let mut verbs = NoDevice::default();
        let mut cache = MemoryCache::new(LIMITS, 4096 + 40);
        let mut now = Instant::EPOCH;
        let held: Vec<_> = (0..3000).map(|_| cache.allocate(&mut verbs, 4096).unwrap()).collect();
        assert_eq!(verbs.regions.len(), 3, "1,008 blocks of 4,160 bytes a region");
        assert_eq!(cache.usage().used, 3000 * 4160);
        for block in held {
            cache.release(now, block);
        }
        cache.shrink(now, &mut verbs);
        assert_eq!(cache.shrink_at(), Some(now + LIMITS.keep));
        now += LIMITS.keep;
        cache.shrink(now, &mut verbs);
        assert_eq!(cache.shrink_at(), None);
        assert_eq!((verbs.regions.len(), cache.usage()), (0, MemoryUse::default()));
    }

    #[test]
    fn the_limit_is_enforced_and_named() {
        let mut verbs = NoDevice::default();
        let mut cache = MemoryCache::new(LIMITS, 4136);
        let blocks: Vec<_> = (0..4).map(|_| cache.allocate(&mut verbs, 8 << 20).unwrap()).collect();
        let refused = cache.allocate(&mut verbs, 1).unwrap_err();
        assert!(refused.to_string().contains("memory_limit"), "{refused}");
        for block in blocks {
            cache.release(Instant::EPOCH, block);
        }
        cache.shrink(Instant::EPOCH + LIMITS.keep, &mut verbs);
        assert!(cache.allocate(&mut verbs, 1).is_ok());
    }

    #[test]
    fn blocks_never_overlap_in_any_order_of_allocation_and_release() {
        for seed in 0..100 {
            let mut rng = Seed(seed).child("memory cache", 0).rng();
            let mut verbs = NoDevice::default();
            let mut cache = MemoryCache::new(LIMITS, 4136);
            let (mut held, mut now) = (Vec::<Block>::new(), Instant::EPOCH);
            for _ in 0..300 {
                now += Duration::from_millis(1);
                if rng.chance(3, 5) {
                    let len = 1 << (rng.next_u32() % 23);
                    if let Ok(block) = cache.allocate(&mut verbs, len) {
                        let Slice { address, len: got, .. } = block.slice;
                        assert!(got >= len);
                        let end = address + u64::from(got);
                        let apart = |other: &Block| {
                            let Slice { address: from, len, .. } = other.slice;
                            end <= from || from + u64::from(len) <= address
                        };
                        assert!(held.iter().all(apart), "seed {seed}");
                        held.push(block);
                    }
                } else if !held.is_empty() {
                    let index = rng.next_u32() as usize % held.len();
                    cache.release(now, held.swap_remove(index));
                }
                cache.shrink(now, &mut verbs);
                let sum: u64 = held.iter().map(|block| u64::from(block.slice.len)).sum();
                let MemoryUse { registered, used } = cache.usage();
                assert_eq!(used, sum);
                assert!(used <= registered && registered <= LIMITS.total);
            }
        }
    }
}
