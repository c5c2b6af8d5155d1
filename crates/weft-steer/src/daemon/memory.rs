//! The saved state of a controller: the state file, and beside it a file of jobs, which is large and rarely changes.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_route::{Controller, Fabric};

use crate::{SteerConfig, SteerError};

/// Creates a controller from the saved state, if there is one. Installed routes are adopted in any case.
pub(super) fn restore(config: &SteerConfig, fabric: Fabric) -> Controller {
    let fresh = |fabric| Controller::new(config.controller.clone(), fabric);
    let Some(path) = &config.state else { return fresh(fabric) };
    let resume = |state| {
        let (config, fabric) = (config.controller.clone(), fabric.clone());
        Controller::restore(config, fabric, state)
    };
    let mut controller = load(path, resume).unwrap_or_else(|| fresh(fabric));
    let jobs = |jobs| controller.restore_jobs(jobs);
    // If the jobs are not restored, a warning was logged.
    let _ = load(&jobs_path(path), jobs);
    controller
}

/// Returns the result of `accept` for the value in a file; `None` if the file is missing, invalid or not accepted.
fn load<S: DeserializeOwned, T, E: fmt::Display>(
    path: &Path,
    accept: impl FnOnce(S) -> Result<T, E>,
) -> Option<T> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the saved state cannot be read; starting without it");
            return None;
        }
    };
    let refuse = |error: &dyn fmt::Display| {
        let error = error.to_string();
        tracing::warn!(path = %path.display(), error, "the saved state is not used; starting without it");
    };
    let read = serde_json::from_slice(&text).inspect_err(|error| refuse(error)).ok()?;
    accept(read).inspect_err(|error| refuse(error)).ok()
}

/// Saves the state without jobs.
pub(super) fn write(config: &SteerConfig, controller: &Controller) -> Result<(), SteerError> {
    let Some(path) = &config.state else { return Ok(()) };
    replace(path, &controller.state())
}

/// Saves the jobs.
pub(super) fn write_jobs(config: &SteerConfig, controller: &Controller) -> Result<(), SteerError> {
    let Some(path) = &config.state else { return Ok(()) };
    replace(&jobs_path(path), controller.jobs())
}

fn jobs_path(state: &Path) -> PathBuf {
    state.with_extension("jobs.json")
}

/// Replaces a file atomically: a reader sees the old or the new file, never a part of one.
fn replace(path: &Path, value: &impl Serialize) -> Result<(), SteerError> {
    let text = serde_json::to_vec(value).expect("what is kept has no map with odd keys");
    let temporary = path.with_extension("new");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(SteerError::io(format!("make {}", folder.display())))?;
    }
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(SteerError::io(format!("write {}", path.display())))
}
