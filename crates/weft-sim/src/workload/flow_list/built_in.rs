//! Files of flows that are part of the program, so that the scenarios which replay them run anywhere.

use std::io;
use std::path::Path;

use super::{Flow, WorkloadError};

/// The prefix of the name of a list that is part of the program.
const PREFIX: &str = "built-in:";

/// Declares the lists: their files in `data/`.
macro_rules! lists {
    ($($name:literal;)+) => {
        &[$(($name, include_bytes!(concat!("../../../data/", $name)))),+]
    };
}

/// The lists, by name; `data/README.md` tells where each is from.
const LISTS: &[(&str, &[u8])] = lists! {
    "alistorage-load50-3ms.flows.gz";
    "alistorage-load80-3ms.flows.gz";
    "hadoop-load50-3ms.flows.gz";
    "permutation-1024-2MB.cm.gz";
    "permutation-128-2MB.cm.gz";
    "permutation-8192-2MB.cm.gz";
};

/// Returns the name of a list of the program, if `file` is one.
pub(super) fn name(file: &Path) -> Option<&str> {
    file.to_str()?.strip_prefix(PREFIX)
}

/// Reads a list of the program.
///
/// # Errors
/// There is no such list, or the list has more hosts than `hosts`.
pub(super) fn read(name: &str, hosts: u32) -> Result<Vec<Flow>, WorkloadError> {
    let file = Path::new(name);
    let found = LISTS.iter().find(|(known, _)| *known == name);
    let (_, bytes) = found.ok_or_else(|| {
        let names: Vec<_> = LISTS.iter().map(|(name, _)| *name).collect();
        let reason = format!("the program has no such list of flows; it has {}", names.join(", "));
        WorkloadError::Unreadable { file: format!("{PREFIX}{name}").into(), reason }
    })?;
    super::read(io::Cursor::new(bytes), file, hosts)
}
