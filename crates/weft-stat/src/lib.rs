//! What running programs say of themselves in shared memory: their channels, connections, paths and what happened
//! lately. A program writes now and then what it knows anyway ([`Board`]); whoever may read the file reads it
//! without the program noticing ([`Snapshot`], X-RDMA's XR-Stat, section VI.B).
//!
//! | what | where |
//! | --- | --- |
//! | which files there are, and whose are dead | `folder.rs` |
//! | the words of a file, as `docs/reference/stat.md` has them | `layout.rs`, `records.rs`, `values.rs`, `field.rs` |
//! | writing | `board.rs` |
//! | reading | `snapshot.rs` |
//! | asking a node to change a parameter | `control.rs` |

mod board;
mod control;
mod field;
mod folder;
#[cfg(test)]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod layout;
mod records;
mod snapshot;
mod values;

/// What the fuzz targets of `fuzz/` call; nothing that ships has it.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::control::properties::orders;
}

pub use board::{Board, Draft, Pace};
pub use control::{Ask, Control, ControlError, Setting, ask};
pub use field::{Field, FieldRow, LayoutError};
pub use folder::{Folder, FolderError, Found, OFF, VARIABLE};
pub use layout::{DIRECTORY, HEADER, HEADER_WORDS, Life, MAGIC, TABLES, TableRow, VERSION};
pub use records::{
    Carrier, ChannelRecord, ChannelState, ConnectionRecord, ContextRecord, DeviceRecord, EventKind,
    EventRecord, Kind, PathRecord, ProgramRecord, Record,
};
pub use snapshot::Snapshot;
pub use values::{Address, Latencies, Text};

/// Nanoseconds since the machine's boot: the time of all that is in these files.
pub fn now() -> weft_units::Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let positive = "the clock counts up from zero";
    let seconds = u64::try_from(time.tv_sec).expect(positive);
    let nanos = u64::try_from(time.tv_nsec).expect(positive);
    weft_units::Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}
