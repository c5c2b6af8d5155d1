//! The file in which changes made by command are kept. It is replaced as a whole: after a crash or a full disk it has
//! the old changes or the new ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::changes::Changes;

/// Changes that are on the disk beside the state file, and not yet in it. They are dropped unless committed.
#[derive(Debug)]
pub(crate) struct Staged {
    file: PathBuf,
    partial: Option<PathBuf>,
}

/// Reads the changes of a file; there are none without the file.
///
/// # Errors
/// The file cannot be read, or has something else in it.
pub(crate) fn read(file: &Path) -> Result<Changes, OpenError> {
    let wrong = |cause: io::Error| OpenError::UnreadableState { file: file.into(), cause };
    match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| wrong(error.into())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Changes::default()),
        Err(cause) => Err(wrong(cause)),
    }
}

/// Writes changes to the disk, so that [`Staged::commit`] needs no more room.
///
/// # Errors
/// The folder cannot be made, or the disk is full.
pub(crate) fn stage(file: &Path, changes: &Changes) -> Result<Staged, OpenError> {
    let refused = |cause: io::Error| OpenError::NotKept { file: file.into(), cause };
    if changes.is_empty() && !file.exists() {
        return Ok(Staged { file: file.into(), partial: None });
    }
    fs::create_dir_all(folder_of(file)).map_err(refused)?;
    let partial = file.with_extension("part");
    let staged = Staged { file: file.into(), partial: Some(partial.clone()) };
    let mut text = serde_json::to_vec_pretty(changes).expect("no map has other keys than strings");
    text.push(b'\n');
    let write = || {
        let mut options = OpenOptions::new();
        let mut out = options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        out.write_all(&text)?;
        out.sync_all()
    };
    write().map_err(refused)?;
    Ok(staged)
}

/// Returns the folder of a file; a bare name is in the working directory.
fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

impl Staged {
    /// Replaces the state file.
    ///
    /// # Errors
    /// The system refuses; the file may have its former changes.
    pub(crate) fn commit(mut self) -> Result<(), OpenError> {
        let Some(partial) = self.partial.take() else { return Ok(()) };
        let replace = || {
            fs::rename(&partial, &self.file)?;
            // The name is on the disk when the folder is.
            File::open(folder_of(&self.file))?.sync_all()
        };
        replace().map_err(|cause| OpenError::InForceOnly { file: self.file.clone(), cause })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Request;

    #[test]
    fn a_file_without_a_folder_is_kept_in_the_working_directory() {
        let name = format!("weft-state-{}.json", std::process::id());
        let file = Path::new(&name);
        let peer = Request::Peer { vni: 100, peer: "10.0.0.2".parse().unwrap(), remove: false };
        let changes = Changes::from(vec![peer]);
        let kept = stage(file, &changes).and_then(Staged::commit).and_then(|()| read(file));
        fs::remove_file(file).unwrap();
        assert_eq!(kept.unwrap(), changes);
    }
}
