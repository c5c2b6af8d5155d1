//! The file that keeps the devices for the next daemon: one change a line, as JSON, after a line with the version. A change is
//! appended before it is in force. A daemon with thousands of devices does not write all of them for one more, as it would if it
//! replaced the file; it replaces it when most lines are of devices that are no more.
//!
//! The engine waits for a write into the kernel's memory only, which outlives the daemon. Another thread waits for the disk, within
//! a moment: a power failure may cost the last changes, and leaves a line without its end, which does not count. That thread also
//! replaces the file. Other daemons are refused by a lock on a second file, whose name has `.lock` at its end: it is never replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};

use super::devices::{Change, Devices, Named};
use disk::Disk;
use written::Written;

mod disk;
mod written;

/// The first line.
const HEADER: &str = "{\"weft-devices\":1}\n";

/// Number of lines beyond twice the devices at which the file is written anew.
const SPARE_LINES: usize = 64;

/// Maximum length of the file, bytes: more than twice the lines of as many devices as there may be.
const MAX_LEN: u64 = 256 << 20;

/// The reason that a daemon cannot use its state file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It cannot be read or written.
    #[error("cannot use {}, where the devices are kept: `state` in the daemon's file names another place", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// Another daemon has it.
    #[error("another daemon keeps its devices in {}: `state` in the daemon's file names another place", file.display())]
    InUse {
        /// The file.
        file: PathBuf,
    },
    /// It is too long.
    #[error(
        "{} has more than {} MiB, which no daemon writes: move it away to start without devices, or name another file as \
         `state` in the daemon's file", file.display(), MAX_LEN >> 20
    )]
    TooLong {
        /// The file.
        file: PathBuf,
    },
    /// A line is not a change that this version of Weft can make.
    #[error(
        "{}, line {line}: {reason}. Take the line out, or move the file away to start without devices", file.display()
    )]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
}

impl StateError {
    /// Returns the error and its cause in one line.
    pub(super) fn reason(&self) -> String {
        let cause = core::error::Error::source(self).map(|cause| format!(" ({cause})"));
        format!("{self}{}", cause.unwrap_or_default())
    }
}

/// The devices of a file, what is in it, and the bytes of its whole lines.
#[derive(Debug, Default)]
struct Read {
    devices: Devices,
    lines: usize,
    bytes: usize,
}

/// Reads the devices from the text of a file.
///
/// # Errors
/// A line is none that a daemon writes; returns its number, from 1, and the reason.
fn read(text: &[u8]) -> Result<Read, (usize, String)> {
    let mut read = Read::default();
    for line in text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        read.lines += 1;
        read.bytes += line.len();
        let applied = match read.lines {
            1 if line == HEADER.as_bytes() => Ok(()),
            1 => Err("it is of another version of Weft, or no file of devices".into()),
            _ => read.devices.follow(line),
        };
        applied.map_err(|reason| (read.lines, reason))?;
    }
    Ok(read)
}

impl Devices {
    /// Makes the change in a line.
    fn follow(&mut self, line: &[u8]) -> Result<(), String> {
        let change: Change = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match &change {
            Change::Create { names, .. } => {
                self.check_room(names.count())?;
                for name in names.iter() {
                    self.check_new(&name).map_err(|refusal| refusal.reason)?;
                }
            }
            Change::Delete { names } => {
                if let Some(name) = names.iter().find(|name| !self.has(name)) {
                    return Err(format!("no line before this one makes {name}"));
                }
            }
        }
        self.apply(&change);
        Ok(())
    }
}

/// Returns `true` if a file with these lines is written anew.
const fn is_long(lines: usize, devices: usize) -> bool {
    lines > 2 * devices + SPARE_LINES
}

