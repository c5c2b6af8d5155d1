//! `weft device`: one daemon owns the RDMA device, and programs attach to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::{Value, json};
use weft_report::{Cell, Column, Table};
use weft_verbs::{
    Admin, Amounts, Daemon, DaemonSettings, DeviceState, default_socket, describe_limits,
    describe_transport,
};

use weft_report::terminal::{Output, render};

/// Share one RDMA device among programs, containers and users: a daemon owns the wire, programs attach
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft device serve                          the daemon; root's is for every user of the machine
  weft device create tenant-a                a device of this user's
  weft run --device tenant-a -- ib_write_bw  a program on it, and its children
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
    #[command(after_help = "\
Examples:
  sudo weft device serve                        for every user of the machine
  weft device serve --socket /tmp/a.sock        for this user, at this place
  weft device serve --config /etc/weft/device.toml
  WEFT_PROFILE=stellar weft device serve        every packet over one of 128 paths at random

The file has lines such as `profile = \"stellar\"`; its keys are profile, policy, congestion, paths, rto, mtu, \
line-rate, held-bytes, held-bytes-per-peer, and quotas such as queue-pairs-per-user (docs/device.md). Variables of \
those names, WEFT_PROFILE to WEFT_HELD_BYTES_PER_PEER, take precedence; quotas have none. Programs find the addresses that the daemon's host, or network namespace, has when it starts. Devices are \
not kept from one daemon to the next.")]
    Serve {
        /// Settings of the daemon and of its devices' transport, a TOML file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Make a device
    #[command(after_help = "\
Examples:
  weft device create tenant-a
  weft device create tenant-a --queue-pairs 64 --regions 1000
  sudo weft device create tenant-b --owner 1000    for another user

The daemon has 4096 queue pairs for all its devices, of which a user other than root has half on all its devices together \
(queue-pairs-per-user in the daemon's file).")]
    Create(Create),
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
    /// Delete a device that nobody uses
    #[command(after_help = "\
Examples:
  weft device delete tenant-a
  weft device delete tenant-a --force    programs that use it get a fatal event and flushed requests")]
    Delete {
        /// The device
        name: String,
        /// Delete it even if programs use it
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: letters, digits, dots, dashes, underscores
    name: String,
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
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { socket, verb } = arguments;
    let connect = || Admin::connect(socket.as_deref());
    match verb {
        Verb::Serve { config } => {
            let settings = config.as_deref().map_or(Ok(DaemonSettings::default()), read)?;
            serve(socket.unwrap_or_else(default_socket), settings, output)?;
        }
        Verb::Create(Create {
            name,
            owner,
            processes,
            domains,
            regions,
            completion_queues,
            shared_receive_queues,
            queue_pairs,
        }) => {
            let limits = Amounts {
                processes,
                domains,
                regions,
                completion_queues,
                shared_receive_queues,
                queue_pairs,
            };
            connect()?.create(&name, owner, limits)?;
            output.value(&json!({ "created": name }), || format!("created {name}"))?;
        }
        Verb::List => list(&connect()?.list()?, output)?,
        Verb::Show { name: Some(name) } => show(&connect()?.show(&name)?, output)?,
        Verb::Show { name: None } => {
            let transport = describe_transport().context("a variable is not allowed")?;
            let limits = describe_limits().context("a variable is not allowed")?;
            output.value(
                &json!({ "transport": rows(&transport), "limits": rows(&limits) }),
                || format!("{}\n{}", table("transport", &transport), table("limits", &limits)),
            )?;
        }
        Verb::Delete { name, force } => {
            connect()?.delete(&name, force)?;
            output.value(&json!({ "deleted": name }), || format!("deleted {name}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a file of settings.
fn read(file: &Path) -> Result<DaemonSettings> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let keys: toml::Table = text.parse().with_context(|| file.display().to_string())?;
    let mut settings = DaemonSettings::default();
    for (key, value) in &keys {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        settings.set(key, &value).with_context(|| file.display().to_string())?;
    }
    Ok(settings)
}

fn serve(socket: PathBuf, settings: DaemonSettings, output: Output) -> Result<()> {
    let daemon = Daemon::open(&socket, settings)?;
    let stopper = daemon.stopper();
    ctrlc::set_handler(move || stopper.stop()).context("cannot watch for interruption")?;
    output.value(&json!({ "serving": socket }), || format!("serving at {}", socket.display()))?;
    Ok(daemon.run()?)
}

/// Returns each limited resource by name.
fn amounts(of: &Amounts) -> [(&'static str, u32); 6] {
    [
        ("processes", of.processes),
        ("domains", of.domains),
        ("regions", of.regions),
        ("completion_queues", of.completion_queues),
        ("shared_receive_queues", of.shared_receive_queues),
        ("queue_pairs", of.queue_pairs),
    ]
}

/// Returns rows of name and value as one object.
fn rows(of: &[(String, String)]) -> Value {
    of.iter().map(|(name, value)| (name.replace(' ', "_"), Value::from(value.clone()))).collect()
}

/// Returns the same rows as text, under a heading.
fn table(heading: &'static str, of: &[(String, String)]) -> String {
    let mut table = Table::new(vec![Column::text(heading, "name"), Column::text("", "value")]);
    let cell = |text: &String| Cell::new(text.clone(), text.clone());
    of.iter().for_each(|(name, value)| table.push(vec![cell(name), cell(value)]));
    render(&table)
}

fn describe(state: &DeviceState) -> Value {
    let object = |of| {
        Value::Object(
            amounts(of).map(|(name, count)| (name.to_owned(), count.into())).into_iter().collect(),
        )
    };
    json!({
        "name": state.name,
        "owner": state.owner,
        "limits": object(&state.limits),
        "used": object(&state.used),
        "processes": state.processes,
        "transport": rows(&state.transport),
        "daemon": rows(&state.daemon),
    })
}

fn list(states: &[DeviceState], output: Output) -> Result<()> {
    let all: Vec<Value> = states.iter().map(describe).collect();
    output.value(&all, || {
        let headings = ["owner", "processes", "queue pairs", "of", "regions", "of"];
        let keys =
            ["owner", "processes", "queue_pairs", "most_queue_pairs", "regions", "most_regions"];
        let numbers =
            headings.into_iter().zip(keys).map(|(heading, key)| Column::number(heading, key));
        let mut table =
            Table::new([Column::text("device", "name")].into_iter().chain(numbers).collect());
        for DeviceState { name, owner, limits, used, .. } in states {
            let numbers = [
                *owner,
                used.processes,
                used.queue_pairs,
                limits.queue_pairs,
                used.regions,
                limits.regions,
            ];
            let numbers = numbers.map(|number| Cell::new(number.to_string(), number));
            table
                .push([Cell::new(name.clone(), name.clone())].into_iter().chain(numbers).collect());
        }
        render(&table)
    })
}

fn show(state: &DeviceState, output: Output) -> Result<()> {
    output.value(&describe(state), || {
        let mut table = Table::new(vec![
            Column::text("", "what"),
            Column::number("has", "used"),
            Column::number("may have", "limit"),
        ]);
        for ((name, used), (_, limit)) in
            amounts(&state.used).into_iter().zip(amounts(&state.limits))
        {
            let name = name.replace('_', " ");
            table.push(vec![
                Cell::new(name.clone(), name),
                Cell::new(used.to_string(), used),
                Cell::new(limit.to_string(), limit),
            ]);
        }
        let processes: Vec<_> = state.processes.iter().map(u32::to_string).collect();
        let users = if processes.is_empty() { "none".into() } else { processes.join(", ") };
        let (amounts, transport) = (render(&table), self::table("transport", &state.transport));
        let daemon = self::table("daemon", &state.daemon);
        format!(
            "{} of user {}, processes: {users}\n{amounts}\n{transport}\n{daemon}",
            state.name, state.owner
        )
    })
}
