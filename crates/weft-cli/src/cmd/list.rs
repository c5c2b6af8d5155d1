//! `weft list`: prints every row of every registry.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use weft_report::{Column, Table};
use weft_units::unknown_name;

use weft_report::terminal::{Output, render};

/// List the available policies, congestion controls, topologies and so on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft list                     everything
  weft list policies            the ways to choose a packet's path
  weft list topologies --json   for a script")]
pub(crate) struct Args {
    /// One kind only, such as `policies`
    kind: Option<String>,
}

/// A row of a registry.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    about: &'static str,
}

/// A registry: its name, a description of its entries, and its rows.
struct Kind {
    name: &'static str,
    about: &'static str,
    entries: fn() -> Vec<Entry>,
}

macro_rules! rows {
    ($kind:ty) => {
        || <$kind>::ALL.iter().map(|row| Entry { name: row.name(), about: row.about() }).collect()
    };
}

const KINDS: &[Kind] = &[
    Kind {
        name: "policies",
        about: "how a connection chooses the path of each packet",
        entries: rows!(weft_transport::path::Kind),
    },
    Kind {
        name: "units",
        about: "how many packets take one path before the next is chosen",
        entries: rows!(weft_transport::path::unit::Kind),
    },
    Kind {
        name: "congestion",
        about: "how much a connection may have in flight",
        entries: rows!(weft_transport::congestion::Kind),
    },
    Kind {
        name: "recovery",
        about: "how a connection finds what was lost",
        entries: rows!(weft_transport::recovery::Kind),
    },
    Kind {
        name: "profiles",
        about: "published systems as configurations of the transport",
        entries: rows!(weft_transport::Profile),
    },
    Kind {
        name: "stacks",
        about: "software whose variables `weft run --for` sets",
        entries: rows!(super::run::Stack),
    },
    Kind {
        name: "topologies",
        about: "shapes of simulated networks",
        entries: rows!(weft_topo::build::TopologyKind),
    },
    Kind {
        name: "switches",
        about: "how a simulated switch chooses among equal-cost links",
        entries: rows!(weft_sim::switch::Kind),
    },
    Kind {
        name: "queues",
        about: "how a simulated port queues",
        entries: rows!(weft_sim::queue::Kind),
    },
    Kind {
        name: "workloads",
        about: "what simulated hosts send",
        entries: rows!(weft_sim::workload::Kind),
    },
    Kind {
        name: "formats",
        about: "graphs of other simulators that a workload runs",
        entries: rows!(weft_sim::import::Format),
    },
    Kind {
        name: "sizes",
        about: "published distributions of flow sizes",
        entries: rows!(weft_sim::workload::sizes::Published),
    },
    Kind {
        name: "models",
        about: "models whose training can be simulated",
        entries: rows!(weft_sim::workload::Model),
    },
    Kind {
        name: "faults",
        about: "what can go wrong in a simulation",
        entries: rows!(weft_sim::fault::Kind),
    },
    Kind {
        name: "translations",
        about: "who translates the addresses of a simulated NIC",
        entries: rows!(weft_sim::pcie::Translation),
    },
    Kind {
        name: "settings",
        about: "programs whose source ports `weft plan ports --for` plans",
        entries: rows!(weft_plan::stacks::Stack),
    },
    Kind {
        name: "hashes",
        about: "how a switch turns a five-tuple into a choice",
        entries: rows!(weft_topo::hash::HashAlgorithm),
    },
];

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let chosen: Vec<&Kind> = match arguments.kind.as_deref() {
        None => KINDS.iter().collect(),
        Some(name) => match KINDS.iter().find(|kind| kind.name == name) {
            Some(kind) => vec![kind],
            None => {
                let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                bail!(unknown_name("kind", name, &known));
            }
        },
    };
    let value: BTreeMap<&str, Vec<Entry>> =
        chosen.iter().map(|kind| (kind.name, (kind.entries)())).collect();
    output.value(&value, || chosen.into_iter().map(text).collect::<Vec<_>>().join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn text(kind: &Kind) -> String {
    let mut table =
        Table::new(vec![Column::text(kind.name, "name"), Column::text(kind.about, "about")]);
    for Entry { name, about } in (kind.entries)() {
        table.push(vec![name.into(), about.into()]);
    }
    render(&table)
}
