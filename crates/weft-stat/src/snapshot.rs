//! The reader of a status file: a consistent copy of the whole file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use weft_ring::{Mapped, sequence};

use crate::draft::Draft;
use crate::field::LayoutError;
use crate::layout::{
    DIRECTORY, HEADER_WORDS, HEARTBEAT, LIFE, MAGIC, ProgramState, SEQUENCE, TABLES, VERSION,
};
use crate::records::{
    ChannelRecord, ConnectionRecord, ContextRecord, DeviceRecord, EventRecord, PathRecord,
    ProgramRecord, Record,
};

/// The content of a status file at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The time at which the program last serviced the node, ns since boot.
    pub heartbeat: u64,
    /// The state of the program.
    pub life: ProgramState,
    /// The program.
    pub program: ProgramRecord,
    /// The context, in a node's file.
    pub context: Option<ContextRecord>,
    /// The device, in a device's file.
    pub device: Option<DeviceRecord>,
    /// The channels of the context.
    pub channels: Vec<ChannelRecord>,
    /// The connections of the device.
    pub connections: Vec<ConnectionRecord>,
    /// The paths of the connections.
    pub paths: Vec<PathRecord>,
    /// The latest events, oldest first.
    pub events: Vec<EventRecord>,
}

/// Maximum attempts to read a file that is being written. A write takes microseconds of each tenth of a second.
const MAX_ATTEMPTS: u32 = 100;

/// Maximum bytes that are read of a file.
const MAX_BYTES: u64 = 256 << 20;

impl Snapshot {
    /// Reads a file that a program may be writing. The file is not mapped: if it shrinks, the read fails and the reader
    /// survives.
    ///
    /// # Errors
    /// Returns an error if it is not a status file, or `Busy` if the program was writing it at each of 100 attempts.
    pub fn read(file: &File) -> Result<Self, LayoutError> {
        for attempt in 0..MAX_ATTEMPTS {
            let word = || word_of(file, SEQUENCE);
            if let Some(bytes) = sequence::read::<Mapped, _, _>(word, || bytes_of(file))? {
                return Self::parse(&bytes);
            }
            if attempt > 0 {
                std::thread::yield_now();
            }
        }
        Err(LayoutError::Busy)
    }

    /// Pushes all records of this snapshot.
    pub fn draft(&self, draft: &mut Draft) {
        draft.push(&self.program);
        self.context.iter().for_each(|record| draft.push(record));
        self.device.iter().for_each(|record| draft.push(record));
        self.channels.iter().for_each(|record| draft.push(record));
        self.connections.iter().for_each(|record| draft.push(record));
        self.paths.iter().for_each(|record| draft.push(record));
        self.events.iter().for_each(|record| draft.push(record));
    }

    /// Returns the bytes of a file with this content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut draft = Draft::default();
        draft.clear();
        self.draft(&mut draft);
        let words = draft.words_mut();
        (words[0], words[1]) = (MAGIC, VERSION);
        (words[HEARTBEAT], words[LIFE]) = (self.heartbeat, self.life as u64);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Parses the bytes of a file, which may be untrusted.
    ///
    /// # Errors
    /// Returns an error if they are not a status file.
    pub fn parse(bytes: &[u8]) -> Result<Self, LayoutError> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .collect();
        if words.first() != Some(&MAGIC) {
            return Err(LayoutError::Magic);
        }
        within("the header", HEADER_WORDS as u64, bytes.len() as u64)?;
        if words[1] != VERSION {
            return Err(LayoutError::Version { got: words[1], known: VERSION });
        }
        let program = optional(&words)?;
        let got = 0;
        Ok(Self {
            heartbeat: words[HEARTBEAT],
            life: ProgramState::of(words[LIFE]),
            program: program.ok_or(LayoutError::NotOne { table: ProgramRecord::NAME, got })?,
            context: optional::<ContextRecord>(&words)?,
            device: optional::<DeviceRecord>(&words)?,
            channels: table::<ChannelRecord>(&words)?,
            connections: table::<ConnectionRecord>(&words)?,
            paths: table::<PathRecord>(&words)?,
            events: table::<EventRecord>(&words)?,
        })
    }
}

/// Returns the only record of a table, or `None` if it is empty.
fn optional<R: Record>(words: &[u64]) -> Result<Option<R>, LayoutError> {
    let mut all = table::<R>(words)?;
    match all.len() {
        0 | 1 => Ok(all.pop()),
        got => Err(LayoutError::NotOne { table: R::NAME, got: got as u64 }),
    }
}

fn table<R: Record>(words: &[u64]) -> Result<Vec<R>, LayoutError> {
    let [at, count, each] = [0, 1, 2].map(|entry| words[DIRECTORY + 3 * R::TABLE + entry]);
    if count == 0 {
        return Ok(Vec::new());
    }
    if each < R::WORDS as u64 {
        let (table, min) = (R::NAME, R::WORDS as u64);
        return Err(LayoutError::RecordWords { table, got: each, min });
    }
    let end = count.checked_mul(each).and_then(|words| words.checked_add(at)).unwrap_or(u64::MAX);
    within(TABLES[R::TABLE].name, end, words.len() as u64 * 8)?;
    let place = |word: u64| usize::try_from(word).expect("within a file that was read");
    let records = words[place(at)..place(end)].chunks_exact(place(each));
    records.map(|record| R::take(&record[..R::WORDS])).collect()
}

/// Checks that the words up to `end` exist.
fn within(what: &'static str, end: u64, bytes: u64) -> Result<(), LayoutError> {
    let needed = end.saturating_mul(8);
    if needed > bytes { Err(LayoutError::Short { what, needed, got: bytes }) } else { Ok(()) }
}

/// Returns the length of a file in bytes.
fn length_of(file: &File) -> u64 {
    file.metadata().map_or(0, |about| about.len())
}

fn word_of(file: &File, at: usize) -> Result<u64, LayoutError> {
    let mut word = [0; 8];
    let short = |_| LayoutError::Short {
        what: "the header",
        needed: 8 * HEADER_WORDS as u64,
        got: length_of(file),
    };
    file.read_exact_at(&mut word, 8 * at as u64).map_err(short)?;
    Ok(u64::from_le_bytes(word))
}

fn bytes_of(file: &File) -> Result<Vec<u8>, LayoutError> {
    bytes_to(file, length_of(file).min(MAX_BYTES))
}

/// Returns the first `length` bytes.
fn bytes_to(file: &File, length: u64) -> Result<Vec<u8>, LayoutError> {
    let mut bytes = vec![0; usize::try_from(length).expect("bounded above")];
    let short =
        |_| LayoutError::Short { what: "the content", needed: length, got: length_of(file) };
    file.read_exact_at(&mut bytes, 0).map_err(short)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_reported_with_its_length() {
        let path = std::env::temp_dir().join(format!("weft-stat-{}-short", std::process::id()));
        std::fs::write(&path, [0; 21]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let needed = 8 * HEADER_WORDS as u64;
        let short = LayoutError::Short { what: "the header", needed, got: 21 };
        assert_eq!(Snapshot::read(&file), Err(short));
        // The file shrank after its length was read.
        let short = LayoutError::Short { what: "the content", needed: 40, got: 21 };
        assert_eq!(bytes_to(&file, 40), Err(short));
        assert_eq!(bytes_to(&file, 21), Ok(vec![0; 21]));
    }
}
