//! X-RDMA messages for commands: opens a node on the machine's RDMA device, or on Weft's own.

use std::env;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use weft_guard::{Token, is_exposed};
use weft_xrdma::{Config, Node, NodeError, Options, VerbsLibraryError};

use crate::interrupt::until_interrupted;
use crate::libraries;
use weft_report::terminal::Output;

mod answer;
mod lender;
mod pinger;
mod protocol;

use answer::Rights;
pub(crate) use lender::Lender;
pub(crate) use protocol::{Order, OrderResult, Outcome};

/// Answers messages at an address until interrupted. It accepts orders from clients that show the token in the file;
/// without a token it accepts orders only if it listens at a loopback address.
///
/// # Errors
/// Returns an error if there is no device, the address is taken, or the file cannot be read or is open to other users.
pub(crate) fn answer_at(
    listen: SocketAddr,
    token_file: Option<&Path>,
    options: &NodeOptions,
    output: Output,
) -> Result<()> {
    let token = token_file.map(Token::read).transpose()?;
    let mut node = options.open(0)?;
    let local = node.listen(listen)?;
    let stop = until_interrupted()?;
    output.value(&json!({ "listening": local, "device_address": node.address() }), || {
        format!("answering messages at {local}; interrupt to stop")
    })?;
    let rights = Rights { token, is_exposed: is_exposed(local.ip()) };
    answer::serve(node, options, rights, &stop);
    Ok(())
}

/// The port of a server of messages by default.
pub(crate) const DEFAULT_PORT: u16 = 4792;

/// The RDMA device of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Device {
    /// This machine's device, or Weft's own if it has none
    #[default]
    Auto,
    /// This machine's device
    System,
    /// Weft's own device, without RDMA hardware
    Weft,
}

/// Options of a command's node.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeOptions {
    /// The RDMA device that carries messages
    #[arg(long, value_enum, default_value_t)]
    device: Device,
    /// The folder with Weft's own libraries [default: verbs, beside this program]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// A parameter of the messaging layer, such as depth=64
    #[arg(id = "message-set", long = "message-set", value_name = "NAME=VALUE")]
    set: Vec<String>,
}

/// The variable that is set when the process already runs on Weft's own libraries.
const ON_OWN_DEVICE: &str = "WEFT_ON_OWN_DEVICE";

impl NodeOptions {
    /// Opens a node. If the machine has no device, or Weft's was chosen, the command restarts on
    /// Weft's libraries: a process loads them when it starts.
    ///
    /// # Errors
    /// Returns an error if a parameter is wrong, or there is no device.
    pub(crate) fn open(&self, trace_every: u32) -> Result<Node> {
        self.begin(|mut options| {
            options.config.trace_every = trace_every;
            Ok(Node::new(options)?)
        })
    }

    /// Returns the result of `make`, which opens a node. As [`open`](Self::open), it restarts the command if there is
    /// no device, for which `make` returns a `NodeError`.
    ///
    /// # Errors
    /// Returns an error if a parameter is wrong or there is no device, or the error of `make`.
    pub(crate) fn begin<T>(&self, make: impl FnOnce(Options) -> Result<T>) -> Result<T> {
        let mut config = Config::default();
        for setting in &self.set {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| anyhow!("--message-set {setting}: expected NAME=VALUE"))?;
            config.set(name, value)?;
        }
        let is_restarted = Self::is_on_own_device();
        if self.device == Device::Weft && !is_restarted {
            return self.restart("as asked");
        }
        make(Options { config, ..Options::default() }).or_else(|error| {
            let missing = matches!(
                error.downcast_ref(),
                Some(NodeError::Verbs(VerbsLibraryError::NoDevice | VerbsLibraryError::Missing(_)))
            );
            if missing && self.device == Device::Auto && !is_restarted {
                return self.restart("this machine has none");
            }
            Err(error)
        })
    }

    /// Returns `true` if this process runs on Weft's own libraries.
    pub(crate) fn is_on_own_device() -> bool {
        env::var_os(ON_OWN_DEVICE).is_some()
    }

    /// Restarts the command on Weft's libraries. Returns only if that fails.
    fn restart<T>(&self, why: &str) -> Result<T> {
        let folder = libraries::find(self.libraries.as_deref())?;
        // The notice goes to standard error, because standard output has the command's result.
        anstream::eprintln!("on Weft's own RDMA device, {why}");
        let program = env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(ON_OWN_DEVICE, "1");
        Err(libraries::use_them(&mut command, &folder).exec()).context("cannot begin again")
    }
}
