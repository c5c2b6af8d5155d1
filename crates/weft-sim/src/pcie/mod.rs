//! The PCIe bus between a host's NIC and memory: address translation, its cost, and the path of the data (STELLAR,
//! sections 2 and 6, figure 7).
//!
//! [`Dma`] models the bus of one host. It returns the time at which a requested payload will be in the NIC, or a
//! received one in memory. Time is an argument and nothing is scheduled, since requests are served in order. There are
//! three kinds of address translation, [`Translation`], and two paths: over the PCIe switch to a GPU beside the NIC, or
//! through the root complex. `docs/design/address-translation.md` lists the assumptions of the model.

use weft_rnic::AddressType;
use weft_transport::Placement;
use weft_units::{Duration, Seed};

use crate::pace::Pace;
use crate::time::{SimSpan, SimTime};

mod cache;
mod config;
mod iommu;
mod outstanding;
mod pages;
mod report;
#[cfg(test)]
mod tests;

use cache::Cache;
pub use cache::{CacheConfig, Replacement};
pub use config::{
    AtsConfig, PcieConfig, PcieError, RootComplexConfig, Target, Translation, WalkConfig,
};
use iommu::Iommu;
use outstanding::Outstanding;
pub use pages::Layout;
use pages::Pages;
pub use report::{Counts, PcieReport};

/// A piece of a message's buffer that is read or written. Messages of a connection share one buffer, as
/// in perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The connection.
    pub connection: u32,
    /// Length of the whole message, bytes.
    pub length: u32,
    /// Offset of the piece in the message, bytes.
    pub offset: u32,
    /// Length of the piece, bytes.
    pub len: u16,
}

impl From<&Placement> for Piece {
    fn from(placement: &Placement) -> Self {
        let &Placement { connection, length, offset, len, .. } = placement;
        Self { connection: connection.0, length, offset, len }
    }
}

/// A NIC's path to memory.
#[derive(Debug)]
pub struct Dma {
    pages: Pages,
    /// `true` if the NIC requests translations from the IOMMU before it uses addresses.
    uses_ats: bool,
    address_type: AddressType,
    target: Target,
    atc: Cache,
    requests: Outstanding,
    /// Half the round trip of a translation request.
    one_way: SimSpan,
    iommu: Iommu,
    /// The directions from the NIC, and to it.
    up: Lane,
    down: Lane,
    /// The root complex between two devices.
    peer: Lane,
    tlp: Tlp,
    delays: Delays,
    counts: Counts,
}

/// Fixed times of a transfer.
#[derive(Clone, Copy, Debug)]
struct Delays {
    read: SimSpan,
    write: SimSpan,
    detour: SimSpan,
}

/// The division of a payload into packets of the bus.
#[derive(Clone, Copy, Debug)]
struct Tlp {
    max_payload: u64,
    header: u64,
}

impl Tlp {
    /// Returns the bytes on the bus of a payload with its headers.
    const fn bytes(self, len: u16) -> u64 {
        let len = len as u64;
        len + len.div_ceil(self.max_payload) * self.header
    }
}

/// One direction of a link, which serialises transfers.
#[derive(Clone, Copy, Debug)]
struct Lane {
    pace: Pace,
    busy_until: SimTime,
}

impl Lane {
    const fn new(pace: Pace) -> Self {
        Self { pace, busy_until: SimTime::EPOCH }
    }

    /// Returns the time at which the last of `bytes` that are ready at `at` has passed.
    fn carry(&mut self, at: SimTime, bytes: u64) -> SimTime {
        self.busy_until = self.busy_until.max(at) + self.pace.span(bytes);
        self.busy_until
    }
}

impl Dma {
    /// Returns an idle bus with empty caches.
    pub fn new(config: &PcieConfig, seed: Seed) -> Self {
        let span = |delay: Duration| SimSpan::from(delay);
        let (uses_ats, address_type) = match config.translation {
            Translation::Atc => (true, AddressType::Translated),
            Translation::Emtt => (false, config.target.owner().address_type()),
            Translation::RootComplex => (false, AddressType::Untranslated),
        };
        Self {
            pages: Pages::new(config.page, config.layout, seed.child("pages", 0)),
            uses_ats,
            address_type,
            target: config.target,
            atc: Cache::new(&config.atc, seed.child("atc", 0)),
            requests: Outstanding::new(config.ats.outstanding),
            one_way: SimSpan::from_picos(span(config.ats.round_trip).as_picos() / 2),
            iommu: Iommu::new(config, seed.child("iommu", 0)),
            up: Lane::new(Pace::new(config.rate)),
            down: Lane::new(Pace::new(config.rate)),
            peer: Lane::new(Pace::new(config.root_complex.peer_rate)),
            tlp: Tlp { max_payload: config.max_payload.0, header: config.header.0 },
            delays: Delays {
                read: span(config.read_delay),
                write: span(config.write_delay),
                detour: span(config.root_complex.delay),
            },
            counts: Counts::default(),
        }
    }

    /// Returns the time at which a piece requested now has been read.
    pub fn read(&mut self, now: SimTime, piece: Piece) -> SimTime {
        let bytes = self.tlp.bytes(piece.len);
        let addressed = self.address(now, piece);
        let found = self.pass_root(addressed, piece, bytes) + self.delays.read;
        let read = self.down.carry(found, bytes);
        self.counts.reads += 1;
        self.counts.reading += read.since(now);
        read
    }

    /// Returns the time at which a piece that arrives now has been written.
    pub fn write(&mut self, now: SimTime, piece: Piece) -> SimTime {
        let bytes = self.tlp.bytes(piece.len);
        let addressed = self.address(now, piece);
        let sent = self.up.carry(addressed, bytes);
        let written = self.pass_root(sent, piece, bytes) + self.delays.write;
        self.counts.writes += 1;
        self.counts.writing += written.since(now);
        written
    }

    /// Forgets a connection that has ended, with its buffer.
    pub fn remove_connection(&mut self, connection: u32) {
        self.pages.remove_connection(connection);
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> Counts {
        Counts { iotlb_hits: self.iommu.hits, walks: self.iommu.walks, ..self.counts }
    }

    /// Returns the time at which the NIC has all translations of a piece.
    fn address(&mut self, now: SimTime, piece: Piece) -> SimTime {
        if !self.uses_ats {
            return now;
        }
        let Self { pages, atc, requests, iommu, one_way, counts, .. } = self;
        let known = pages.frames(piece).map(|frame| {
            if let Some(known) = atc.look_up(frame) {
                counts.atc_hits += 1;
                return known;
            }
            counts.atc_misses += 1;
            let known =
                requests.serve(now, |sent| iommu.look_up(sent + *one_way, frame) + *one_way);
            counts.translating += known.since(now);
            atc.insert(frame, known);
            known
        });
        known.fold(now, SimTime::max)
    }

    /// Returns the time at which bytes that left the NIC at `at` have passed the root complex, if their path has one.
    fn pass_root(&mut self, at: SimTime, piece: Piece, bytes: u64) -> SimTime {
        let to_gpu = self.target == Target::Gpu;
        if self.address_type == AddressType::Translated && to_gpu {
            return at;
        }
        let mut at = at + self.delays.detour;
        if self.address_type == AddressType::Untranslated {
            let Self { pages, iommu, .. } = self;
            at = pages.frames(piece).map(|frame| iommu.look_up(at, frame)).fold(at, SimTime::max);
        }
        if to_gpu { self.peer.carry(at, bytes) } else { at }
    }
}
