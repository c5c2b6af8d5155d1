//! The linking of `libnccl-net-weft.so` and `libnccl-tuner-weft.so` from their crate's archive. They export NCCL's symbols alone:
//! those of libibverbs, which the archive contains, must not meet the ones of another library in the same process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::verbs::{run, target};

/// The names that `NCCL_NET_PLUGIN=weft` and `NCCL_TUNER_PLUGIN=weft` select, and the exports of each.
const LIBRARIES: [(&str, &str); 2] =
    [("libnccl-net-weft.so", "ncclNetPlugin_v*"), ("libnccl-tuner-weft.so", "ncclTunerPlugin_v*")];

/// The archive and the destination folder.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The archive of weft-nccl; by default a release build makes it.
    #[arg(long)]
    archive: Option<PathBuf>,
    /// The folder for the libraries.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Links the libraries.
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
    LIBRARIES.iter().try_for_each(|(name, exports)| link_one(&archive, &folder, name, exports))
}

fn link_one(archive: &Path, folder: &Path, name: &str, exports: &str) -> Result<()> {
    let map = folder.join(format!("{name}.map"));
    let script = format!("{{\n  global:\n    {exports};\n  local:\n    *;\n}};\n");
    fs::write(&map, script).with_context(|| format!("cannot write {}", map.display()))?;
    let linked = folder.join(name);
    // NCCL unloads plugins with the last communicator. This one stays, because the device's thread runs until the process ends.
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,defs"])
        .arg(format!("-Wl,-soname,{name}"))
        .arg(format!("-Wl,--version-script={}", map.display()))
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc", "-o"])
        .arg(&linked))?;
    println!("nccl: {}", linked.display());
    Ok(())
}
