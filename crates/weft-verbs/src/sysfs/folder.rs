//! The folder with the files. Its name has a hash of the content, so that processes with the same device share one, and
//! a device that changes gets another.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use weft_stat::Folder;

use super::entries::{Content, Entry};

/// Writes entries into a folder of this user's, unless another process has done so, and returns its path.
///
/// # Errors
/// Returns an error that names the folder if it cannot be written, or if another user may write there.
pub(super) fn write(entries: &[Entry]) -> io::Result<PathBuf> {
    let private = Folder::private();
    private.prepare().map_err(io::Error::other)?;
    write_below(private.path(), entries).map_err(|error| {
        io::Error::other(format!("cannot write to {}: {error}", private.path().display()))
    })
}

fn write_below(folder: &Path, entries: &[Entry]) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    let finished = folder.join(format!("sysfs-{:016x}", hasher.finish()));
    if finished.is_dir() {
        return Ok(finished);
    }
    let draft = folder.join(format!(".sysfs-{}", std::process::id()));
    // A killed process with the same number may have left one.
    let _ = fs::remove_dir_all(&draft);
    for Entry { path, content } in entries {
        let path = draft.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&draft))?;
        match content {
            Content::Text(text) => fs::write(path, text)?,
            Content::Link(target) => symlink(target, path)?,
        }
    }
    let renamed = fs::rename(&draft, &finished);
    if renamed.is_err() {
        let _ = fs::remove_dir_all(&draft);
    }
    // Another process may have been faster; its folder has the same content.
    if finished.is_dir() { Ok(finished) } else { renamed.map(|()| finished) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_written_once_and_another_content_gets_another_one() {
        let base = std::env::temp_dir().join(format!("weft-sysfs-{}", std::process::id()));
        let file = |text: &str| {
            vec![
                Entry { path: "sys/a/b".into(), content: Content::Text(text.into()) },
                Entry { path: "sys/c".into(), content: Content::Link("a/b".into()) },
            ]
        };
        let one = write_below(&base, &file("one")).unwrap();
        assert_eq!(fs::read_to_string(one.join("sys/c")).unwrap(), "one");
        let written = fs::metadata(one.join("sys/a/b")).unwrap().modified().unwrap();
        assert_eq!(write_below(&base, &file("one")).unwrap(), one);
        assert_eq!(fs::metadata(one.join("sys/a/b")).unwrap().modified().unwrap(), written);
        assert_ne!(write_below(&base, &file("two")).unwrap(), one);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 2);
        fs::remove_dir_all(base).unwrap();
    }
}
