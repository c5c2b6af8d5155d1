//! The installation of libxrdma for C programs: library, archive, header, manual pages and pkg-config file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::verbs::{run, target};

/// The source and destination folders.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that contains libxrdma.so and libxrdma.a; by default a release build makes them.
    #[arg(long)]
    built: Option<PathBuf>,
    /// The destination folder, in the layout of /usr/local.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The pkg-config file, for `cc $(pkg-config --cflags --libs xrdma)`. Its paths are relative, so that the folder
/// can be moved.
const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
includedir=${prefix}/include
libdir=${prefix}/lib

Name: xrdma
Description: Messages over RDMA
URL: https://github.com/weft-fabric/weft
Version: @VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lxrdma
Libs.private: -lpthread -ldl -lm -lgcc_s
";

/// Copies all files into the destination folder.
///
/// # Errors
/// Returns the command that failed, or the file that cannot be written.
pub(crate) fn lay_out(root: &Path, args: &Args) -> Result<()> {
    let release = target(root)?.join("release");
    let built = match &args.built {
        Some(built) => built.clone(),
        None => {
            let build = ["build", "--release", "--lib", "--package", "weft-xrdma-c"];
            run(Command::new(env!("CARGO")).current_dir(root).args(build))?;
            release.clone()
        }
    };
    let out = args.out.clone().unwrap_or_else(|| release.join("xrdma"));
    let package = root.join("crates/weft-xrdma-c");
    let place = |from: &Path, to: &str| {
        let to = out.join(to);
        let folder = to.parent().expect("a file lies in a folder");
        fs::create_dir_all(folder)
            // The old file is removed first because a program may have it open.
            .and_then(|()| fs::remove_file(&to).or_else(ignore_missing))
            .and_then(|()| fs::copy(from, &to))
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
    };
    place(&built.join("libxrdma.so"), "lib/libxrdma.so.1")?;
    place(&built.join("libxrdma.a"), "lib/libxrdma.a")?;
    place(&package.join("include/xrdma.h"), "include/xrdma.h")?;
    for page in fs::read_dir(package.join("man")).context("cannot read man")? {
        let page = page.context("cannot read man")?;
        let name = page.file_name();
        place(&page.path(), &format!("share/man/man3/{}", name.to_string_lossy()))?;
    }
    let link = out.join("lib/libxrdma.so");
    fs::remove_file(&link)
        .or_else(ignore_missing)
        .and_then(|()| symlink("libxrdma.so.1", &link))
        .with_context(|| format!("cannot link {}", link.display()))?;
    let folder = out.join("lib/pkgconfig");
    let text = PKG_CONFIG.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("xrdma.pc"), text))
        .with_context(|| format!("cannot write {}", folder.display()))?;
    println!("xrdma: {}", out.display());
    Ok(())
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
