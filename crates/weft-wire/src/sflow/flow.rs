//! The flow sample: a packet that was sampled at random, with its interfaces and first bytes.

use super::xdr::Xdr;
use super::{SflowError, record_format};

/// A packet that was sampled at random, one in `rate` on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// Number of this sample among the source's flow samples; a gap means loss.
    pub sequence: u32,
    /// The source of the sample.
    pub source: Source,
    /// Sampling rate: one packet in `rate` is sampled; never zero.
    pub rate: u32,
    /// Number of packets that could have been sampled, modulo 2^32.
    pub pool: u32,
    /// Number of samples that the agent dropped for lack of resources, modulo 2^32.
    pub drops: u32,
    /// The input interface.
    pub input: Interface,
    /// The output interface.
    pub output: Interface,
    /// The packet's first bytes; `None` if the agent sends other records only.
    pub header: Option<RawHeader<'a>>,
}

/// The data source of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Kind of the index: 0 an interface (ifIndex), 1 a VLAN, 2 a physical entity.
    pub kind: u32,
    /// The index.
    pub index: u32,
}

/// The input or output interface of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The router names no interface.
    Unknown,
    /// The interface's ifIndex.
    Index(u32),
    /// The packet was dropped, for this reason (the standard's numbers).
    Dropped(u32),
    /// The packet was sent on several interfaces; their number, or 0 if unknown.
    Several(u32),
}

/// The first bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHeader<'a> {
    /// Protocol of the first header: [`ETHERNET`](super::ETHERNET), [`IPV4`](super::IPV4), ….
    pub protocol: u32,
    /// Length of the packet before sampling in bytes, including the stripped bytes.
    pub frame_len: u32,
    /// Number of bytes that were removed before sampling, such as Ethernet's checksum.
    pub stripped: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Source {
    /// Returns the interface with this ifIndex.
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
    /// Mask of the value in the compact form. The value of all ones is the router itself ("internal").
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
            // The other format is reserved.
            (_, _) => Self::Unknown,
        })
    }

    /// Returns the word of the compact form.
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
