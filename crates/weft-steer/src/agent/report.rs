//! Encoding of a router's samples and counters into datagrams.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use weft_wire::sflow::{DatagramWriter, ETHERNET, FlowSample, Interface, RawHeader, Source};

use super::capture::{Direction, Sampled};
use super::interfaces::{InterfaceCounters, Interfaces};

/// Size of a datagram in bytes: with UDP and IPv6 headers it fits any Ethernet.
const MAX_DATAGRAM_BYTES: usize = 1400;

/// A sampled packet that is not sent yet.
#[derive(Clone, Debug)]
struct PendingSample {
    sequence: u32,
    interface: u32,
    direction: Direction,
    frame_len: u32,
    header: Vec<u8>,
}

/// The encoder of a router's samples, which also numbers them.
#[derive(Debug)]
pub(super) struct Reporter {
    address: IpAddr,
    rate: u32,
    /// Number of datagrams sent.
    sequence: u32,
    /// By interface, the sequence numbers of its samples and its number of packets.
    sources: BTreeMap<u32, SourceCounters>,
    /// Number of sampled packets that the kernel dropped.
    drops: u32,
    pending: Vec<PendingSample>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct SourceCounters {
    flow_samples: u32,
    counter_samples: u32,
    packets: u32,
}

impl Reporter {
    pub(super) fn new(address: IpAddr, rate: u32) -> Self {
        let (sources, pending) = (BTreeMap::new(), vec![]);
        Self { address, rate: rate.max(1), sequence: 0, sources, drops: 0, pending, bytes: 0 }
    }

    /// Adds a sampled packet; returns a datagram when one is full.
    pub(super) fn sample(&mut self, sampled: &Sampled<'_>, uptime: Duration) -> Option<Vec<u8>> {
        // Sample header, flow sample, record header and raw header of the compact form.
        const OVERHEAD: usize = 8 + 32 + 8 + 16;
        let length = OVERHEAD + sampled.header.len().next_multiple_of(4);
        let full = self.bytes + length > MAX_DATAGRAM_BYTES - 64;
        let datagram = if full { self.flush(uptime) } else { None };
        let counted = self.sources.entry(sampled.interface).or_default();
        counted.flow_samples = counted.flow_samples.wrapping_add(1);
        self.bytes += length;
        self.pending.push(PendingSample {
            sequence: counted.flow_samples,
            interface: sampled.interface,
            direction: sampled.direction,
            frame_len: sampled.frame_len,
            header: sampled.header.to_vec(),
        });
        datagram
    }

    /// Returns the pending samples as a datagram; `None` if there are none.
    pub(super) fn flush(&mut self, uptime: Duration) -> Option<Vec<u8>> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        self.bytes = 0;
        let sources = self.sources.clone();
        let (rate, drops) = (self.rate, self.drops);
        Some(self.datagram(uptime, |writer| {
            for it in &pending {
                let interface = Interface::Index(it.interface);
                let (input, output) = match it.direction {
                    Direction::In => (interface, Interface::Unknown),
                    Direction::Out => (Interface::Unknown, interface),
                };
                let sample = FlowSample {
                    sequence: it.sequence,
                    source: Source::interface(it.interface),
                    rate,
                    pool: sources.get(&it.interface).map_or(0, |counted| counted.packets),
                    drops,
                    input,
                    output,
                    header: Some(RawHeader {
                        protocol: ETHERNET,
                        frame_len: it.frame_len,
                        stripped: 0,
                        bytes: &it.header,
                    }),
                };
                assert!(writer.flow(&sample), "samples are counted before they are kept");
            }
        }))
    }

