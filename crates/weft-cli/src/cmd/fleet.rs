//! `weft fleet`: a fleet's configuration in etcd.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::json;
use weft_etcd::{Client, EtcdSettings};
use weft_report::terminal::Output;
use weft_report::{Column, Table};
use weft_vswitch::config::Config;
use weft_vswitch::fleet::{Entry, FleetFile, Key, Store, Written};

/// Configure the networks, ports and policies of all hosts in etcd; hosts with `[fleet]` in their file follow it
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft fleet import --host host-1 /etc/weft/vpc.toml > host-1.toml    a host's own file as objects of the fleet
  weft fleet put host-1.toml                 check them and write all of them, or none
  weft fleet list ports/host-1
  weft fleet move host-1/web host-2
  weft fleet del ports/host-2/web
  weft fleet check                           faults of what is there

etcd is named by the table [fleet] of the file --config: `etcd = { endpoints = [...], tls = { ca, certificate, key } }`. \
docs/fleet.md has the layout of keys."
)]
pub(crate) struct Args {
    /// The file whose table `[fleet]` names etcd
    #[arg(long, global = true, value_name = "FILE", default_value = "/etc/weft/vpc.toml")]
    config: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check the objects of a file against the fleet, and write all of them or none
    #[command(after_help = "\
Example:
  weft fleet put tenants.toml")]
    Put {
        /// The objects, a TOML file
        file: PathBuf,
        /// Write one transaction after another, for files of more than 128 keys
        #[arg(long)]
        in_parts: bool,
    },
    /// List objects
    #[command(after_help = "\
Examples:
  weft fleet list
  weft fleet list networks/100
  weft fleet list --json | jq '.[] | select(.fault)'")]
    List {
        /// The first part of their keys
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Look for faults: values that hosts refuse, and objects that contradict each other
    #[command(after_help = "\
Example:
  weft fleet check && echo all is well")]
    Check,
    /// Delete an object; with a port, the place of its machine
    #[command(after_help = "\
Examples:
  weft fleet del ports/host-1/web
  weft fleet del hosts/host-9                 a host that is gone, once its ports are")]
    Del {
        /// Its key, as `weft fleet list` shows it
        key: String,
    },
    /// Move a port to another host
    #[command(after_help = "\
Example:
  weft fleet move host-1/web host-2")]
    Move {
        /// The port, as HOST/PORT
        port: String,
        /// The other host
        host: String,
    },
    /// Print the objects of a host's own file, for `weft fleet put`
    #[command(after_help = "\
Example:
  weft fleet import --host host-1 /etc/weft/vpc.toml > host-1.toml")]
    Import {
        /// The host's name in the fleet
        #[arg(long)]
        host: String,
        /// The host's file
        file: PathBuf,
    },
}

/// The keys of `[fleet]` that commands need.
#[derive(Deserialize)]
struct Access {
    #[serde(default = "prefix")]
    prefix: String,
    etcd: EtcdSettings,
}

fn prefix() -> String {
    "/weft".into()
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { config, verb } = arguments;
    if let Verb::Import { host, file } = verb {
        let objects = FleetFile::import(&Config::read(&file)?, &host);
        objects.objects()?;
        let text = toml::to_string(&objects).context("cannot write the objects as TOML")?;
        output.value(&objects, || text.clone())?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = store(&config)?;
    match verb {
        Verb::List { prefix } => list(&store, &prefix, output)?,
        Verb::Check => return check(&store, output),
        Verb::Put { file, in_parts } => {
            let objects = FleetFile::read(&file)?;
            let written = store.put(&objects, in_parts);
            show(written.with_context(|| file.display().to_string())?, output)?;
        }
        Verb::Del { key } => show(store.delete(&parse(&key)?)?, output)?,
        Verb::Move { port, host } => {
            let Some((from, name)) = port.split_once('/') else {
                bail!("{port:?} is not HOST/PORT, such as host-1/web");
            };
            show(store.move_port(from, name, &host)?, output)?;
        }
        Verb::Import { .. } => unreachable!("done above"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the fleet that the table `[fleet]` of a file names.
fn store(file: &Path) -> Result<Store> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| {
        format!("cannot read {shown} (--config FILE: one with a table [fleet])")
    })?;
    let mut table: toml::Table = toml::from_str(&text).with_context(|| shown.to_string())?;
    let fleet = table
        .remove("fleet")
        .ok_or_else(|| anyhow!("{shown} has no table [fleet], which names etcd: docs/fleet.md"))?;
    let access: Access = fleet.try_into().with_context(|| format!("{shown}: [fleet]"))?;
    Ok(Store::new(Client::new(&access.etcd)?, &access.prefix))
}

fn parse(key: &str) -> Result<Key> {
    Ok(key.parse::<Key>()?)
}

fn show(written: Written, output: Output) -> Result<()> {
    let Written { set, deleted, unchanged } = written;
    output.value(&written, || format!("{set} keys set, {deleted} deleted, {unchanged} as before"))
}

fn list(store: &Store, prefix: &str, output: Output) -> Result<()> {
    let mut entries = store.list()?;
    entries.retain(|entry| entry.key.starts_with(prefix));
    if output.is_json() {
        return output.value(&entries, String::new);
    }
    let mut table = Table::new(vec![Column::text("key", "key"), Column::text("value", "value")]);
    for Entry { key, value, fault } in entries {
        let value = value.map(|value| String::from_utf8_lossy(&value.json()).into_owned());
        let value = value.unwrap_or_else(|| format!("REFUSED: {}", fault.unwrap_or_default()));
        table.push(vec![key.as_str().into(), value.as_str().into()]);
    }
    output.table(&table)
}

fn check(store: &Store, output: Output) -> Result<ExitCode> {
    let faults = store.check()?;
    output.value(&json!({ "faults": faults }), || words(&faults))?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn words(faults: &BTreeMap<String, String>) -> String {
    if faults.is_empty() {
        return "no faults".into();
    }
    let lines: Vec<_> = faults.iter().map(|(key, fault)| format!("{key}: {fault}")).collect();
    lines.join("\n")
}
