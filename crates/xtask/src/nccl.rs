//! The linking of `libnccl-net-weft.so` from its crate's archive. It exports NCCL's symbols alone: those of libibverbs, which the
//! archive contains, must not meet the ones of another library in the same process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::verbs::{run, target};

/// The name that `NCCL_NET_PLUGIN=weft` selects.
const NAME: &str = "libnccl-net-weft.so";

/// The linker's version script.
const EXPORTS: &str = "{\n  global:\n    ncclNetPlugin_v*;\n  local:\n    *;\n};\n";

/// The archive and the destination folder.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The archive of weft-nccl; by default a release build makes it.
    #[arg(long)]
    archive: Option<PathBuf>,
    /// The folder for the library.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Links the library.
///
/// # Errors
/// Returns the command that failed, or the file that cannot be written.
pub(crate) fn link(root: &Path, args: &Args) -> Result<()> {
    let release = target(root)?.join("release");
    let folder = args.out.clone().unwrap_or_else(|| release.join("nccl"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let archive = match &args.archive {
        Some(archive) => archive.clone(),
        None => {
            let build = ["build", "--release", "--lib", "--package", "weft-nccl"];
            run(Command::new(env!("CARGO")).current_dir(root).args(build))?;
            release.join("libweft_nccl.a")
        }
    };
    let map = folder.join("nccl.map");
    fs::write(&map, EXPORTS).with_context(|| format!("cannot write {}", map.display()))?;
    let linked = folder.join(NAME);
    // NCCL unloads plugins with the last communicator. This one stays, because the device's thread runs until the process ends.
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,defs"])
        .arg(format!("-Wl,-soname,{NAME}"))
        .arg(format!("-Wl,--version-script={}", map.display()))
        .arg("-Wl,--whole-archive")
        .arg(&archive)
        .arg("-Wl,--no-whole-archive")
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc", "-o"])
        .arg(&linked))?;
    println!("nccl: {}", linked.display());
    Ok(())
}
