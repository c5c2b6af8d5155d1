//! The properties of every status file. The mutation test and the fuzz target call them.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_stat::{Folder, Snapshot, StatusWriter};

/// Parses bytes as a status file, and checks that its content stays the same when it is written and parsed again.
/// Returns `true` if the bytes are a status file.
pub fn stat(bytes: &[u8]) -> bool {
    let Ok(snapshot) = Snapshot::parse(bytes) else { return false };
    let again = Snapshot::parse(&snapshot.to_bytes());
    assert_eq!(again.as_ref(), Ok(&snapshot));
    true
}

/// Publishes a snapshot in a folder, as its program would.
pub fn publish(folder: &Folder, snapshot: &Snapshot) -> StatusWriter {
    folder.prepare().expect("a folder of ours");
    let mut writer = StatusWriter::create(folder, "node").expect("there is room");
    writer.publish(|draft| snapshot.draft(draft)).expect("there is room");
    writer
}
