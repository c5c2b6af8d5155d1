//! Configuration of the bus, each value with its source. Values without a public source are fitted to a figure of
//! STELLAR's or assumed, and marked as such.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_rnic::Owner;
use weft_units::{BitRate, ByteCount, Duration};

use super::{CacheConfig, Layout};

weft_units::registry! {
    /// The component that translates a NIC's addresses.
    #[non_exhaustive]
    pub enum Translation: "translation" {
        Atc => "atc", "the IOMMU, asked over ATS, and the NIC caches its answers (virtual functions)";
        Emtt => "emtt", "the NIC's own table for GPU memory, the IOMMU for a host's (STELLAR)";
        RootComplex => "root-complex", "the IOMMU, on the way: all data pass the root complex (HyV, MasQ)";
    }
}

weft_units::registry! {
    /// The memory that holds messages.
    #[non_exhaustive]
    pub enum Target: "memory" {
        Gpu => "gpu", "a GPU's under the NIC's PCIe switch";
        Host => "host", "the host's, behind the root complex";
    }
}

impl Target {
    /// Returns the owner in the NIC's table.
    pub const fn owner(self) -> Owner {
        match self {
            Self::Gpu => Owner::Gpu(0),
            Self::Host => Owner::Guest(0),
        }
    }
}

/// The bus between a NIC and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PcieConfig {
    /// The component that translates.
    pub translation: Translation,
    /// The memory of messages.
    pub target: Target,
    /// Bytes that one translation covers.
    pub page: ByteCount,
    /// The placement of a buffer's pages.
    pub layout: Layout,
    /// The link's rate in each direction, without flow control.
    pub rate: BitRate,
    /// Maximum payload of one packet of the bus.
    pub max_payload: ByteCount,
    /// Bytes of a packet's headers.
    pub header: ByteCount,
    /// Time from a read request to the first byte of its completion.
    pub read_delay: Duration,
    /// Time from the last byte of a write on the link to memory.
    pub write_delay: Duration,
    /// The NIC's address translation cache.
    pub atc: CacheConfig,
    /// The NIC's translation requests.
    pub ats: AtsConfig,
    /// The IOMMU's translation lookaside buffer.
    pub iotlb: CacheConfig,
    /// Bytes that one of its entries covers.
    pub iotlb_page: ByteCount,
    /// The cost of a miss in it.
    pub walk: WalkConfig,
    /// The root complex behind the switch.
    pub root_complex: RootComplexConfig,
}

/// Translation requests (PCIe Base Specification, chapter 10).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AtsConfig {
    /// Maximum number of outstanding requests.
    pub outstanding: u32,
    /// Time from a request to its completion without a page walk.
    pub round_trip: Duration,
}

/// Walks of the IOMMU through its page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WalkConfig {
    /// Maximum number of concurrent walks.
    pub walkers: u32,
    /// Duration of a walk.
    pub delay: Duration,
}

/// The root complex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RootComplexConfig {
    /// Rate between two devices through it, headers included.
    pub peer_rate: BitRate,
    /// Additional delay of the path through it.
    pub delay: Duration,
}

impl Default for PcieConfig {
    /// Returns a ConnectX-6 in a fourth-generation slot, as in STELLAR's figure 8.
    fn default() -> Self {
        Self {
            translation: Translation::Atc,
            target: Target::Gpu,
            // STELLAR, section 6: "GDR memory page size to 4 KB".
            page: ByteCount::kib(4),
            layout: Layout::Scattered,
            // 16 lanes of 16 GT/s at 128b/130b are 252 Gb/s; data link packets take 8 %
            // (Neugebauer et al. 2018, section 3).
            rate: BitRate::gbps(231).expect("not zero"),
            // The maximum of Intel's root ports.
            max_payload: ByteCount(256),
            // Framing, sequence number, four words of header and LCRC of a write to a 64-bit address
            // (PCIe Base Specification, section 2.2; Neugebauer et al. 2018, section 3).
            header: ByteCount(24),
            // Half a microsecond to read from an idle Xeon's memory (Neugebauer et al. 2018, section 6).
            read_delay: Duration::from_nanos(500),
            write_delay: Duration::from_nanos(250),
            // Fitted: the 8,192 pages of 16 connections with 2 MB fit, the 16,384 of 4 MB do not.
            // STELLAR, section 6, says "tens of thousands".
            atc: CacheConfig::lru(10_240, 16),
            ats: AtsConfig::default(),
            // Fitted: 512 MiB, 32 MB each, are within its reach, and 1 GiB is not.
            iotlb: CacheConfig::lru(256, 16),
            // Assumed: the size with which a hypervisor maps guests (PVDMA's block; STELLAR, section 5).
            iotlb_page: ByteCount::mib(2),
            walk: WalkConfig::default(),
            root_complex: RootComplexConfig::default(),
        }
    }
}

