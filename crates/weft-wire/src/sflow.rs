//! The reader and writer of sFlow version 5 (sflow.org, "sFlow Version 5", July 2004): the samples of
//! forwarded packets and of interface counters that routers send to UDP port 6343.
//!
//! ```text
//! datagram: 5 | agent's address | sub-agent | sequence | uptime | samples
//! sample:   format | length | flow sample | counter sample | other, skipped by its length
//! flow:     sequence | source | rate | pool | drops | input | output | records (raw packet header, …)
//! counters: sequence | source | records (generic interface counters, marks of queues, …)
//! ```
//!
//! Everything is XDR (RFC 4506): big-endian words of four bytes. [`Datagram::parse`] borrows from the
//! bytes and copies nothing; unknown samples and records are skipped by their lengths, as the standard
//! requires. A malformed sample is an error by itself: the samples after it are still read. Expanded
//! samples (formats 3 and 4) give the same values as compact ones. [`DatagramWriter`] writes the compact
//! forms.
//!
//! The standard has no counter of congestion marks. [`QueueMarks`] is a record of Weft's own, which other collectors skip.

mod counters;
mod datagram;
mod error;
mod flow;
mod packet;
mod write;
mod xdr;

pub use counters::{CounterSample, IfCounters, QueueMarks};
pub use datagram::{Datagram, Sample, Samples};
pub use error::SflowError;
pub use flow::{FlowSample, Interface, RawHeader, Source};
pub use packet::SampledPacket;
pub use write::DatagramWriter;

/// The UDP port of collectors (IANA).
pub const PORT: u16 = 6343;

/// The protocol of a raw packet header: Ethernet (`header_protocol` of the standard).
pub const ETHERNET: u32 = 1;
/// The protocol of a raw packet header: IPv4, without a link-layer header.
pub const IPV4: u32 = 11;
/// The protocol of a raw packet header: IPv6, without a link-layer header.
pub const IPV6: u32 = 12;

/// The supported version.
const VERSION: u32 = 5;

/// The formats of samples, enterprise 0.
mod sample_format {
    pub(super) const FLOW: u32 = 1;
    pub(super) const COUNTERS: u32 = 2;
    pub(super) const EXPANDED_FLOW: u32 = 3;
    pub(super) const EXPANDED_COUNTERS: u32 = 4;
}

/// The formats of records, enterprise 0.
mod record_format {
    pub(super) const RAW_HEADER: u32 = 1;
    pub(super) const IF_COUNTERS: u32 = 1;
}

/// The formats of Weft's own records.
mod weft_format {
    /// The largest enterprise number that a format has room for. IANA numbers enterprises upwards and has not assigned it.
    pub(super) const ENTERPRISE: u32 = 0xf_ffff;
    pub(super) const QUEUE_MARKS: u32 = 1;
}

#[cfg(test)]
mod tests;