    /// Returns all interfaces' counters as datagrams.
    pub(super) fn counters(
        &mut self,
        interfaces: &Interfaces,
        dropped: u32,
        uptime: Duration,
    ) -> Vec<Vec<u8>> {
        /// Number of counter samples per datagram; each has 128 bytes, with marks.
        const PER_DATAGRAM: usize = (MAX_DATAGRAM_BYTES - 64) / 128;
        self.drops = self.drops.wrapping_add(dropped);
        let all: Vec<InterfaceCounters> = interfaces.by_index.values().copied().collect();
        all.chunks(PER_DATAGRAM)
            .map(|chunk| {
                let numbered: Vec<(u32, &InterfaceCounters)> = chunk
                    .iter()
                    .map(|it| {
                        let counters = &it.counters;
                        let counted = self.sources.entry(counters.index).or_default();
                        counted.counter_samples = counted.counter_samples.wrapping_add(1);
                        counted.packets = counters.in_unicast.wrapping_add(counters.out_unicast);
                        (counted.counter_samples, it)
                    })
                    .collect();
                self.datagram(uptime, |writer| {
                    for (sequence, InterfaceCounters { counters, marks }) in numbered {
                        let source = Source::interface(counters.index);
                        let fits = writer.counters(sequence, source, counters, *marks);
                        assert!(fits, "no more are put in one than fit");
                    }
                })
            })
            .collect()
    }

    fn datagram(
        &mut self,
        uptime: Duration,
        fill: impl FnOnce(&mut DatagramWriter<'_>),
    ) -> Vec<u8> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
        // The milliseconds wrap after 49 days, as in the standard.
        #[expect(clippy::cast_possible_truncation, reason = "it wraps")]
        let uptime = uptime.as_millis() as u32;
        let mut writer = DatagramWriter::new(&mut buffer, self.address, 0, self.sequence, uptime);
        fill(&mut writer);
        let length = writer.finish();
        buffer.truncate(length);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::sflow::{Datagram, IfCounters, QueueMarks, Sample};

    use super::*;

    #[test]
    fn samples_fill_datagrams_and_are_numbered_by_interface() {
        let mut reporter = Reporter::new([10, 0, 0, 1].into(), 16);
        let header = [7; 128];
        let mut datagrams = vec![];
        for number in 0..100 {
            let sampled = Sampled {
                interface: 2 + number % 2,
                direction: Direction::Out,
                frame_len: 1514,
                header: &header[..128 - (number as usize % 5)],
            };
            datagrams.extend(reporter.sample(&sampled, Duration::from_secs(1)));
        }
        datagrams.extend(reporter.flush(Duration::from_secs(2)));
        assert_eq!(reporter.flush(Duration::from_secs(3)), None);
        let mut seen = BTreeMap::<u32, u32>::new();
        for (number, datagram) in datagrams.iter().enumerate() {
            assert!(datagram.len() <= MAX_DATAGRAM_BYTES);
            let datagram = Datagram::parse(datagram).unwrap();
            assert_eq!(datagram.sequence as usize, number + 1);
            for sample in datagram.samples {
                let Ok(Sample::Flow(flow)) = sample else { panic!("{sample:?}") };
                let last = seen.entry(flow.source.index).or_default();
                assert_eq!(flow.sequence, *last + 1);
                *last += 1;
            }
        }
        assert_eq!(seen, BTreeMap::from([(2, 50), (3, 50)]));
    }

    #[test]
    fn every_interface_of_a_large_router_is_reported_with_the_marks_that_its_queues_count() {
        let marks = |index| (index % 7 > 0).then_some(QueueMarks { marked: 1000 + index });
        let interface = |index| {
            let counters = IfCounters { index, ..IfCounters::default() };
            (index, InterfaceCounters { counters, marks: marks(index) })
        };
        let interfaces =
            Interfaces { by_index: (1..=70).map(interface).collect(), marks_error: None };
        let mut reporter = Reporter::new([10, 0, 0, 1].into(), 16);
        let datagrams = reporter.counters(&interfaces, 0, Duration::ZERO);
        let samples = datagrams.iter().flat_map(|it| Datagram::parse(it).unwrap().samples);
        let reported = samples.map(|sample| match sample {
            Ok(Sample::Counters(it)) => {
                (it.interface().unwrap().unwrap().index, it.queue_marks().unwrap())
            }
            other => panic!("{other:?}"),
        });
        let expected: Vec<_> = (1..=70).map(|index| (index, marks(index))).collect();
        assert_eq!(reported.collect::<Vec<_>>(), expected);
    }
}
