//! A datagram and the samples in it.

use core::net::IpAddr;

use super::xdr::Xdr;
use super::{CounterSample, FlowSample, SflowError, VERSION, sample_format};

/// A datagram of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The router's address, as it calls itself.
    pub agent: IpAddr,
    /// Which of the router's agents.
    pub sub_agent: u32,
    /// Counts the datagrams of this sub-agent, from any number on; a gap is a loss.
    pub sequence: u32,
    /// Milliseconds since the agent started.
    pub uptime_ms: u32,
    /// What it tells.
    pub samples: Samples<'a>,
}

/// A sample of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample<'a> {
    /// A packet that was drawn at random.
    Flow(FlowSample<'a>),
    /// Counters of an interface.
    Counters(CounterSample<'a>),
    /// Something of no interest here.
    Other {
        /// Who defined it; 0 is the standard.
        enterprise: u32,
        /// What it is, by its definer's numbers.
        format: u32,
    },
}

/// The samples of a datagram, in its order. After an error that says where the next begins, reading goes
/// on; after one that does not, it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples<'a> {
    left: u32,
    bytes: Xdr<'a>,
}

impl<'a> Datagram<'a> {
    /// Reads a datagram's header. Its samples are read as they are asked for.
    ///
    /// # Errors
    /// `Truncated`, `WrongVersion`, `UnknownAddressType`; `TooMany` samples for its length.
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
                // Where the next sample begins is unknown.
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
