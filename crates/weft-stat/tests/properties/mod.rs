//! The properties of every file. The mutation test and the fuzz target both call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_stat::{Folder, Snapshot, StatusWriter};

/// Reads bytes as a program's file; whether they were one. What was read is written and read again the same.
pub fn stat(bytes: &[u8]) -> bool {
    let Ok(snapshot) = Snapshot::parse(bytes) else { return false };
    let again = Snapshot::parse(&snapshot.to_bytes());
    assert_eq!(again.as_ref(), Ok(&snapshot));
    true
}

/// Shows a snapshot in a folder, as its program would.
pub fn put_up(folder: &Folder, snapshot: &Snapshot) -> StatusWriter {
    folder.prepare().expect("a folder of ours");
    let mut board = StatusWriter::create(folder, "node").expect("there is room");
    board.publish(|draft| snapshot.draft(draft)).expect("there is room");
    board
}