/// Returns a file that has a line for each device.
fn text_of(devices: &Devices) -> serde_json::Result<Vec<u8>> {
    let mut text = HEADER.as_bytes().to_vec();
    for (name, &Named { owner, limits }) in devices.iter() {
        let change = Change::Create { names: name.into(), owner, limits };
        serde_json::to_writer(&mut text, &change)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// The file of a running daemon.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    written: Arc<Mutex<Written>>,
    /// Ends before the lock.
    disk: Disk,
    _lock: Lock,
}

impl Kept {
    /// Uses a file, which is made if it does not exist. Returns its devices too.
    ///
    /// # Errors
    /// See [`StateError`].
    pub(super) fn open(path: PathBuf) -> Result<(Self, Devices), StateError> {
        let unusable = |cause| StateError::Unusable { file: path.clone(), cause };
        let lock = Lock::take(&path)?;
        let text = read_text(&path)?;
        let Read { devices, lines, bytes } = read(&text)
            .map_err(|(line, reason)| StateError::Line { file: path.clone(), line, reason })?;
        let written = if lines == 0 || is_long(lines, devices.len()) {
            disk::replace_by(&path, &devices)
        } else {
            Written::open(&path, bytes as u64, lines, devices.len())
        };
        let written = Arc::new(Mutex::new(written.map_err(unusable)?));
        let disk = Disk::start(path.clone(), written.clone()).map_err(unusable)?;
        Ok((Self { path, written, disk, _lock: lock }, devices))
    }

    /// Returns the file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a change, and takes it back if `keep` returns `false` then.
    ///
    /// # Errors
    /// The file cannot be written; it is as it was before.
    pub(super) fn append(
        &self,
        change: &Change,
        keep: impl FnOnce() -> bool,
    ) -> Result<(), StateError> {
        let unusable = |cause| StateError::Unusable { file: self.path.clone(), cause };
        let mut written = self.written.lock().expect("nothing panics here");
        if written.append(change, keep).map_err(unusable)? {
            self.disk.ask();
        }
        Ok(())
    }

    /// Keeps changes from the file, as a disk that does not answer.
    #[cfg(test)]
    pub(super) fn stall(&self) -> impl Drop + '_ {
        self.written.lock().unwrap()
    }
}

/// Returns a path with more at the end of its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

/// A locked file: what it is for is this daemon's alone.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    /// Takes the file that keeps the devices.
    fn take(path: &Path) -> Result<Self, StateError> {
        let unusable = |cause| StateError::Unusable { file: path.into(), cause };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let of_lock = beside(path, ".lock");
        let file = options.open(&of_lock).or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            fs::create_dir_all(folder_of(path))?;
            options.open(&of_lock)
        });
        let file = file.map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::InUse { file: path.into() }),
            Err(errno) => Err(unusable(errno.into())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child between its start and its program has the file, too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Returns the text of a file, which need not exist.
fn read_text(path: &Path) -> Result<Vec<u8>, StateError> {
    let unusable = |cause| StateError::Unusable { file: path.into(), cause };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(unusable(cause)),
    };
    let too_long = || Err(StateError::TooLong { file: path.into() });
    if file.metadata().map_err(unusable)?.len() > MAX_LEN {
        return too_long();
    }
    let mut text = Vec::new();
    // A device has no length.
    file.take(MAX_LEN + 1).read_to_end(&mut text).map_err(unusable)?;
    if text.len() as u64 > MAX_LEN { too_long() } else { Ok(text) }
}

