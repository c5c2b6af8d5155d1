//! The writer of datagrams, in the compact forms.

use core::net::IpAddr;

use super::{
    FlowSample, IfCounters, QueueMarks, Source, VERSION, record_format, sample_format, weft_format,
};

/// A writer that fills a buffer with a datagram, sample by sample.
///
/// ```
/// use weft_wire::sflow::{Datagram, DatagramWriter, IfCounters, Source};
///
/// let mut buffer = [0; 1400];
/// let mut writer = DatagramWriter::new(&mut buffer, [10, 0, 0, 1].into(), 0, 1, 1000);
/// let counters = IfCounters { index: 3, speed: 100_000_000_000, ..IfCounters::default() };
/// assert!(writer.counters(1, Source::interface(3), &counters, None));
/// let length = writer.finish();
/// assert_eq!(Datagram::parse(&buffer[..length])?.samples.count(), 1);
/// # Ok::<(), weft_wire::sflow::SflowError>(())
/// ```
#[derive(Debug)]
pub struct DatagramWriter<'a> {
    out: &'a mut [u8],
    /// Number of bytes written.
    len: usize,
    /// Offset of the number of samples in bytes.
    count_at: usize,
    samples: u32,
}

impl<'a> DatagramWriter<'a> {
    /// Begins a datagram; the arguments are [`Datagram`](super::Datagram)'s fields.
    ///
    /// # Panics
    /// Panics if the header does not fit; 40 bytes always suffice.
    pub fn new(
        out: &'a mut [u8],
        agent: IpAddr,
        sub_agent: u32,
        sequence: u32,
        uptime_ms: u32,
    ) -> Self {
        let mut writer = Self { out, len: 0, count_at: 0, samples: 0 };
        writer.word(VERSION);
        match agent {
            IpAddr::V4(address) => {
                writer.word(1);
                writer.bytes(&address.octets());
            }
            IpAddr::V6(address) => {
                writer.word(2);
                writer.bytes(&address.octets());
            }
        }
        writer.words([sub_agent, sequence, uptime_ms]);
        writer.count_at = writer.len;
        writer.word(0);
        writer
    }

    /// Adds a flow sample with its header. Returns `false` and writes nothing if it does not fit. The compact form
    /// truncates the source to 8 bits of kind and 24 of index, and an interface's value to 30 bits.
    #[must_use]
    pub fn flow(&mut self, sample: &FlowSample<'_>) -> bool {
        const FIXED: usize = 8 * 4;
        let header =
            sample.header.map_or(0, |header| 4 * 6 + header.bytes.len().next_multiple_of(4));
        if !self.begin(sample_format::FLOW, FIXED + header) {
            return false;
        }
        let source = source_word(sample.source);
        let interfaces = [sample.input.word(), sample.output.word()];
        self.words([sample.sequence, source, sample.rate, sample.pool, sample.drops]);
        self.words(interfaces);
        self.word(u32::from(sample.header.is_some()));
        if let Some(raw) = sample.header {
            let length = length_word(raw.bytes.len());
            let body = length_word(16 + raw.bytes.len().next_multiple_of(4));
            self.words([
                record_format::RAW_HEADER,
                body,
                raw.protocol,
                raw.frame_len,
                raw.stripped,
                length,
            ]);
            self.bytes(raw.bytes);
            self.bytes(&[0; 3][..raw.bytes.len().wrapping_neg() % 4]);
        }
        true
    }

    /// Adds the counters of an interface, and the marks of its queues if they are known. Returns `false` and writes
    /// nothing if they do not fit. The source is truncated as in [`flow`](Self::flow).
    #[must_use]
    pub fn counters(
        &mut self,
        sequence: u32,
        source: Source,
        counters: &IfCounters,
        marks: Option<QueueMarks>,
    ) -> bool {
        const FIXED: usize = 3 * 4;
        const RECORD: usize = 2 * 4;
        let marks_length = marks.map_or(0, |_| RECORD + QueueMarks::LEN);
        if !self.begin(sample_format::COUNTERS, FIXED + RECORD + IfCounters::LEN + marks_length) {
            return false;
        }
        self.words([sequence, source_word(source), 1 + u32::from(marks.is_some())]);
        self.interface(counters);
        if let Some(QueueMarks { marked }) = marks {
            let format = weft_format::ENTERPRISE << 12 | weft_format::QUEUE_MARKS;
            self.words([format, length_word(QueueMarks::LEN), marked]);
        }
        true
    }

    /// Appends the record of an interface's counters.
    fn interface(&mut self, it: &IfCounters) {
        self.words([record_format::IF_COUNTERS, length_word(IfCounters::LEN)]);
        self.words([it.index, it.kind]);
        self.bytes(&it.speed.to_be_bytes());
        self.words([it.direction, it.status]);
        self.bytes(&it.in_octets.to_be_bytes());
        let received = [it.in_unicast, it.in_multicast, it.in_broadcast];
        self.words(received);
        self.words([it.in_discards, it.in_errors, it.in_unknown]);
        self.bytes(&it.out_octets.to_be_bytes());
        let sent = [it.out_unicast, it.out_multicast, it.out_broadcast];
        self.words(sent);
        self.words([it.out_discards, it.out_errors, it.promiscuous]);
    }

    /// Returns the number of samples written.
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// Ends the datagram and returns its length in bytes.
    pub fn finish(self) -> usize {
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&self.samples.to_be_bytes());
        self.len
    }

    /// Begins a sample whose body has `length` bytes. Returns `false` if it does not fit.
    fn begin(&mut self, format: u32, length: usize) -> bool {
        if self.out.len() - self.len < 8 + length {
            return false;
        }
        self.words([format, length_word(length)]);
        self.samples += 1;
        true
    }

    /// Appends a word.
    fn word(&mut self, word: u32) {
        self.bytes(&word.to_be_bytes());
    }

    fn words<const N: usize>(&mut self, words: [u32; N]) {
        words.into_iter().for_each(|word| self.word(word));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Returns the word of a source in the compact form.
const fn source_word(source: Source) -> u32 {
    source.kind << 24 | (source.index & 0x00ff_ffff)
}

fn length_word(length: usize) -> u32 {
    u32::try_from(length).expect("a sample is shorter than 4 GiB")
}
