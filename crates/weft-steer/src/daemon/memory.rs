//! What a controller knows, on disk.

use std::fs;
use std::io::ErrorKind;

use weft_route::{Controller, Fabric};

use crate::{SteerConfig, SteerError};

/// A controller that goes on where the last one was, where there is something to go on from. Routes that
/// are installed are found in any case.
pub(super) fn restore(config: &SteerConfig, fabric: Fabric) -> Controller {
    let fresh = |fabric| Controller::new(config.controller.clone(), fabric);
    let Some(path) = &config.state else { return fresh(fabric) };
    let read = fs::read(path);
    let text = match read {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return fresh(fabric),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the state cannot be read; beginning anew");
            return fresh(fabric);
        }
    };
    let restored = serde_json::from_slice(&text).map_err(|error| error.to_string());
    let restored = restored.and_then(|state| {
        let (config, fabric) = (config.controller.clone(), fabric.clone());
        Controller::restore(config, fabric, state).map_err(|error| error.to_string())
    });
    restored.unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), error, "the state is not taken up; beginning anew");
        fresh(fabric)
    })
}

/// Writes it down; whoever reads it has the old or the new one, never half of one.
pub(super) fn write(config: &SteerConfig, controller: &Controller) -> Result<(), SteerError> {
    let Some(path) = &config.state else { return Ok(()) };
    let text = serde_json::to_vec(&controller.state()).expect("a state has no map with odd keys");
    let temporary = path.with_extension("new");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(SteerError::io(format!("make {}", folder.display())))?;
    }
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(SteerError::io(format!("write {}", path.display())))
}
