//! The packets of a Perfetto trace: tracks, slices, instants and counters (perfetto.dev, `trace_packet.proto`,
//! `track_event.proto`). Names are interned: a text is written once.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::encoder::Message;
use crate::time::SimTime;

/// The one sequence of packets in a trace, to which interned names belong.
const SEQUENCE: u64 = 1;

// Fields of TracePacket.
const PACKET: u32 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;

/// The interned texts by their field in InternedData.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Table {
    Category = 1,
    Event = 2,
    Annotation = 3,
}

/// The kind of an event, by its number in TrackEvent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// The identifier of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Track(u64);

impl Track {
    /// The greatest identifier.
    pub(super) const MAX: Self = Self(u64::MAX);

    #[cfg(test)]
    pub(super) fn number(number: u64) -> Self {
        Self(number)
    }
}

/// The value of an attribute, or of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// A count, or a number of bytes or picoseconds.
    Count(u64),
    /// A rate.
    Number(f64),
}

/// A name with its category and attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'a> {
    pub(super) name: &'a str,
    pub(super) category: &'a str,
    pub(super) attributes: &'a [(&'static str, Value)],
}

/// A trace that is being written.
#[derive(Debug)]
pub(super) struct Packets<W> {
    out: W,
    written: u64,
    tracks: u64,
    interned: BTreeMap<(Table, String), u64>,
    /// The texts that the current packet interns.
    new: Message,
    error: Option<io::Error>,
}

impl<W: Write> Packets<W> {
    pub(super) fn new(out: W) -> Self {
        let (interned, new) = (BTreeMap::new(), Message::default());
        Self { out, written: 0, tracks: 0, interned, new, error: None }
    }

    /// Returns the number of bytes so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Flushes the writer and returns it.
    ///
    /// # Errors
    /// The first error of the writer; nothing was written after it.
    pub(super) fn finish(mut self) -> io::Result<W> {
        match self.error {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }

    /// Adds a track under `parent`.
    pub(super) fn track(&mut self, parent: Option<Track>, name: &str) -> Track {
        self.describe(parent, name, None)
    }

    /// Adds a counter under `parent`; `unit` is shown with its values.
    pub(super) fn counter(&mut self, parent: Option<Track>, name: &str, unit: &str) -> Track {
        let mut counter = Message::default();
        match unit {
            "bytes" => counter.uint(3, 3),
            unit => counter.text(6, unit),
        };
        self.describe(parent, name, Some(&counter))
    }

    fn describe(&mut self, parent: Option<Track>, name: &str, counter: Option<&Message>) -> Track {
        self.tracks += 1;
        let track = Track(self.tracks);
        let mut descriptor = Message::default();
        descriptor.uint(1, track.0).text(2, name);
        if let Some(Track(parent)) = parent {
            descriptor.uint(5, parent);
        }
        if let Some(counter) = counter {
            descriptor.message(8, counter);
        }
        let mut packet = Message::default();
        packet.message(TRACK_DESCRIPTOR, &descriptor);
        self.push(packet);
        track
    }

    /// Adds the start of a slice.
    pub(super) fn begin(&mut self, at: SimTime, track: Track, label: Label<'_>) {
        self.event(at, track, Kind::Begin, Some(label), None);
    }

    /// Adds the end of the track's current slice.
    pub(super) fn end(&mut self, at: SimTime, track: Track) {
        self.event(at, track, Kind::End, None, None);
    }

    /// Adds an event without duration.
    pub(super) fn instant(&mut self, at: SimTime, track: Track, label: Label<'_>) {
        self.event(at, track, Kind::Instant, Some(label), None);
    }

    /// Adds a value of a counter.
    pub(super) fn count(&mut self, at: SimTime, track: Track, value: Value) {
        self.event(at, track, Kind::Counter, None, Some(value));
    }

    fn event(
        &mut self,
        at: SimTime,
        track: Track,
        kind: Kind,
        label: Option<Label<'_>>,
        value: Option<Value>,
    ) {
        let mut event = Message::default();
        event.uint(9, kind as u64).uint(11, track.0);
        match value {
            Some(Value::Count(count)) => event.uint(30, count),
            Some(Value::Number(number)) => event.double(44, number),
            None => &mut event,
        };
        if let Some(Label { name, category, attributes }) = label {
            event.uint(10, self.intern(Table::Event, name));
            event.uint(3, self.intern(Table::Category, category));
            for (name, value) in attributes {
                let mut attribute = Message::default();
                attribute.uint(1, self.intern(Table::Annotation, name));
                match *value {
                    Value::Count(count) => attribute.uint(3, count),
                    Value::Number(number) => attribute.double(5, number),
                };
                event.message(4, &attribute);
            }
        }
        let mut packet = Message::default();
        // A trace counts nanoseconds; the picoseconds are attributes.
        packet.uint(TIMESTAMP, at.as_picos() / 1000).message(TRACK_EVENT, &event);
        self.push(packet);
    }

    /// Returns the number of a text; the current packet defines it on its first use.
    fn intern(&mut self, table: Table, text: &str) -> u64 {
        let key = (table, text.to_owned());
        let next = self.interned.len() as u64 + 1;
        if let Some(&known) = self.interned.get(&key) {
            return known;
        }
        let mut entry = Message::default();
        entry.uint(1, next).text(2, text);
        self.new.message(table as u32, &entry);
        self.interned.insert(key, next);
        next
    }

    fn push(&mut self, mut packet: Message) {
        // 1 clears the interned texts of an earlier sequence, as of a file before this one; 2 says that they are needed.
        let flags = if self.written == 0 { 3 } else { 2 };
        packet.uint(SEQUENCE_ID, SEQUENCE).uint(SEQUENCE_FLAGS, flags);
        let new = std::mem::take(&mut self.new);
        if !new.is_empty() {
            packet.message(INTERNED_DATA, &new);
        }
        let mut trace = Message::default();
        trace.message(PACKET, &packet);
        self.written += trace.as_bytes().len() as u64;
        if self.error.is_none() {
            self.error = self.out.write_all(trace.as_bytes()).err();
        }
    }
}
