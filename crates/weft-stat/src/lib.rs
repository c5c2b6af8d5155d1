//! Status files of running programs in shared memory: their channels, connections, paths and latest events. A program
//! writes its state at most ten times a second ([`StatusWriter`]); readers take a consistent copy without involving the
//! program ([`Snapshot`]; compare X-RDMA's XR-Stat, section VI.B).
//!
//! | what | where |
//! | --- | --- |
//! | the folder, and removal of dead programs' files | `folder.rs`, `directory.rs` |
//! | the layout of a file (`docs/reference/stat.md`) | `layout.rs`, `records.rs`, `values.rs`, `field.rs` |
//! | writing | `draft.rs`, `writer.rs` |
//! | reading | `snapshot.rs` |
//! | commands to a node | `control.rs` |
//!
//! ```
//! use weft_stat::{StatusWriter, Folder, ProgramRecord, Text};
//!
//! # let path = std::env::temp_dir().join(format!("weft-stat-front-page-{}", std::process::id()));
//! # std::fs::create_dir_all(&path)?;
//! let folder = Folder::at(&path);
//! # folder.prepare()?;
//! // The program writes …
//! let mut writer = StatusWriter::create(&folder, "node")?;
//! let program = ProgramRecord { name: Text::new("trainer"), entries: 3, ..ProgramRecord::default() };
//! writer.publish(|draft| draft.push(&program))?;
//! writer.set_heartbeat(weft_stat::now());
//!
//! // … and another process reads.
//! let found = folder.scan()?;
//! let snapshot = found[0].read()?;
//! assert_eq!(snapshot.program, program);
//! assert!(!found[0].is_dead);
//! # drop(writer);
//! # std::fs::remove_dir_all(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod control;
mod directory;
mod draft;
mod field;
mod folder;
#[cfg(test)]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod layout;
mod records;
mod snapshot;
mod values;
mod writer;

/// The properties that the fuzz targets of `fuzz/` call. Shipped builds do not contain them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::control::properties::orders;
}

pub use control::{Control, ControlError, Request, Setting, ask};
pub use draft::Draft;
pub use field::{Field, FieldRow, LayoutError};
pub use folder::{Folder, FolderError, OFF, StatusFile, VARIABLE};
pub use layout::{DIRECTORY, HEADER, HEADER_WORDS, MAGIC, ProgramState, TABLES, TableRow, VERSION};
pub use records::{
    Carrier, ChannelRecord, ChannelState, ConnectionRecord, ContextRecord, DeviceRecord, EventKind,
    EventRecord, Kind, PathRecord, ProgramRecord, Record,
};
pub use snapshot::Snapshot;
pub use values::{Address, Latencies, Text};
pub use writer::{StatusWriter, UpdateSchedule};

/// Returns the time since boot without the time in suspension (`CLOCK_MONOTONIC`), the time base of all values in these
/// files.
pub fn now() -> weft_units::Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let positive = "the clock counts up from zero";
    let seconds = u64::try_from(time.tv_sec).expect(positive);
    let nanos = u64::try_from(time.tv_nsec).expect(positive);
    weft_units::Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}
