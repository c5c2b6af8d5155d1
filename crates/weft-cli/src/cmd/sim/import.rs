//! `weft sim import`: tells what a file of another simulator has, and writes a scenario that runs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use toml::{Table, Value};
use weft_report::Unit;
use weft_report::terminal::{Output, write_file};
use weft_sim::Scenario;
use weft_sim::import::{self, Format, Import, Kind, recognise};
use weft_sim::workload::{GraphFile, read_flow_list};
use weft_topo::TopologyBuilder;

use crate::overrides;

/// Options of the reader and of the scenario.
#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// The file; of a Chakra trace, the file of any rank
    file: PathBuf,
    /// The format [default: recognised]; one of `weft list formats`
    #[arg(long, value_name = "NAME")]
    format: Option<Format>,
    /// Set a key of the workload, for example start_unit=ps or roofline.tflops=989; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the scenario to a file instead of the output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The account of a file, with its scenario.
#[derive(Debug, Serialize)]
struct Account {
    kind: &'static str,
    /// The sizes, by name.
    sizes: BTreeMap<&'static str, u64>,
    taken: BTreeMap<String, u64>,
    left: BTreeMap<String, u64>,
    notes: Vec<String>,
    scenario: String,
}

pub(super) fn run(arguments: &ImportArgs, output: Output) -> Result<()> {
    let file = &arguments.file;
    let kind = match arguments.format {
        Some(format) => Kind::Graph(format),
        None => recognise(file)?,
    };
    let account = match kind {
        Kind::Graph(format) => graph(format, arguments)?,
        Kind::Flows => flows(arguments)?,
        Kind::Topology => topology(arguments)?,
    };
    // A scenario that is written must be one that `weft sim run` reads.
    Scenario::parse(&account.scenario, Path::new("")).context("the scenario of the file")?;
    if let Some(out) = &arguments.out {
        write_file(out, &account.scenario)?;
    }
    output.value(&account, || text(&account, arguments))
}

/// Reads a graph.
fn graph(format: Format, arguments: &ImportArgs) -> Result<Account> {
    let mut table = Table::new();
    table.insert("file".into(), shown(arguments)?.into());
    if arguments.format.is_some() {
        table.insert("format".into(), format.name().into());
    }
    overrides::set(&mut table, &arguments.set)?;
    let config: GraphFile =
        Value::Table(table.clone()).try_into().context("a setting of the workload (--set)")?;
    let Import { graph, summary } =
        import::graph(&arguments.file, Some(format), &config.options())?;
    let sizes = [
        ("ranks", u64::from(graph.ranks())),
        ("nodes", graph.nodes().len() as u64),
        ("dependencies", graph.dependencies() as u64),
        ("collectives", graph.operations().len() as u64),
        ("groups", graph.groups().len() as u64),
        ("bytes_sent", graph.bytes()),
        ("memory_bytes", graph.memory()),
    ];
    table.insert("kind".into(), "graph".into());
    let scenario = scenario(arguments, network(graph.ranks()), table);
    let (taken, left, notes) = (summary.taken, summary.left, summary.notes);
    Ok(Account { kind: format.name(), sizes: sizes.into(), taken, left, notes, scenario })
}

/// Reads a list of flows.
fn flows(arguments: &ImportArgs) -> Result<Account> {
    let flows = read_flow_list(&arguments.file, TopologyBuilder::MAX_NODES)?;
    let last = flows.iter().flat_map(|flow| [flow.source.0, flow.destination.0]).max();
    let hosts = last.map_or(2, |last| last + 1);
    let bytes: u64 = flows.iter().map(|flow| u64::from(flow.length)).sum();
    let sizes = [
        ("hosts", u64::from(hosts)),
        ("bytes_sent", bytes),
        ("memory_bytes", size_of_val(flows.as_slice()) as u64),
    ];
    let mut table = Table::new();
    table.insert("kind".into(), "flow-list".into());
    table.insert("file".into(), shown(arguments)?.into());
    Ok(Account {
        kind: Kind::Flows.name(),
        sizes: sizes.into(),
        taken: [("flows".to_owned(), flows.len() as u64)].into(),
        left: [("priority groups of flows".to_owned(), flows.len() as u64)].into(),
        notes: vec!["starts are relative to the first flow's".into()],
        scenario: scenario(arguments, network(hosts), table),
    })
}

/// Reads a topology.
fn topology(arguments: &ImportArgs) -> Result<Account> {
    let file = &arguments.file;
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let topology = weft_topo::read_ns3(&text).with_context(|| file.display().to_string())?;
    let mut network = Table::new();
    network.insert("kind".into(), "file".into());
    network.insert("file".into(), shown(arguments)?.into());
    let mut traffic = Table::new();
    traffic.insert("kind".into(), "permutation".into());
    traffic.insert("size".into(), "1MB".into());
    let taken = [
        ("hosts", topology.hosts()),
        ("switches", topology.switches()),
        ("cables", topology.links() / 2),
    ];
    Ok(Account {
        kind: Kind::Topology.name(),
        sizes: BTreeMap::new(),
        taken: taken.map(|(name, count)| (name.to_owned(), u64::from(count))).into(),
        left: BTreeMap::new(),
        notes: vec!["the permutation is an example; replace it".into()],
        scenario: scenario(arguments, network, traffic),
    })
}

/// Returns a network of this many hosts, as formats of traffic have none.
fn network(hosts: u32) -> Table {
    let mut table = Table::new();
    table.insert("kind".into(), "fat-tree".into());
    table.insert("hosts".into(), i64::from(hosts.max(2)).into());
    table
}

/// Returns the file's name in the scenario, which is relative to the scenario's folder.
fn shown(arguments: &ImportArgs) -> Result<String> {
    let file = &arguments.file;
    let folder_of = |path: &Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let path = match &arguments.out {
        Some(out) if folder_of(out) == folder_of(file) => file.file_name().map(PathBuf::from),
        Some(_) => Some(file.canonicalize().with_context(|| file.display().to_string())?),
        None => Some(file.clone()),
    };
    Ok(path.unwrap_or_else(|| file.clone()).to_string_lossy().into_owned())
}

fn scenario(arguments: &ImportArgs, network: Table, workload: Table) -> String {
    let name = arguments.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut table = Table::new();
    table.insert("name".into(), name.into());
    table.insert("topology".into(), network.into());
    let mut run = Table::new();
    run.insert("limit".into(), "3600s".into());
    table.insert("run".into(), run.into());
    table.insert("workload".into(), Value::Array(vec![workload.into()]));
    toml::to_string(&table).expect("a table is TOML")
}

fn text(account: &Account, arguments: &ImportArgs) -> String {
    let mut text = format!("{}: {}\n", arguments.file.display(), account.kind);
    for (name, size) in &account.sizes {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let shown = match name.split_once("bytes") {
            Some(_) => Unit::Bytes.format(*size as f64),
            None => size.to_string(),
        };
        text += &format!("  {:24} {shown:>12}\n", name.replace('_', " "));
    }
    for (heading, counts) in [("taken", &account.taken), ("left out", &account.left)] {
        if !counts.is_empty() {
            text += &format!("{heading}\n");
        }
        for (kind, count) in counts {
            text += &format!("{count:>11}  {kind}\n");
        }
    }
    for note in &account.notes {
        text += &format!("note: {note}\n");
    }
    match &arguments.out {
        Some(out) => text + &format!("scenario: weft sim run {}", out.display()),
        None => text + "\nscenario\n" + &account.scenario,
    }
}
