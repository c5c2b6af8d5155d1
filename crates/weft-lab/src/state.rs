//! What later commands need to know about a lab, kept in `/run/weft-lab/<name>.json`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Impairment, LabError, LabSpec};

const FOLDER: &str = "/run/weft-lab";

/// The condition of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkState {
    /// The near port is shut, so both ends see that there is no carrier.
    pub down: bool,
    /// Routes of distant leaves avoid this link.
    pub withdrawn: bool,
    /// Packets from the near end (host, leaf) to the far end (leaf, spine).
    pub forward: Impairment,
    /// Packets from the far end to the near end.
    pub backward: Impairment,
}

/// A lab as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) spec: LabSpec,
    /// By index of the fabric's links.
    pub(crate) links: Vec<LinkState>,
    /// The process that takes the lab down when it ends; none for a lab that stays.
    pub(crate) owner: Option<u32>,
}

impl State {
    /// Writes the state; a reader sees the old or the new one, never half of one.
    ///
    /// # Errors
    /// `Io` when the folder cannot be written.
    pub(crate) fn save(&self) -> Result<(), LabError> {
        let path = path(&self.spec.name);
        let text = serde_json::to_string_pretty(self).expect("the state has no map with odd keys");
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::create_dir_all(FOLDER)
            .and_then(|()| fs::write(&temporary, text))
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(LabError::io(format!("write {}", path.display())))
    }

    /// The state of the lab called `name`, or `None` without one.
    ///
    /// # Errors
    /// `Io` when the file cannot be read, `State` when it is not a state.
    pub(crate) fn load(name: &str) -> Result<Option<Self>, LabError> {
        let path = path(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LabError::io(format!("read {}", path.display()))(error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|source| LabError::State { path, source })
    }

    /// Whether the lab's process has ended without taking it down.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    }
}

/// Where the programs of the lab called `name` keep their files.
pub(crate) fn folder_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.d"))
}

/// Forgets the lab called `name`.
pub(crate) fn remove(name: &str) {
    // Whatever is left is found by its namespaces, so a file that will not go is no failure.
    let _ = fs::remove_file(path(name));
    let _ = fs::remove_dir_all(folder_of(name));
}

/// Names of the labs that have a state file, in order.
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
