//! `weft run`: runs unmodified RDMA programs on Weft's device.

mod stacks;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use weft_verbs::Admin;

use crate::libraries;
pub(super) use stacks::Stack;
use weft_report::terminal::Output;

/// Variables that name a daemon's device, and the daemon's socket, to the library.
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
  WEFT_PROFILE=stellar weft run -- ib_send_lat  every packet over one of 128 paths at random
  WEFT_LINE_RATE=1Gbps weft run -- ib_write_bw  a link that is slower than it looks (40 Gb/s)
  weft run --device tenant-a -- ib_write_bw     on a device of `weft device serve`
  weft run --shared-memory -- ib_write_bw       neighbours on this host map its buffers
  weft run --for nixl -- python3 transfer.py    a stock wheel of NIXL, with what its UCX needs set (`weft list stacks`)
  weft capture -w lat.pcapng -- weft run -- ib_send_lat

The program and its children load libibverbs and librdmacm of `cargo xtask verbs`, and find one device, \
weft0 or the one of --device, with every address of this host; it is in /sys and /dev/infiniband too. The program's output and exit code are passed on unchanged. \
Programs that are linked statically, or that run as another user (setuid), do not see the device."
)]
pub(crate) struct Args {
    /// The folder with the libraries [default: verbs, beside this program]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// A daemon's device, instead of one in the program (`weft device`)
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The daemon's socket [default: this user's daemon, or the machine's]
    #[arg(long, value_name = "PATH", requires = "device")]
    socket: Option<PathBuf>,
    /// The stack that the program uses, whose variables are set: nixl, mooncake or nccl
    #[arg(long = "for", value_name = "STACK")]
    stack: Option<Stack>,
    /// Allocate the program's large blocks in memory that neighbours on this host can map: RDMA without system calls
    #[arg(long)]
    shared_memory: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

pub(crate) fn run(arguments: Args, _output: Output) -> Result<ExitCode> {
    let folder = libraries::find(arguments.libraries.as_deref())?;
    let [program, rest @ ..] = arguments.program.as_slice() else { bail!("which program?") };
    if let Some(name) = &arguments.device {
        // Without this check the program would report only that it finds no device.
        Admin::connect(arguments.socket.as_deref())?.show(name)?;
    }
    let socket = arguments.socket.map(std::path::absolute).transpose();
    let socket = socket.context("cannot find the current folder")?;
    // The program replaces this process, so that it receives signals itself and its exit code is this command's.
    let mut command = Command::new(program);
    command.args(rest).envs(arguments.device.as_ref().map(|name| (DEVICE, name)));
    command.envs(socket.map(|path| (SOCKET, path)));
    if let Some(stack) = arguments.stack {
        let device = arguments.device.as_deref().unwrap_or("weft0");
        stacks::prepare(&mut command, stack, &folder, device);
    }
    let command = if arguments.shared_memory {
        eprintln!("weft: shared memory: blocks of 64 KiB and more, and those aligned to a page");
        libraries::use_them_with_shared_memory(&mut command, &folder)?
    } else {
        libraries::use_them(&mut command, &folder)
    };
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
