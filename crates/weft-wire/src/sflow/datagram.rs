//! The datagram and its samples.

use core::net::IpAddr;

use super::xdr::Xdr;
use super::{CounterSample, FlowSample, SflowError, VERSION, sample_format};

/// A datagram of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The agent's address, as the datagram states it.
    pub agent: IpAddr,
    /// Number of the agent in the router.
    pub sub_agent: u32,
    /// Number of this datagram among the sub-agent's, from any start; a gap means loss.
    pub sequence: u32,
    /// Time since the agent started in milliseconds.
    pub uptime_ms: u32,
    /// The datagram's samples.
    pub samples: Samples<'a>,
}

/// A sample of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample<'a> {
    /// A packet that was sampled at random.
    Flow(FlowSample<'a>),
    /// The counters of a source.
    Counters(CounterSample<'a>),
    /// A sample of another format, which is not parsed.
    Other {
        /// Number of the enterprise that defined the format; 0 is the standard.
        enterprise: u32,
        /// The format's number in that enterprise.
        format: u32,
    },
}

/// An iterator over the samples of a datagram, in order. It continues after an error in a sample's body
/// and ends after an error that hides the start of the next sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples<'a> {
    /// Number of samples that have not been parsed.
    left: u32,
    bytes: Xdr<'a>,
}

impl<'a> Datagram<'a> {
    /// Parses a datagram's header. The samples are parsed as [`Samples`] is iterated.
    ///
    /// # Errors
    /// Returns `Truncated`, `WrongVersion`, `UnknownAddressType`, or `TooMany` if the length cannot hold
    /// the announced samples.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SflowError> {
        let mut xdr = Xdr(bytes);
        let got = xdr.u32()?;
        if got != VERSION {
            return Err(SflowError::WrongVersion { got });
        }
        let agent = xdr.address()?;
        let [sub_agent, sequence, uptime_ms] = xdr.words()?;
        let left = xdr.count()?;
        Ok(Self { agent, sub_agent, sequence, uptime_ms, samples: Samples { left, bytes: xdr } })
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Result<Sample<'a>, SflowError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = match self.bytes.entry() {
            Ok(entry) => entry,
            Err(error) => {
                // The start of the next sample is unknown.
                self.left = 0;
                return Some(Err(error));
            }
        };
        let flow = |expanded| FlowSample::parse(entry.body, expanded).map(Sample::Flow);
        let counters = |expanded| CounterSample::parse(entry.body, expanded).map(Sample::Counters);
        Some(match (entry.enterprise, entry.format) {
            (0, sample_format::FLOW) => flow(false),
            (0, sample_format::EXPANDED_FLOW) => flow(true),
            (0, sample_format::COUNTERS) => counters(false),
            (0, sample_format::EXPANDED_COUNTERS) => counters(true),
            (enterprise, format) => Ok(Sample::Other { enterprise, format }),
        })
    }
}