impl Default for AtsConfig {
    /// Returns eight outstanding requests, which are assumed, and a fitted round trip: a cache that always misses then
    /// lets 170 Gb/s pass (STELLAR, section 6), 8 pages of 4 KiB in 1.54 us.
    fn default() -> Self {
        Self { outstanding: 8, round_trip: Duration::from_nanos(1_540) }
    }
}

impl Default for WalkConfig {
    /// Returns the cost of a miss in the IOTLB of a Xeon, 330 ns (Neugebauer et al. 2018, section 6). The number of
    /// walkers is assumed; it has no effect if no more requests may be outstanding.
    fn default() -> Self {
        Self { walkers: 8, delay: Duration::from_nanos(330) }
    }
}

impl Default for RootComplexConfig {
    /// Returns a fitted rate, for 141 Gb/s of payload in packets of 256 bytes (STELLAR, figure 14), and an assumed
    /// delay.
    fn default() -> Self {
        let peer_rate = BitRate::bps(154_200_000_000).expect("not zero");
        Self { peer_rate, delay: Duration::from_nanos(250) }
    }
}

/// The error for a value of the bus that is out of its range. The message begins with the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PcieError {
    /// The page size is not one that an MMU has.
    #[error("page is {0}, expected a power of two from 4KiB on")]
    Page(ByteCount),
    /// An entry of the IOTLB does not cover whole pages.
    #[error("iotlb_page is {iotlb_page}, expected a multiple of page, {page}")]
    IotlbPage {
        /// Bytes that an entry covers.
        iotlb_page: ByteCount,
        /// Bytes of a page.
        page: ByteCount,
    },
    /// Packets of the bus carry nothing.
    #[error("max_payload is 0, expected at least one byte")]
    NoPayload,
    /// The entries of a cache do not form whole sets.
    #[error("{cache} has {entries} entries in sets of {ways}, expected whole sets")]
    PartialSet {
        /// The key of the cache.
        cache: &'static str,
        /// Its entries.
        entries: u32,
        /// The entries of a set.
        ways: u32,
    },
    /// A number is zero.
    #[error("{0} is 0, expected at least 1")]
    Zero(&'static str),
    /// The ports are not first in, first out.
    #[error("translation takes time, which only ports that are \"fifo\" know of")]
    NotFifo,
}

impl PcieConfig {
    /// Checks the values.
    ///
    /// # Errors
    /// A value is out of its range.
    pub(crate) fn check(&self) -> Result<(), PcieError> {
        let Self { page, iotlb_page, max_payload, atc, iotlb, ats, walk, .. } = self;
        let (page, iotlb_page) = (*page, *iotlb_page);
        if !page.0.is_power_of_two() || page.0 < 4096 {
            return Err(PcieError::Page(page));
        }
        if iotlb_page.0 % page.0 != 0 || iotlb_page.0 == 0 {
            return Err(PcieError::IotlbPage { iotlb_page, page });
        }
        if max_payload.0 == 0 {
            return Err(PcieError::NoPayload);
        }
        for (name, cache) in [("atc", atc), ("iotlb", iotlb)] {
            let CacheConfig { entries, ways, .. } = *cache;
            if !cache.has_whole_sets() {
                return Err(PcieError::PartialSet { cache: name, entries, ways });
            }
        }
        let numbers = [("outstanding", ats.outstanding), ("walkers", walk.walkers)];
        match numbers.into_iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(PcieError::Zero(key)),
            None => Ok(()),
        }
    }
}
