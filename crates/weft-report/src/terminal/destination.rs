//! A file that a command writes when its work is done. It is opened before the work begins, so that a path that cannot
//! be written is an error at once; a regular file keeps its former content until the new content is complete.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A file to be written.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    file: File,
    /// The file that the content is written to first; `None` for pipes and devices.
    partial: Option<PathBuf>,
}

impl Destination {
    /// Makes the folders above the file and opens it for writing. A pipe or a device is opened directly.
    ///
    /// # Errors
    /// Returns an error with the path and the reason if the file or a folder cannot be made.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        if path.is_dir() {
            bail!("{}: it is a folder", cannot());
        }
        if path.exists() && !path.is_file() {
            let file = OpenOptions::new().write(true).open(path).with_context(cannot)?;
            return Ok(Self { path: path.into(), file, partial: None });
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = File::create(&partial).with_context(cannot)?;
        Ok(Self { path: path.into(), file, partial: Some(partial) })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file by `content`.
    ///
    /// # Errors
    /// Returns an error if the content cannot be written, for example to a full disk; a regular file then keeps its
    /// former content.
    pub fn write(mut self, content: impl AsRef<[u8]>) -> Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        self.file.write_all(content.as_ref()).with_context(cannot)?;
        if let Some(partial) = &self.partial {
            // A full disk may only be noticed when the content reaches it.
            self.file.sync_all().with_context(cannot)?;
            fs::rename(partial, &self.path).with_context(cannot)?;
            self.partial = None;
        }
        Ok(())
    }
}

/// A file that a command writes while it works. Like a [`Destination`], it replaces a regular file only when it is
/// complete.
#[derive(Debug)]
pub struct StreamedFile(Destination);

impl StreamedFile {
    /// Opens the file as [`Destination::open`] does; returns it, and the writer of its content.
    ///
    /// # Errors
    /// Returns an error with the path and the reason if the file or a folder cannot be made.
    pub fn open(path: &Path) -> Result<(Self, File)> {
        let destination = Destination::open(path)?;
        let writer = destination.file.try_clone();
        let writer = writer.with_context(|| format!("cannot write {}", path.display()))?;
        Ok((Self(destination), writer))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Completes the file: its content is what was written to the writer.
    ///
    /// # Errors
    /// As [`Destination::write`].
    pub fn finish(self) -> Result<()> {
        self.0.write([])
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}
