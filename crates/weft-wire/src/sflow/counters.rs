//! The counters of an interface.

use super::xdr::Xdr;
use super::{SflowError, Source, record_format, weft_format};

/// The counters of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSample<'a> {
    /// Number of this sample among the source's counter samples; a gap means loss.
    pub sequence: u32,
    /// The source of the counters.
    pub source: Source,
    /// The sample's records, some of which may be those of an interface.
    pub(super) records: Xdr<'a>,
    /// Number of the records.
    pub(super) count: u32,
}

/// The generic counters of an interface (`if_counters`; RFC 2233's ifTable and ifXTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IfCounters {
    /// The interface's ifIndex.
    pub index: u32,
    /// The interface's ifType; 6 is Ethernet.
    pub kind: u32,
    /// Speed in bits per second; 0 if unknown.
    pub speed: u64,
    /// Duplex mode: 0 unknown, 1 full duplex, 2 half duplex, 3 in only, 4 out only.
    pub direction: u32,
    /// Status bits: bit 0 is ifAdminStatus up, bit 1 is ifOperStatus up.
    pub status: u32,
    /// Number of bytes received.
    pub in_octets: u64,
    /// Number of unicast packets received.
    pub in_unicast: u32,
    /// Number of multicast packets received.
    pub in_multicast: u32,
    /// Number of broadcast packets received.
    pub in_broadcast: u32,
    /// Number of received packets that were valid but dropped.
    pub in_discards: u32,
    /// Number of received packets with errors.
    pub in_errors: u32,
    /// Number of received packets of an unknown protocol.
    pub in_unknown: u32,
    /// Number of bytes sent.
    pub out_octets: u64,
    /// Number of unicast packets sent.
    pub out_unicast: u32,
    /// Number of multicast packets sent.
    pub out_multicast: u32,
    /// Number of broadcast packets sent.
    pub out_broadcast: u32,
    /// Number of outbound packets that were valid but dropped.
    pub out_discards: u32,
    /// Number of outbound packets that could not be sent because of errors.
    pub out_errors: u32,
    /// Promiscuous mode (ifPromiscuousMode): 1 if the interface accepts packets for other stations too.
    pub promiscuous: u32,
}

/// The marks of an interface's queues: a record of Weft's own, which other collectors skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueMarks {
    /// Number of packets that the queues marked "congestion experienced", modulo 2^32.
    pub marked: u32,
}

impl QueueMarks {
    /// Length of the record in bytes.
    pub(super) const LEN: usize = 4;

    #[inline]
    fn parse(mut xdr: Xdr<'_>) -> Result<Self, SflowError> {
        Ok(Self { marked: xdr.u32()? })
    }
}

impl IfCounters {
    /// Length of the record in bytes.
    pub(super) const LEN: usize = 88;

    /// Returns `true` if the interface is up both administratively and operationally.
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

    /// Returns the generic counters of an interface, if the sample has them.
    ///
    /// # Errors
    /// Returns `Truncated` if the bytes end within a record, or an interface's record is too short.
    #[inline]
    pub fn interface(&self) -> Result<Option<IfCounters>, SflowError> {
        self.record(0, record_format::IF_COUNTERS)?.map(IfCounters::parse).transpose()
    }

    /// Returns the marks of an interface's queues, if the sample has them.
    ///
    /// # Errors
    /// Returns `Truncated` if the bytes end within a record, or the record of marks is too short.
    #[inline]
    pub fn queue_marks(&self) -> Result<Option<QueueMarks>, SflowError> {
        let record = self.record(weft_format::ENTERPRISE, weft_format::QUEUE_MARKS)?;
        record.map(QueueMarks::parse).transpose()
    }

    /// Returns the body of the first record of this format.
    #[inline]
    fn record(&self, enterprise: u32, format: u32) -> Result<Option<Xdr<'a>>, SflowError> {
        let mut xdr = self.records;
        for _ in 0..self.count {
            let record = xdr.entry()?;
            if (record.enterprise, record.format) == (enterprise, format) {
                return Ok(Some(record.body));
            }
        }
        Ok(None)
    }
}
