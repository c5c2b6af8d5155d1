//! The beginning of a file: words that have their place, and the directory of its tables.

use crate::field::FieldRow;
use crate::records::{
    ChannelRecord, ConnectionRecord, ContextRecord, DeviceRecord, EventRecord, PathRecord,
    ProgramRecord, Record,
};

/// The first word: `WEFTSTAT`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEFTSTAT");

/// The second: the layout that this describes. Fields may be appended to records without a new version.
pub const VERSION: u64 = 1;

/// Words before the directory.
pub const HEADER: &[FieldRow] = &[
    FieldRow { name: "magic", words: 1, about: "The text `WEFTSTAT`" },
    FieldRow { name: "version", words: 1, about: "Of the layout: 1" },
    FieldRow {
        name: "sequence",
        words: 1,
        about: "Odd while the words from the directory on are being written; another value after each time",
    },
    FieldRow {
        name: "heartbeat",
        words: 1,
        about: "When the program last looked after the node, ns since boot. Written on its own",
    },
    FieldRow {
        name: "life",
        words: 1,
        about: "0 running, 1 asleep until something happens, 2 ended as it should. Written on its own",
    },
];

/// The directory: for each table the word it begins at, how many records it has, and words of each.
pub const DIRECTORY: usize = 5;

pub(crate) const SEQUENCE: usize = 2;
pub(crate) const HEARTBEAT: usize = 3;
pub(crate) const LIFE: usize = 4;

/// A table, for listings.
#[derive(Clone, Copy, Debug)]
pub struct TableRow {
    /// What its records are.
    pub name: &'static str,
    /// Words of one.
    pub words: usize,
    /// Their fields.
    pub fields: &'static [FieldRow],
}

const fn table<R: Record>() -> TableRow {
    TableRow { name: R::NAME, words: R::WORDS, fields: R::FIELDS }
}

/// Every table, in the directory's order.
pub const TABLES: &[TableRow] = &[
    table::<ProgramRecord>(),
    table::<ContextRecord>(),
    table::<DeviceRecord>(),
    table::<ChannelRecord>(),
    table::<ConnectionRecord>(),
    table::<PathRecord>(),
    table::<EventRecord>(),
];

/// Words before the first record.
pub const HEADER_WORDS: usize = DIRECTORY + 3 * TABLES.len();

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// It runs; how long ago it last looked after the node says more.
    Running,
    /// It sleeps until something happens.
    Asleep,
    /// It ended as it should.
    Ended,
}

impl Life {
    pub(crate) const fn of(word: u64) -> Self {
        match word {
            1 => Self::Asleep,
            2 => Self::Ended,
            _ => Self::Running,
        }
    }
}
