//! The part of a fleet on the disk, from which a host starts while etcd is away.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use super::{Key, View};

/// Writes the objects that a host knows.
///
/// # Errors
/// The disk is full, or the folder cannot be made.
pub(super) fn write(file: &Path, view: &View) -> io::Result<()> {
    let objects: BTreeMap<String, _> =
        view.objects().map(|(key, object)| (key.to_string(), object)).collect();
    let text = serde_json::to_vec(&objects)?;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = file.with_extension("part");
    fs::write(&partial, text)?;
    fs::rename(&partial, file)
}

/// Reads what was known before the last stop into a view; without a file nothing was.
///
/// # Errors
/// The file cannot be read, or has something else in it.
pub(super) fn read(file: &Path, prefix: &str, view: &mut View) -> io::Result<()> {
    let text = match fs::read(file) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    let objects: BTreeMap<String, Value> = serde_json::from_slice(&text)?;
    let path = |key: &str| key.parse::<Key>().ok().map(|key| key.path(prefix));
    let entry = |(key, value): (&String, &Value)| Some((path(key)?, value.to_string()));
    let entries: Vec<_> = objects.iter().filter_map(entry).collect();
    view.apply(prefix, entries.iter().map(|(key, value)| (key.as_bytes(), Some(value.as_bytes()))));
    Ok(())
}
