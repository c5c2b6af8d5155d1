//! The state of a lab for later commands, kept in `/run/weft-lab/<name>.json`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Impairment, LabError, LabSpec};

const FOLDER: &str = "/run/weft-lab";

/// The state of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkState {
    /// `true` if the near port is shut down, so that both ends have no carrier.
    pub down: bool,
    /// `true` if the routes of leaves that are not on this link avoid it.
    pub withdrawn: bool,
    /// The impairment of packets from the near end (host, leaf) to the far end (leaf, spine).
    pub forward: Impairment,
    /// The impairment of packets from the far end to the near end.
    pub backward: Impairment,
}

/// The saved state of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) spec: LabSpec,
    /// The states of links, by index of the fabric's links.
    pub(crate) links: Vec<LinkState>,
    /// The id of the process that removes the lab when it ends; `None` for a lab that stays.
    pub(crate) owner: Option<u32>,
}

impl State {
    /// Writes the state atomically: a reader sees the old or the new state, never a part of one.
    ///
    /// # Errors
    /// Returns `Io` if the folder cannot be written.
    pub(crate) fn save(&self) -> Result<(), LabError> {
        let path = path(&self.spec.name);
        let text = serde_json::to_string_pretty(self).expect("the state has no map with odd keys");
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::create_dir_all(FOLDER)
            .and_then(|()| fs::write(&temporary, text))
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(LabError::io(format!("write {}", path.display())))
    }

    /// Reads the state of the lab called `name`; returns `None` if there is none.
    ///
    /// # Errors
    /// Returns `Io` if the file cannot be read, `State` if it is not a valid state.
    pub(crate) fn load(name: &str) -> Result<Option<Self>, LabError> {
        let path = path(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LabError::io(format!("read {}", path.display()))(error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|source| LabError::State { path, source })
    }

    /// Returns `true` if the lab's owner has ended without removing it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    }
}

/// Returns the folder in which programs of the lab called `name` keep their files.
pub(crate) fn folder_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.d"))
}

/// Removes the state of the lab called `name`.
pub(crate) fn remove(name: &str) {
    // A file that cannot be removed is no failure, because the remains of a lab are found by its namespaces.
    let _ = fs::remove_file(path(name));
    let _ = fs::remove_dir_all(folder_of(name));
}

/// Returns the names of the labs that have a state file, in order.
pub(crate) fn names() -> Vec<String> {
    let Ok(folder) = fs::read_dir(FOLDER) else { return vec![] };
    let mut names: Vec<String> = folder
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .collect();
    names.sort();
    names
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.json"))
}
