//! Finds Weft's own libibverbs and librdmacm, and makes a program load them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The libraries that programs load instead of rdma-core's.
const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
/// The libraries that the linker loads before a program's: the first one shows the device in sysfs and /dev, and the
/// second one takes the place of a copy of libibverbs that the program brings along, as NIXL's wheels do.
const PRELOADS: [&str; 2] = ["libweft_preload.so", "libibverbs.so.1"];

/// The malloc whose large blocks lie in shared memory.
const MALLOC: &str = "libweft_malloc.so.1";

/// Returns the folder with the libraries: the named one, or that of a build or an installation.
///
/// # Errors
/// Returns an error that names the first missing library.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf> {
    let folder = named.map_or_else(near_this_program, |folder| Ok(folder.to_owned()))?;
    let folder = std::path::absolute(folder).context("cannot find the current folder")?;
    for file in LIBRARIES.into_iter().chain(PRELOADS) {
        check(&folder, file)?;
    }
    Ok(folder)
}

fn check(folder: &Path, file: &str) -> Result<()> {
    if !folder.join(file).is_file() {
        bail!(
            "no {file} in {}: `cargo xtask verbs` makes it, or name its folder with --libraries",
            folder.display()
        );
    }
    Ok(())
}

/// Sets the variables with which a program loads the libraries of `folder`.
pub(crate) fn use_them<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    preload(command, folder, &PRELOADS)
}

/// Sets the same variables, and the malloc whose large blocks neighbours can map.
///
/// # Errors
/// Returns an error if that library is missing.
pub(crate) fn use_them_with_shared_memory<'a>(
    command: &'a mut Command,
    folder: &Path,
) -> Result<&'a mut Command> {
    check(folder, MALLOC)?;
    let [first, second] = PRELOADS;
    Ok(preload(command, folder, &[first, second, MALLOC]))
}

fn preload<'a>(command: &'a mut Command, folder: &Path, files: &[&str]) -> &'a mut Command {
    let preloads = files
        .iter()
        .rfold(env::var_os("LD_PRELOAD"), |list, file| Some(in_front(&folder.join(file), list)));
    command
        .env("LD_LIBRARY_PATH", in_front(folder, env::var_os("LD_LIBRARY_PATH")))
        .envs(preloads.map(|list| ("LD_PRELOAD", list)))
}

/// Returns `verbs` beside this program, or, where it is installed as `bin/weft`, `lib/weft/verbs` beside `bin`.
fn near_this_program() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's folder")?;
    let built = program.with_file_name("verbs");
    let installed = program.parent().map(|bin| bin.with_file_name("lib").join("weft/verbs"));
    Ok(installed.filter(|folder| !built.is_dir() && folder.is_dir()).unwrap_or(built))
}

/// Returns a list of the dynamic linker with one more path at its beginning.
fn in_front(path: &Path, list: Option<OsString>) -> OsString {
    let mut longer = path.as_os_str().to_owned();
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        longer.push(OsStr::new(":"));
        longer.push(list);
    }
    longer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_paths_follow_the_new_one() {
        let path = Path::new("/a");
        assert_eq!(in_front(path, None), "/a");
        // An empty entry would mean the current folder.
        assert_eq!(in_front(path, Some("".into())), "/a");
        assert_eq!(in_front(path, Some("/b:/c".into())), "/a:/b:/c");
    }
}
