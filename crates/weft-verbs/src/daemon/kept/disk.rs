//! The thread that waits for the disk: it has the disk take what was written, and replaces the file.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::written::Written;
use super::{Devices, beside, folder_of, read, text_of};

/// The thread, which ends with this value.
#[derive(Debug)]
pub(super) struct Disk {
    /// `None` when there will be no more changes.
    ask: Option<Sender<()>>,
    /// Closed when the thread has ended.
    ended: Mutex<Receiver<Infallible>>,
}

impl Disk {
    /// Starts the thread.
    pub(super) fn start(path: PathBuf, written: Arc<Mutex<Written>>) -> io::Result<Self> {
        let (ask, asked) = channel();
        let (ends, ended) = channel();
        crate::thread::spawn(move || {
            serve(&path, &written, &asked);
            drop(ends);
        })?;
        Ok(Self { ask: Some(ask), ended: Mutex::new(ended) })
    }

    /// Reports a change.
    pub(super) fn ask(&self) {
        if let Some(ask) = &self.ask {
            // The thread ends after this value.
            let _ = ask.send(());
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.ask.take());
        // It never sends anything.
        let _ = self.ended.get_mut().map(|ended| ended.recv());
    }
}

/// Has the disk take what was written, once for all changes so far. Returns when there will be no more.
fn serve(path: &Path, written: &Mutex<Written>, asked: &Receiver<()>) {
    let locked = || written.lock().expect("nothing panics here");
    while asked.recv().is_ok() {
        while asked.try_recv().is_ok() {}
        let file = locked().file.clone();
        // An error stays with the kernel's memory, where the next daemon finds the changes.
        let _ = file.sync_data();
        while locked().is_long() {
            if replace(path, written).is_err() {
                // It costs space only, and a change that no longer fits is refused.
                let mut written = locked();
                written.not_before = 2 * written.lines;
            }
        }
    }
}

/// Replaces the file by one with a line for each device, while changes are appended.
fn replace(path: &Path, written: &Mutex<Written>) -> io::Result<()> {
    let locked = || written.lock().expect("nothing panics here");
    let (file, len, lines) = {
        let written = locked();
        (written.file.clone(), written.len, written.lines)
    };
    let text = read_at(&file, 0, len)?;
    let devices = read(&text).map_err(|(_, reason)| io::Error::other(reason))?.devices;
    let partial = Partial::write(path, &devices)?;
    {
        let mut written = locked();
        let later = read_at(&file, len, written.len - len)?;
        partial.file.write_all_at(&later, partial.len)?;
        let lines = partial.lines + written.lines - lines;
        let len = partial.len + later.len() as u64;
        *written = Written::new(partial.rename(path)?, len, lines, written.devices);
    }
    let file = locked().file.clone();
    file.sync_data()?;
    File::open(folder_of(path))?.sync_all()
}

/// Replaces a file, which need not exist, by one with a line for each device.
///
/// # Errors
/// It cannot be written; the former one is as it was.
pub(super) fn replace_by(path: &Path, devices: &Devices) -> io::Result<Written> {
    let partial = Partial::write(path, devices)?;
    let (len, lines) = (partial.len, partial.lines);
    let file = partial.rename(path)?;
    File::open(folder_of(path))?.sync_all()?;
    Ok(Written::new(file, len, lines, devices.len()))
}

fn read_at(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut text = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut text, at)?;
    Ok(text)
}

/// A file that is to take the place of another one.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    file: File,
    len: u64,
    lines: usize,
}

impl Partial {
    /// Writes it to the disk, with a line for each device.
    fn write(path: &Path, devices: &Devices) -> io::Result<Self> {
        let path = beside(path, ".part");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let text = text_of(devices)?;
        let (len, lines) = (text.len() as u64, devices.len() + 1);
        let partial = Self { file: options.open(&path)?, path, len, lines };
        partial.file.write_all_at(&text, 0)?;
        partial.file.sync_all()?;
        Ok(partial)
    }

    /// Puts it in the place of the other one.
    fn rename(self, path: &Path) -> io::Result<File> {
        let file = self.file.try_clone()?;
        fs::rename(&self.path, path)?;
        Ok(file)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a change of its name there is none.
        let _ = fs::remove_file(&self.path);
    }
}
