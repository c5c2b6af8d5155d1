//! `weft device`: one daemon owns the RDMA device, and programs attach to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::json;
use weft_report::terminal::Output;
use weft_units::ByteCount;
use weft_verbs::{
    Admin, Amounts, DeviceLimits, GuestDevice, Names, default_socket, describe_limits,
    describe_transport,
};

mod events;
pub(crate) mod metrics;
mod serve;
mod show;

/// Share one RDMA device among programs, containers and users: a daemon owns the wire, programs attach
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft device serve                          the daemon; root's is for every user of the machine
  weft device create tenant-a                a device of this user's
  weft run --device tenant-a -- ib_write_bw  a program on it, and its children
  weft device guest tenant-a --memory 4GiB   a device for a virtual machine
  weft device create vm --count 64000        vm-0 to vm-63999
  weft device list
  weft device delete tenant-a

Without a daemon, `weft run` puts the device into each program. With one, the programs of a host share one \
port and one engine, are isolated from each other, and the daemon reclaims the resources of a program that dies. The daemon \
listens at /run/weft/device.sock where it is root's, else below XDG_RUNTIME_DIR; --socket and \
WEFT_DEVICE_SOCKET name another place."
)]
pub(crate) struct Args {
    /// The daemon's socket [default: this user's daemon, or the machine's]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve until interrupted
    Serve(serve::Serve),
    /// Make a device, or many
    #[command(after_help = "\
Examples:
  weft device create tenant-a
  weft device create tenant-a --queue-pairs 64 --regions 1000 --memory 1GiB --messages-per-second 100000
  sudo weft device create tenant-b --owner 1000    for another user
  sudo weft device create vm --count 64000         vm-0 to vm-63999, all of them or none

The daemon has 65,000 queue pairs for all its devices, of which a user other than root has half on all its devices together \
(queue-pairs-per-user in the daemon's file).")]
    Create(Create),
    /// Give a device to a virtual machine, until interrupted
    #[command(after_help = "\
Examples:
  weft device guest tenant-a --memory 4GiB               prints options; QEMU is started with them and the rest of its own
  weft device guest tenant-a --memory 4GiB --ports 8 --json | jq -r '.options[]'

The guest's memory and a PCI device's BAR are files of this process, which QEMU maps: run both as the same user. In the guest, \
programs of root find the device without a variable if they load Weft's libibverbs.so.1; each has a port of its own. The guest needs no \
module but virtio_console. The device ends with this command, and the guest keeps its memory.")]
    Guest {
        /// The device
        name: String,
        /// The size of the guest's memory, a multiple of 1 MiB
        #[arg(long, value_name = "SIZE")]
        memory: ByteCount,
        /// Processes of the guest that use the device at a time, from 1 to 64
        #[arg(long, value_name = "N", default_value_t = 4)]
        ports: u32,
        /// The folder for the ports' sockets [default: `guests` beside the daemon's socket]
        #[arg(long, value_name = "PATH")]
        folder: Option<PathBuf>,
    },
    /// List the devices that this user may use
    #[command(after_help = "\
Examples:
  weft device list
  weft device list --json | jq '.[] | select(.used.processes > 0).name'")]
    List,
    /// Show one device: owner, limits, use, processes, transport, and the daemon's limits
    #[command(after_help = "\
Examples:
  weft device show tenant-a
  weft device show                             the transport of a program that has the device in itself
  WEFT_PROFILE=stellar weft device show")]
    Show {
        /// The device [default: the device of a program started here without a daemon]
        name: Option<String>,
    },
    /// Delete a device that nobody uses, or many
    #[command(after_help = "\
Examples:
  weft device delete tenant-a
  weft device delete tenant-a --force    programs that use it get a fatal event and flushed requests
  weft device delete vm --count 64000    vm-0 to vm-63999, all of them or none")]
    Delete {
        #[command(flatten)]
        names: Named,
        /// Delete it even if programs use it
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Its name: letters, digits, dots, dashes, underscores
    name: String,
    /// Number of devices; a dash and a number follow the name of each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// The first number
    #[arg(long, value_name = "N", default_value_t = 0, requires = "count")]
    first: u32,
}

impl Named {
    fn names(&self) -> Names {
        match self.count {
            Some(count) => Names::numbered(&self.name, self.first, count),
            None => (&self.name).into(),
        }
    }

    /// Prints what was done to the devices.
    fn print(&self, done: &str, output: Output) -> Result<()> {
        let names = self.names();
        let ends = names.iter().next().zip(names.iter().last());
        match ends.filter(|_| self.count.is_some()) {
            Some((first, last)) => output.value(
                &json!({ done: { "count": names.count(), "first": first, "last": last } }),
                || format!("{done} {} devices, {first} to {last}", names.count()),
            ),
            None => output.value(&json!({ done: self.name }), || format!("{done} {}", self.name)),
        }
    }
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    names: Named,
    /// The user ID of the device's owner [default: the user who makes it]
    #[arg(long, value_name = "UID")]
    owner: Option<u32>,
    /// Processes at a time
    #[arg(long, value_name = "N", default_value_t = Amounts::default().processes)]
    processes: u32,
    /// Protection domains
    #[arg(long, value_name = "N", default_value_t = Amounts::default().domains)]
    domains: u32,
    /// Memory regions and windows
    #[arg(long, value_name = "N", default_value_t = Amounts::default().regions)]
    regions: u32,
    /// Completion queues
    #[arg(long, value_name = "N", default_value_t = Amounts::default().completion_queues)]
    completion_queues: u32,
    /// Shared receive queues
    #[arg(long, value_name = "N", default_value_t = Amounts::default().shared_receive_queues)]
    shared_receive_queues: u32,
    /// Queue pairs
    #[arg(long, value_name = "N", default_value_t = Amounts::default().queue_pairs)]
    queue_pairs: u32,
    /// Registered memory [default: without limit]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteCount>,
    /// Messages sent a second; programs wait [default: without limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    messages_per_second: Option<u32>,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { socket, verb } = arguments;
    let connect = || Admin::connect(socket.as_deref());
    match verb {
        Verb::Serve(arguments) => serve::run(arguments, socket, output)?,
        Verb::Create(Create {
            names,
            owner,
            processes,
            domains,
            regions,
            completion_queues,
            shared_receive_queues,
            queue_pairs,
            memory,
            messages_per_second,
        }) => {
            let objects = Amounts {
                processes,
                domains,
                regions,
                completion_queues,
                shared_receive_queues,
                queue_pairs,
            };
            let memory = memory.map(|ByteCount(bytes)| bytes);
            let limits = DeviceLimits { objects, memory, messages_per_second };
            connect()?.create(names.names(), owner, limits)?;
            names.print("created", output)?;
        }
        Verb::Guest { name, memory, ports, folder } => {
            let daemon = socket.clone().unwrap_or_else(default_socket);
            let folder = folder.unwrap_or_else(|| daemon.with_file_name("guests"));
            let guest = GuestDevice::start(&name, memory, ports, &folder, socket.as_deref())?;
            serve_guest(&guest, output)?;
        }
        Verb::List => show::list(&connect()?.list()?, output)?,
        Verb::Show { name: Some(name) } => show::one(&connect()?.show(&name)?, output)?,
        Verb::Show { name: None } => {
            let transport = describe_transport().context("a variable is not allowed")?;
            let limits = describe_limits().context("a variable is not allowed")?;
            output.value(
                &json!({ "transport": show::rows(&transport), "limits": show::rows(&limits) }),
                || {
                    let tables = [("transport", &transport), ("limits", &limits)];
                    tables.map(|(heading, of)| show::table(heading, of)).join("\n")
                },
            )?;
        }
        Verb::Delete { names, force } => {
            connect()?.delete(names.names(), force)?;
            names.print("deleted", output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints QEMU's options, then waits for interruption.
fn serve_guest(guest: &GuestDevice, output: Output) -> Result<()> {
    let (interrupted, is_interrupted) = channel();
    let on_interruption = move || {
        // The second one finds the receiver gone.
        let _ = interrupted.send(());
    };
    ctrlc::set_handler(on_interruption).context("cannot watch for interruption")?;
    let options = guest.options();
    let lines = || {
        let pairs = options.chunks(2).map(|pair| pair.join(" "));
        pairs.collect::<Vec<_>>().join(" \\\n")
    };
    output.value(&json!({ "options": options }), lines)?;
    is_interrupted.recv().context("nothing else ends the wait")
}
