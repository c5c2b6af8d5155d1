//! The header of a file: words at fixed positions, and the directory of its tables.

use crate::field::FieldRow;
use crate::records::{
    ChannelRecord, ConnectionRecord, ContextRecord, DeviceRecord, EventRecord, PathRecord,
    ProgramRecord, Record,
};

/// The first word: `WEFTSTAT`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEFTSTAT");

/// The second word: the version of this layout. Appending fields to records does not change it.
pub const VERSION: u64 = 1;

/// The words before the directory.
pub const HEADER: &[FieldRow] = &[
    FieldRow { name: "magic", words: 1, about: "The text `WEFTSTAT`" },
    FieldRow { name: "version", words: 1, about: "Version of the layout: 1" },
    FieldRow {
        name: "sequence",
        words: 1,
        about: "Odd while the words from the directory on are being written; each write changes it",
    },
    FieldRow {
        name: "heartbeat",
        words: 1,
        about: "Time at which the program last serviced the node, ns since boot. Written independently of `sequence`",
    },
    FieldRow {
        name: "life",
        words: 1,
        about: "0 running, 1 asleep until an event, 2 ended in order. Written independently of `sequence`",
    },
];

/// The first word of the directory. A table's entry has three words: its first word, its number of records, and the
/// words per record.
pub const DIRECTORY: usize = 5;

pub(crate) const SEQUENCE: usize = 2;
pub(crate) const HEARTBEAT: usize = 3;
pub(crate) const LIFE: usize = 4;

/// A table, for documentation.
#[derive(Clone, Copy, Debug)]
pub struct TableRow {
    /// The name of its records.
    pub name: &'static str,
    /// Number of words per record.
    pub words: usize,
    /// The fields of a record.
    pub fields: &'static [FieldRow],
}

const fn table<R: Record>() -> TableRow {
    TableRow { name: R::NAME, words: R::WORDS, fields: R::FIELDS }
}

/// All tables, in the directory's order.
pub const TABLES: &[TableRow] = &[
    table::<ProgramRecord>(),
    table::<ContextRecord>(),
    table::<DeviceRecord>(),
    table::<ChannelRecord>(),
    table::<ConnectionRecord>(),
    table::<PathRecord>(),
    table::<EventRecord>(),
];

/// Number of words before the first record.
pub const HEADER_WORDS: usize = DIRECTORY + 3 * TABLES.len();

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramState {
    /// The program runs; the heartbeat shows whether it still services the node.
    Running,
    /// The program sleeps until an event.
    Asleep,
    /// The program ended in order.
    Ended,
}

impl ProgramState {
    pub(crate) const fn of(word: u64) -> Self {
        match word {
            1 => Self::Asleep,
            2 => Self::Ended,
            _ => Self::Running,
        }
    }
}
