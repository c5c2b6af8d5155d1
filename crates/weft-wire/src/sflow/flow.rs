//! A packet that was drawn at random, and what is known of it.

use super::xdr::Xdr;
use super::{SflowError, record_format};

/// A packet that was drawn at random among `rate` on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// Counts the flow samples of this source; a gap is a loss.
    pub sequence: u32,
    /// What was sampled.
    pub source: Source,
    /// One packet in so many is drawn; never zero.
    pub rate: u32,
    /// Packets that could have been drawn, modulo 2^32.
    pub pool: u32,
    /// Drawn packets that were dropped for want of resources, modulo 2^32.
    pub drops: u32,
    /// Where the packet came in.
    pub input: Interface,
    /// Where it left.
    pub output: Interface,
    /// The packet's first bytes; none where the agent gives something else of it.
    pub header: Option<RawHeader<'a>>,
}

/// What a sample is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The kind of index: 0 an interface (ifIndex), 1 a VLAN, 2 a part of the machine.
    pub kind: u32,
    /// The index.
    pub index: u32,
}

/// Where a packet came in or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The router does not say.
    Unknown,
    /// The interface's ifIndex.
    Index(u32),
    /// It was dropped, for this reason (the standard's numbers).
    Dropped(u32),
    /// It left by several interfaces: so many, or 0 for an unknown number.
    Several(u32),
}

/// A packet's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHeader<'a> {
    /// What they begin with: [`ETHERNET`](super::ETHERNET), [`IPV4`](super::IPV4), ….
    pub protocol: u32,
    /// The packet's length where it was sampled, bytes, with what was stripped.
    pub frame_len: u32,
    /// Bytes that were taken away before sampling, such as Ethernet's checksum.
    pub stripped: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Source {
    /// An interface by its ifIndex.
    pub const fn interface(index: u32) -> Self {
        Self { kind: 0, index }
    }

    #[inline]
    pub(super) fn parse(xdr: &mut Xdr<'_>, expanded: bool) -> Result<Self, SflowError> {
        if expanded {
            let [kind, index] = xdr.words()?;
            return Ok(Self { kind, index });
        }
        let word = xdr.u32()?;
        Ok(Self { kind: word >> 24, index: word & 0x00ff_ffff })
    }
}

impl Interface {
    /// An expanded ifIndex of "internal", which the compact form writes in 30 bits.
    const INTERNAL: u32 = 0x3fff_ffff;

    #[inline]
    fn parse(xdr: &mut Xdr<'_>, expanded: bool) -> Result<Self, SflowError> {
        let (format, value) = if expanded {
            let [format, value] = xdr.words()?;
            (format, value)
        } else {
            let word = xdr.u32()?;
            (word >> 30, word & Self::INTERNAL)
        };
        Ok(match (format, value) {
            (0, 0) => Self::Unknown,
            (0, index) => Self::Index(index),
            (1, reason) => Self::Dropped(reason),
            (2, count) => Self::Several(count),
            // Reserved.
            (_, _) => Self::Unknown,
        })
    }

    /// The compact form's word.
    pub(super) const fn word(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Index(index) => index & Self::INTERNAL,
            Self::Dropped(reason) => 1 << 30 | (reason & Self::INTERNAL),
            Self::Several(count) => 2 << 30 | (count & Self::INTERNAL),
        }
    }
}

impl<'a> FlowSample<'a> {
    #[inline]
    pub(super) fn parse(mut xdr: Xdr<'a>, expanded: bool) -> Result<Self, SflowError> {
        let sequence = xdr.u32()?;
        let source = Source::parse(&mut xdr, expanded)?;
        let [rate, pool, drops] = xdr.words()?;
        if rate == 0 {
            return Err(SflowError::ZeroRate);
        }
        let input = Interface::parse(&mut xdr, expanded)?;
        let output = Interface::parse(&mut xdr, expanded)?;
        let mut header = None;
        for _ in 0..xdr.count()? {
            let record = xdr.entry()?;
            if (record.enterprise, record.format) == (0, record_format::RAW_HEADER) {
                header = Some(RawHeader::parse(record.body)?);
            }
        }
        Ok(Self { sequence, source, rate, pool, drops, input, output, header })
    }
}

impl<'a> RawHeader<'a> {
    #[inline]
    fn parse(mut xdr: Xdr<'a>) -> Result<Self, SflowError> {
        let [protocol, frame_len, stripped] = xdr.words()?;
        Ok(Self { protocol, frame_len, stripped, bytes: xdr.opaque()? })
    }
}
