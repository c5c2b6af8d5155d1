//! The end of the file, where changes are appended.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::{MAX_LEN, is_long};
use crate::daemon::devices::Change;

/// The file and what is in it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) file: Arc<File>,
    /// The length of its whole lines, bytes.
    pub(super) len: u64,
    /// Number of its lines.
    pub(super) lines: usize,
    /// Number of devices after the last line.
    pub(super) devices: usize,
    /// `true` if there may be more than the whole lines.
    pub(super) has_more: bool,
    /// Number of lines from which it may be replaced again, after an attempt that failed.
    pub(super) not_before: usize,
}

impl Written {
    /// Opens a file that has these lines and perhaps a part of another, which it removes.
    pub(super) fn open(path: &Path, len: u64, lines: usize, devices: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.set_len(len)?;
        Ok(Self::new(file, len, lines, devices))
    }

    /// Uses a file that has these lines and no more.
    pub(super) fn new(file: File, len: u64, lines: usize, devices: usize) -> Self {
        Self { file: Arc::new(file), len, lines, devices, has_more: false, not_before: 0 }
    }

    /// Returns `true` if the file is to be replaced.
    pub(super) const fn is_long(&self) -> bool {
        self.lines >= self.not_before && is_long(self.lines, self.devices)
    }

    /// Appends a change, and takes it back if `keep` returns `false` then. Returns what that returns.
    ///
    /// # Errors
    /// The file cannot be written, or would be too long; it is as it was before.
    pub(super) fn append(
        &mut self,
        change: &Change,
        keep: impl FnOnce() -> bool,
    ) -> io::Result<bool> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        let len = self.len + line.len() as u64;
        if len > MAX_LEN {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.has_more {
            self.file.set_len(self.len)?;
        }
        let written = self.file.write_all_at(&line, self.len);
        if written.is_ok() && keep() {
            (self.len, self.lines, self.has_more) = (len, self.lines + 1, false);
            self.devices = match change {
                Change::Create { names, .. } => self.devices + names.count() as usize,
                Change::Delete { names } => self.devices.saturating_sub(names.count() as usize),
            };
            return Ok(true);
        }
        // Until this succeeds, nothing is appended.
        self.has_more = self.file.set_len(self.len).is_err();
        written.map(|()| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that cannot be written is not made.
    #[test]
    fn a_full_disk_leaves_the_file_as_it_was() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut written = Written::new(full, 0, 0, 0);
        let change = Change::Delete { names: "a".into() };
        let refused = written.append(&change, || true).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!((written.len, written.lines), (0, 0));
    }
}
