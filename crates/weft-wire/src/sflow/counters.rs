//! Counters of an interface.

use super::xdr::Xdr;
use super::{SflowError, Source, record_format};

/// What an agent counted at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSample<'a> {
    /// Counts the counter samples of this source; a gap is a loss.
    pub sequence: u32,
    /// What was counted at.
    pub source: Source,
    /// Records, of which some may be an interface's.
    pub(super) records: Xdr<'a>,
    pub(super) count: u32,
}

/// Generic counters of an interface (`if_counters`; RFC 2233's ifTable and ifXTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IfCounters {
    /// ifIndex.
    pub index: u32,
    /// ifType: 6 is Ethernet.
    pub kind: u32,
    /// Bits a second; 0 where unknown.
    pub speed: u64,
    /// 0 unknown, 1 full duplex, 2 half duplex, 3 in only, 4 out only.
    pub direction: u32,
    /// Bit 0: up by configuration; bit 1: up in fact.
    pub status: u32,
    /// Bytes received.
    pub in_octets: u64,
    /// Unicast packets received.
    pub in_unicast: u32,
    /// Multicast packets received.
    pub in_multicast: u32,
    /// Broadcast packets received.
    pub in_broadcast: u32,
    /// Received packets dropped though nothing was wrong with them.
    pub in_discards: u32,
    /// Received packets that were damaged.
    pub in_errors: u32,
    /// Received packets of an unknown protocol.
    pub in_unknown: u32,
    /// Bytes sent.
    pub out_octets: u64,
    /// Unicast packets sent.
    pub out_unicast: u32,
    /// Multicast packets sent.
    pub out_multicast: u32,
    /// Broadcast packets sent.
    pub out_broadcast: u32,
    /// Packets dropped instead of sent, though nothing was wrong with them.
    pub out_discards: u32,
    /// Packets that could not be sent for an error.
    pub out_errors: u32,
    /// 1 where the interface takes packets for others too.
    pub promiscuous: u32,
}

impl IfCounters {
    /// The record's length, bytes.
    pub(super) const LEN: usize = 88;

    /// Whether packets can pass: up by configuration and in fact.
    pub const fn is_up(&self) -> bool {
        self.status & 3 == 3
    }

    #[inline]
    fn parse(mut xdr: Xdr<'_>) -> Result<Self, SflowError> {
        let [index, kind] = xdr.words()?;
        let speed = xdr.u64()?;
        let [direction, status] = xdr.words()?;
        let in_octets = xdr.u64()?;
        let [in_unicast, in_multicast, in_broadcast, in_discards, in_errors, in_unknown] =
            xdr.words()?;
        let out_octets = xdr.u64()?;
        let [out_unicast, out_multicast, out_broadcast, out_discards, out_errors, promiscuous] =
            xdr.words()?;
        Ok(Self {
            index,
            kind,
            speed,
            direction,
            status,
            in_octets,
            in_unicast,
            in_multicast,
            in_broadcast,
            in_discards,
            in_errors,
            in_unknown,
            out_octets,
            out_unicast,
            out_multicast,
            out_broadcast,
            out_discards,
            out_errors,
            promiscuous,
        })
    }
}

impl<'a> CounterSample<'a> {
    #[inline]
    pub(super) fn parse(mut xdr: Xdr<'a>, expanded: bool) -> Result<Self, SflowError> {
        let sequence = xdr.u32()?;
        let source = Source::parse(&mut xdr, expanded)?;
        let count = xdr.count()?;
        Ok(Self { sequence, source, records: xdr, count })
    }

    /// The generic counters of an interface, where the sample has them.
    ///
    /// # Errors
    /// `Truncated` when a record is shorter than it says.
    #[inline]
    pub fn interface(&self) -> Result<Option<IfCounters>, SflowError> {
        let mut xdr = self.records;
        for _ in 0..self.count {
            let record = xdr.entry()?;
            if (record.enterprise, record.format) == (0, record_format::IF_COUNTERS) {
                return IfCounters::parse(record.body).map(Some);
            }
        }
        Ok(None)
    }
}