/// Reads any bytes as a state file. Returns `true` if they are one.
///
/// # Panics
/// If the file that is written from its devices has others.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_text(bytes: &[u8]) -> bool {
    let Ok(Read { devices, .. }) = read(bytes) else { return false };
    let text = text_of(&devices).expect("no map has other keys than strings");
    let again = read(&text).expect("a daemon reads what it writes").devices;
    assert!(again.iter().eq(devices.iter()), "the same devices");
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{DeviceLimits, Names};

    /// A file that ends with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(
                std::env::temp_dir().join(format!("weft-kept-{name}-{}.state", std::process::id())),
            )
        }

        /// Returns the devices that a daemon finds.
        fn found(&self) -> Vec<String> {
            let (_kept, devices) = Kept::open(self.0.clone()).unwrap();
            devices.iter().map(|(name, _)| name.to_owned()).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
            let _ = fs::remove_file(beside(&self.0, ".lock"));
        }
    }

    fn create(names: Names) -> Change {
        let limits = DeviceLimits { memory: Some(1 << 20), ..DeviceLimits::default() };
        Change::Create { names, owner: 7, limits }
    }

    #[test]
    fn the_next_daemon_finds_the_devices() {
        let place = Place::new("next");
        let (kept, devices) = Kept::open(place.0.clone()).unwrap();
        assert!(devices.len() == 0 && place.0.exists());
        kept.append(&create("a".into()), || true).unwrap();
        kept.append(&create(Names::numbered("t", 1, 3)), || true).unwrap();
        kept.append(&Change::Delete { names: Names::numbered("t", 2, 1) }, || true).unwrap();
        assert!(matches!(Kept::open(place.0.clone()), Err(StateError::InUse { .. })));
        drop(kept);
        assert_eq!(place.found(), ["a", "t-1", "t-3"]);
        let (_kept, devices) = Kept::open(place.0.clone()).unwrap();
        let named = devices.find(7, "t-3").unwrap();
        assert_eq!((named.owner, named.limits.memory), (7, Some(1 << 20)));
    }

    #[test]
    fn a_line_without_its_end_does_not_count_and_the_next_one_takes_its_place() {
        let place = Place::new("torn");
        let (kept, _) = Kept::open(place.0.clone()).unwrap();
        kept.append(&create("a".into()), || true).unwrap();
        drop(kept);
        let text = fs::read(&place.0).unwrap();
        let first = HEADER.len();
        for cut in 0..=text.len() {
            fs::write(&place.0, &text[..cut]).unwrap();
            let found = place.found();
            assert_eq!(found.len(), usize::from(cut == text.len()), "{cut} of {}", text.len());
        }
        fs::write(&place.0, &text[..first + 5]).unwrap();
        let (kept, _) = Kept::open(place.0.clone()).unwrap();
        kept.append(&create("b".into()), || true).unwrap();
        drop(kept);
        assert_eq!(place.found(), ["b"]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let place = Place::new("wrong");
        let line = |change: &Change| serde_json::to_string(change).unwrap();
        let a = line(&create("a".into()));
        for (text, number, expected) in [
            ("{\"weft-devices\":2}\n".to_owned(), 1, "another version"),
            (format!("{HEADER}{a}\n{a}\n"), 3, "there is a device a already"),
            (format!("{HEADER}{}\n", a.replace("\"a\"", "\"../a\"")), 2, "is no name"),
            (format!("{HEADER}{}\n", a.replace("owner", "user")), 2, "user"),
            (
                format!("{HEADER}{}\n", line(&Change::Delete { names: "b".into() })),
                2,
                "no line before this one makes b",
            ),
            (
                format!("{HEADER}{}\n", line(&create(Names::numbered("t", 0, u32::MAX)))),
                2,
                "the limit",
            ),
        ] {
            fs::write(&place.0, text).unwrap();
            let error = Kept::open(place.0.clone()).unwrap_err();
            assert!(matches!(error, StateError::Line { line, .. } if line == number), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    /// Writes changes of a device that comes and goes.
    fn come_and_go(kept: &Kept, rounds: usize) {
        for _ in 0..rounds {
            kept.append(&create("a".into()), || true).unwrap();
            kept.append(&Change::Delete { names: "a".into() }, || true).unwrap();
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it waits for a thread in real time")]
    fn a_long_file_is_written_anew_while_changes_come_and_has_all_of_them() {
        let place = Place::new("anew");
        let (kept, _) = Kept::open(place.0.clone()).unwrap();
        kept.append(&create(Names::numbered("t", 0, 3)), || true).unwrap();
        for number in 0..20 {
            come_and_go(&kept, 50);
            kept.append(&create(Names::numbered("b", number, 1)), || true).unwrap();
        }
        let began = std::time::Instant::now();
        let lines = || fs::read_to_string(&place.0).unwrap().lines().count();
        while is_long(lines(), 23) {
            assert!(began.elapsed().as_secs() < 20, "it has {} lines", lines());
            std::thread::yield_now();
        }
        kept.append(&Change::Delete { names: Names::numbered("t", 1, 1) }, || true).unwrap();
        drop(kept);
        let found = place.found();
        assert_eq!(found.len(), 22);
        assert!(found.contains(&"b-19".into()) && !found.contains(&"t-1".into()), "{found:?}");
        assert!(!beside(&place.0, ".part").exists());
    }

    #[test]
    fn a_long_file_is_written_anew_at_the_start() {
        let place = Place::new("start");
        let line = |change: &Change| serde_json::to_string(change).unwrap();
        let (a, no_a) = (line(&create("a".into())), line(&Change::Delete { names: "a".into() }));
        fs::write(&place.0, format!("{HEADER}{}{a}\n", format!("{a}\n{no_a}\n").repeat(100)))
            .unwrap();
        assert_eq!(place.found(), ["a"]);
        assert_eq!(fs::read_to_string(&place.0).unwrap(), format!("{HEADER}{a}\n"));
    }

    #[test]
    fn a_change_that_is_taken_back_leaves_nothing() {
        let place = Place::new("back");
        let (kept, _) = Kept::open(place.0.clone()).unwrap();
        kept.append(&create("a".into()), || true).unwrap();
        let before = fs::read(&place.0).unwrap();
        let mut seen = Vec::new();
        let look = || {
            seen = fs::read(&place.0).unwrap();
            false
        };
        kept.append(&create("b".into()), look).unwrap();
        assert!(seen.len() > before.len(), "it was written");
        assert_eq!(fs::read(&place.0).unwrap(), before);
        kept.append(&create("c".into()), || true).unwrap();
        drop(kept);
        assert_eq!(place.found(), ["a", "c"]);
    }

    #[test]
    fn a_file_has_one_daemon_from_the_start() {
        let place = Place::new("one");
        let (kept, _) = Kept::open(place.0.clone()).unwrap();
        let in_use = || matches!(Kept::open(place.0.clone()), Err(StateError::InUse { .. }));
        assert!(in_use(), "before its first change");
        // While the file is replaced, and after.
        come_and_go(&kept, 500);
        assert!(in_use());
        for _ in 0..50 {
            come_and_go(&kept, 100);
            assert!(in_use());
        }
        drop(kept);
        assert!(place.found().is_empty(), "the lock ends with the value");
    }

    #[test]
    fn a_file_that_no_daemon_wrote_is_not_read_to_its_end() {
        let place = Place::new("long");
        File::create(&place.0).unwrap().set_len(MAX_LEN + 1).unwrap();
        let refused = Kept::open(place.0.clone()).unwrap_err().to_string();
        assert!(refused.contains("kept-long") && refused.contains("move it away"), "{refused}");
    }

    #[test]
    fn a_place_that_is_no_folder_is_refused_by_name() {
        let refused = Kept::open("/dev/null/weft.state".into()).unwrap_err().reason();
        assert!(
            refused.contains("/dev/null/weft.state") && refused.contains("directory"),
            "{refused}"
        );
    }

    /// A file of the version before is read by the next one.
    #[test]
    fn a_file_of_the_first_version_is_read() {
        let text = include_bytes!("../../tests/golden/state/devices.state");
        let found = read(text).unwrap().devices;
        assert_eq!(found.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "vm-5", "vm-7"]);
        assert_eq!(found.find(0, "a").unwrap().limits.messages_per_second, Some(9));
        assert!(check_text(text));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let line = serde_json::to_string(&create(Names::numbered("t", 3, 5))).unwrap();
        let text = format!("{HEADER}{line}\n");
        assert!(check_text(text.as_bytes()));
        for at in 0..text.len() {
            for byte in [0, b'"', b'9', b'{', b'\n', 0xff] {
                let mut changed = text.clone().into_bytes();
                changed[at] = byte;
                check_text(&changed);
            }
        }
    }
}
