//! What a controller knows, on disk: in the state's file, and the jobs beside it, which are many bytes and seldom change.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_route::{Controller, Fabric};

use crate::{SteerConfig, SteerError};

/// A controller that goes on where the last one was, where there is something to go on from. Routes that
/// are installed are found in any case.
pub(super) fn restore(config: &SteerConfig, fabric: Fabric) -> Controller {
    let fresh = |fabric| Controller::new(config.controller.clone(), fabric);
    let Some(path) = &config.state else { return fresh(fabric) };
    let go_on = |state| {
        let (config, fabric) = (config.controller.clone(), fabric.clone());
        Controller::restore(config, fabric, state).map_err(|error| error.to_string())
    };
    let mut controller = taken_up(path, go_on).unwrap_or_else(|| fresh(fabric));
    let jobs = |jobs| controller.restore_jobs(jobs).map_err(|error| error.to_string());
    // Where they are not taken up, that was said.
    let _ = taken_up(&of_jobs(path), jobs);
    controller
}

/// What `take` makes of a file; nothing where there is none, or none that can be taken up.
fn taken_up<S: DeserializeOwned, T>(
    path: &Path,
    take: impl FnOnce(S) -> Result<T, String>,
) -> Option<T> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "it cannot be read; beginning anew");
            return None;
        }
    };
    let read = serde_json::from_slice(&text).map_err(|error| error.to_string());
    let taken = read.and_then(take).inspect_err(|error| {
        tracing::warn!(path = %path.display(), error, "it is not taken up; beginning anew");
    });
    taken.ok()
}

/// Writes down what it knows but for jobs.
pub(super) fn write(config: &SteerConfig, controller: &Controller) -> Result<(), SteerError> {
    let Some(path) = &config.state else { return Ok(()) };
    replace(path, &controller.state())
}

/// Writes down the jobs.
pub(super) fn write_jobs(config: &SteerConfig, controller: &Controller) -> Result<(), SteerError> {
    let Some(path) = &config.state else { return Ok(()) };
    replace(&of_jobs(path), controller.jobs())
}

fn of_jobs(state: &Path) -> PathBuf {
    state.with_extension("jobs.json")
}

/// Whoever reads the file has the old or the new one, never half of one.
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
