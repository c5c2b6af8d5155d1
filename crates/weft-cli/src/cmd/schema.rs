//! `weft schema`: prints the JSON Schema of a configuration file, made from the structure that the file is read into.

use std::process::ExitCode;

use anyhow::Result;
use schemars::{Schema, json_schema, schema_for};
use serde_json::{Map, Value};
use weft_plan::cluster::ClusterConfig;
use weft_report::terminal::Output;
use weft_report::{Column, Table};
use weft_route::Installed;
use weft_seal::Mode;
use weft_sim::Scenario;
use weft_sim::experiment::Experiment;
use weft_steer::SteerConfig;
use weft_udp::{SettingError, SettingFault};
use weft_verbs::DaemonSettings;
use weft_vswitch::config::Config as OverlayConfig;
use weft_vswitch::fleet::{FleetFile, Object};

use super::ping::HostsFile;

#[cfg(test)]
mod tests;

/// Print the JSON Schema of a configuration file, for editors and checks before a roll-out
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft schema                                      the kinds of files
  weft schema overlay > vpc.schema.json
  sed -i '1i #:schema ./vpc.schema.json' vpc.toml  editors with Taplo then complete and check the file

A schema has the keys, their types and their documentation. Values that depend on each other are checked by the command \
that reads the file.")]
pub(crate) struct Args {
    /// The kind of file, such as `overlay`
    kind: Option<Kind>,
}

weft_units::registry! {
    /// A kind of configuration file.
    enum Kind: "kind of configuration" {
        Overlay => "overlay", "the overlay's daemon: `weft vpc serve`";
        Fleet => "fleet", "objects of a fleet: `weft fleet put`";
        FleetObject => "fleet-object", "values of a fleet's keys in etcd";
        Controller => "controller", "the route controller: `weft route serve`";
        Device => "device", "the device's daemon: `weft device serve`";
        Scenario => "scenario", "a simulation: `weft sim run`";
        Experiment => "experiment", "a figure and its claims: `weft experiment run`";
        Cluster => "cluster", "servers and switches: `weft plan`";
        Tables => "tables", "the installed tables of routers: `weft route explain --installed`";
        Hosts => "hosts", "hosts by ToR: `weft ping --file`";
    }
}

impl Kind {
    /// Returns the schema, JSON Schema 2020-12.
    fn schema(self) -> Schema {
        match self {
            Self::Overlay => schema_for!(OverlayConfig),
            Self::Fleet => schema_for!(FleetFile),
            Self::FleetObject => schema_for!(Object),
            Self::Controller => schema_for!(SteerConfig),
            Self::Device => device(),
            Self::Scenario => schema_for!(Scenario),
            Self::Experiment => schema_for!(Experiment),
            Self::Cluster => schema_for!(ClusterConfig),
            Self::Tables => schema_for!(Installed),
            Self::Hosts => schema_for!(HostsFile),
        }
    }
}

/// Returns the schema of the device daemon's file, whose keys are set one by one.
fn device() -> Schema {
    let keys = DaemonSettings::keys().into_iter();
    let properties: Map<String, Value> = keys.map(|key| (key.to_owned(), setting(key))).collect();
    json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "DaemonSettings",
        "description": "Settings of a daemon; a key that is not set has its default.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Returns the schema of a setting's values: the names that the reader knows, or the reader's words for them.
fn setting(key: &str) -> Value {
    let schema = match DaemonSettings::default().set(key, "?") {
        Ok(()) => json_schema!({ "type": "string", "description": "A file." }),
        Err(SettingError { reason: SettingFault::Unknown(name), .. }) => {
            json_schema!({ "type": "string", "enum": name.known() })
        }
        Err(SettingError { reason: SettingFault::Mode(_), .. }) => {
            json_schema!({ "type": "string", "enum": Mode::ALL.map(Mode::name) })
        }
        Err(SettingError { reason, .. }) => {
            let values = reason.to_string();
            json_schema!({ "type": ["string", "integer"], "description": values.trim_start_matches("not ") })
        }
    };
    schema.to_value()
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.kind {
        // A schema is JSON for people too.
        Some(kind) => Output::new(true).value(&kind.schema(), String::new)?,
        None => output.table(&kinds())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn kinds() -> Table {
    let mut table = Table::new(vec![Column::text("kind", "name"), Column::text("of", "about")]);
    for kind in Kind::ALL {
        table.push(vec![kind.name().into(), kind.about().into()]);
    }
    table
}
