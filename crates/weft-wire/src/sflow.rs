//! sFlow version 5 (sflow.org, "sFlow Version 5", July 2004): what routers tell of the packets they
//! forward and of their interfaces, over UDP port 6343.
//!
//! ```text
//! datagram: 5 | agent's address | sub-agent | sequence | uptime | samples
//! sample:   format | length | flow sample | counter sample | something else, skipped by its length
//! flow:     sequence | source | rate | pool | drops | input | output | records (raw packet header, …)
//! counters: sequence | source | records (generic interface counters, …)
//! ```
//!
//! Everything is XDR (RFC 4506): big-endian words of four bytes. [`Datagram::parse`] borrows from the
//! bytes and copies nothing; samples and records it does not know are skipped by their lengths, as the
//! standard asks. A malformed sample is an error of its own: those after it are still read. Expanded
//! samples (formats 3 and 4) come out as the same values as compact ones. [`DatagramWriter`] writes the
//! compact forms.

mod counters;
mod datagram;
mod error;
mod flow;
mod packet;
mod write;
mod xdr;

pub use counters::{CounterSample, IfCounters};
pub use datagram::{Datagram, Sample, Samples};
pub use error::SflowError;
pub use flow::{FlowSample, Interface, RawHeader, Source};
pub use packet::SampledPacket;
pub use write::DatagramWriter;

/// The UDP port of collectors (IANA).
pub const PORT: u16 = 6343;

/// The protocol of a raw packet header: Ethernet (`header_protocol` of the standard).
pub const ETHERNET: u32 = 1;
/// The protocol of a raw packet header: IPv4, with nothing before it.
pub const IPV4: u32 = 11;
/// An IPv6 packet without a frame.
pub const IPV6: u32 = 12;

/// The only version that is read and written.
const VERSION: u32 = 5;

/// Formats of samples, enterprise 0.
mod sample_format {
    pub(super) const FLOW: u32 = 1;
    pub(super) const COUNTERS: u32 = 2;
    pub(super) const EXPANDED_FLOW: u32 = 3;
    pub(super) const EXPANDED_COUNTERS: u32 = 4;
}

/// Formats of records, enterprise 0.
mod record_format {
    pub(super) const RAW_HEADER: u32 = 1;
    pub(super) const IF_COUNTERS: u32 = 1;
}

#[cfg(test)]
mod tests;
