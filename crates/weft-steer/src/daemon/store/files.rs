//! The store of a controller that is alone: the state file, and beside it a file of jobs, which is large and rarely changes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_route::{Controller, Fabric, Job, JobError};

use super::{EventCounts, Store};
use crate::{SteerConfig, SteerError};

/// The files; none for a controller that keeps nothing.
#[derive(Debug)]
pub(in crate::daemon) struct Files {
    state: Option<PathBuf>,
    /// By job, a number that changes with what was written of it.
    written: BTreeMap<String, u64>,
}

impl Files {
    /// Returns the files of a configuration, and a controller with the saved state, if there is one. Installed routes are
    /// adopted in any case.
    pub(in crate::daemon) fn open(config: &SteerConfig, fabric: Fabric) -> (Self, Controller) {
        let controller = restore(config, fabric);
        (Self { state: config.state.clone(), written: stamps(&controller) }, controller)
    }
}

impl Store for Files {
    fn save(&mut self, controller: &Controller, _: &EventCounts) -> Result<u64, SteerError> {
        let Some(path) = &self.state else { return Ok(0) };
        // A state names the jobs of which it has measurements, and may have those of jobs that are not written yet.
        let stamps = stamps(controller);
        if stamps != self.written {
            replace(&jobs_path(path), controller.jobs())?;
            self.written = stamps;
        }
        replace(path, &controller.state())?;
        Ok(0)
    }
}

fn stamps(controller: &Controller) -> BTreeMap<String, u64> {
    controller.jobs().iter().map(|(name, job)| (name.clone(), job.stamp())).collect()
}

fn restore(config: &SteerConfig, fabric: Fabric) -> Controller {
    let Some(path) = &config.state else {
        return Controller::new(config.controller.clone(), fabric);
    };
    let checked = |jobs: BTreeMap<String, Job>| Job::check_all(&jobs).map(|()| jobs);
    let jobs = load(&jobs_path(path), checked).unwrap_or_default();
    let resume = |state| {
        let (config, fabric) = (config.controller.clone(), fabric.clone());
        Controller::restore(config, fabric, state, jobs.clone())
    };
    load(path, resume).unwrap_or_else(|| {
        let mut controller = Controller::new(config.controller.clone(), fabric);
        let restored: Result<(), JobError> = controller.restore_jobs(jobs);
        restored.expect("the jobs were checked");
        controller
    })
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
