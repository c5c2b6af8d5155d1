//! `weft run`: programs for RDMA, as they are, on Weft's device.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use weft_verbs::Admin;

use crate::output::Output;

/// What programs load in place of rdma-core's.
const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
/// What has UCX find a node of the device below /dev.
const PRELOAD: &str = "libweft_preload.so";

/// Names a daemon's device to the library, and the daemon's socket.
const DEVICE: &str = "WEFT_DEVICE";
const SOCKET: &str = "WEFT_DEVICE_SOCKET";

/// Run an RDMA program as it is: no RDMA hardware, no kernel module, no root
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft run -- ibv_devinfo
  weft run -- ib_write_bw                       and, elsewhere or in another terminal:
  weft run -- ib_write_bw 192.0.2.7
  weft run -- rping -s -V -C 10                 connected by librdmacm
  weft run -- env UCX_TLS=rc_v,self UCX_NET_DEVICES=weft0:1 ucx_perftest
  WEFT_PATHS=8 weft run -- ib_send_lat          8 paths instead of 128
  weft run --device tenant-a -- ib_write_bw     on a device of `weft device serve`
  weft capture -w lat.pcapng -- weft run -- ib_send_lat

The program and its children load libibverbs and librdmacm of `cargo xtask verbs`, and find one device, \
weft0 or the one of --device, with every address of this host. What comes out of the program, its exit code too, is its own. \
Programs that are linked statically, or that run as another user (setuid), do not see the device."
)]
pub(crate) struct Args {
    /// The folder with the libraries [default: verbs, beside this program]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// A device of a daemon's, in place of one in the program (`weft device`)
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The daemon's socket [default: this user's daemon, or the machine's]
    #[arg(long, value_name = "PATH", requires = "device")]
    socket: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

pub(crate) fn run(arguments: Args, _output: Output) -> Result<ExitCode> {
    let folder = arguments.libraries.map_or_else(beside_this_program, Ok)?;
    let folder = std::path::absolute(folder).context("cannot find the current folder")?;
    for file in LIBRARIES.into_iter().chain([PRELOAD]) {
        if !folder.join(file).is_file() {
            bail!(
                "no {file} in {}: `cargo xtask verbs` makes it, or name its folder with --libraries",
                folder.display()
            );
        }
    }
    let [program, rest @ ..] = arguments.program.as_slice() else { bail!("which program?") };
    if let Some(name) = &arguments.device {
        // The program would only find no device.
        Admin::connect(arguments.socket.as_deref())?.show(name)?;
    }
    let socket = arguments.socket.map(std::path::absolute).transpose();
    let socket = socket.context("cannot find the current folder")?;
    // The program takes this one's place, so that signals and its end are its own.
    let error = Command::new(program)
        .args(rest)
        .envs(arguments.device.map(|name| (DEVICE, name)))
        .envs(socket.map(|path| (SOCKET, path)))
        .env("LD_LIBRARY_PATH", in_front(&folder, env::var_os("LD_LIBRARY_PATH")))
        .env("LD_PRELOAD", in_front(&folder.join(PRELOAD), env::var_os("LD_PRELOAD")))
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

fn beside_this_program() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's folder")?;
    Ok(program.with_file_name("verbs"))
}

/// A list of the dynamic linker's with one more at its beginning.
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
    fn what_was_there_comes_after() {
        let path = Path::new("/a");
        assert_eq!(in_front(path, None), "/a");
        // An empty entry would be the current folder.
        assert_eq!(in_front(path, Some("".into())), "/a");
        assert_eq!(in_front(path, Some("/b:/c".into())), "/a:/b:/c");
    }
}
