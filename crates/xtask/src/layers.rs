//! The check of dependencies between crates. Arrows point down only; [`LAYERS`] is the picture in ARCHITECTURE.md as
//! data, and this check enforces it.
//!
//! Dev-dependencies are not checked: tests may depend on higher layers, shipped code may not.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// A row of the table of layers.
struct Layer {
    number: u8,
    name: &'static str,
    /// `true` if clocks, sockets, threads and entropy sources must not compile there.
    sans_io: bool,
    crates: &'static [&'static str],
}

#[rustfmt::skip]
const LAYERS: &[Layer] = &[
    Layer { number: 5, name: "products", sans_io: false, crates: &["weft-cli", "weft-cni", "weft-demo", "weft-dra", "weft-figures", "weft-kube", "weft-malloc", "weft-nccl", "weft-nccl-check", "weft-nic-ports", "weft-py", "weft-rdmacm", "weft-trial", "weft-verbs", "weft-xrdma-c"] },
    Layer { number: 4, name: "worlds",   sans_io: false, crates: &["weft-etcd", "weft-lab", "weft-perf", "weft-ports", "weft-sim", "weft-steer", "weft-udp", "weft-vswitch", "weft-xdp", "weft-xrdma", "weft-comm"] },
    Layer { number: 3, name: "reports",  sans_io: false, crates: &["weft-events", "weft-guard", "weft-report", "weft-stat"] },
    Layer { number: 2, name: "engines",  sans_io: true,  crates: &["weft-coll", "weft-msg", "weft-rnic", "weft-seal", "weft-transport", "weft-vpc", "weft-plan", "weft-route", "weft-evpn"] },
    Layer { number: 1, name: "formats",  sans_io: true,  crates: &["weft-wire", "weft-topo", "weft-trace", "weft-ring", "weft-nccl-abi", "weft-verbs-abi"] },
    Layer { number: 0, name: "words",    sans_io: true,  crates: &["weft-units"] },
];

/// The arrows drawn inside a layer.
const WITHIN_A_LAYER: &[(&str, &str)] = &[
    ("weft-cli", "weft-demo"),
    ("weft-cli", "weft-figures"),
    ("weft-cli", "weft-trial"),
    ("weft-cli", "weft-verbs"),
    ("weft-coll", "weft-msg"),
    ("weft-coll", "weft-plan"),
    ("weft-comm", "weft-xrdma"),
    ("weft-dra", "weft-verbs"),
    ("weft-guard", "weft-events"),
    ("weft-msg", "weft-rnic"),
    ("weft-nccl", "weft-verbs"),
    ("weft-perf", "weft-udp"),
    ("weft-rnic", "weft-transport"),
    ("weft-py", "weft-figures"),
    ("weft-route", "weft-plan"),
    ("weft-seal", "weft-transport"),
    ("weft-steer", "weft-etcd"),
    ("weft-trace", "weft-wire"),
    ("weft-udp", "weft-xdp"),
    ("weft-vpc", "weft-transport"),
    ("weft-vswitch", "weft-etcd"),
    ("weft-vswitch", "weft-ports"),
    ("weft-vswitch", "weft-udp"),
];

/// The crates that never ship. They may depend on all crates; shipped crates may not depend on them.
const DEVELOPMENT: &[&str] = &["weft-soak", "weft-testkit", "xtask"];

/// The daemons and libraries that run on hosts. They may not depend on [`MEASUREMENT`], not even through other crates.
#[rustfmt::skip]
const ON_HOSTS: &[&str] = &[
    "weft-cni", "weft-comm", "weft-dra", "weft-etcd", "weft-kube", "weft-malloc", "weft-nccl", "weft-nic-ports", "weft-ports", "weft-rdmacm", "weft-steer", "weft-udp", "weft-verbs", "weft-vswitch", "weft-xdp", "weft-xrdma", "weft-xrdma-c",
];

/// The crates that build fabrics, load them and simulate them.
const MEASUREMENT: &[&str] = &["weft-lab", "weft-perf", "weft-sim", "weft-testkit"];

/// The lines of lib.rs that exclude std, one of which each sans-IO crate has. The second is for crates whose file
/// writers are behind a feature.
const NO_STD: &[&str] = &[
    "#![cfg_attr(not(test), no_std)]",
    "#![cfg_attr(not(any(test, feature = \"std\")), no_std)]",
    "#![no_std]",
];
/// The lines of lib.rs that exclude unsafe code. Exceptions are marked in place, with a reason.
const NO_UNSAFE: &[&str] = &["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"];

/// The crates of the workspace, each with the workspace's crates that it ships.
type Graph = BTreeMap<String, Vec<String>>;

#[derive(Debug, PartialEq, Eq)]
enum Violation {
    NotInTable { name: String },
    PointsUp { from: String, to: String },
    Sideways { from: String, to: String },
    ShipsDevelopment { from: String, to: String },
    MeasurementOnHost { from: String, to: String },
    AttributeMissing { file: PathBuf, attribute: &'static str },
}

/// A layer of the workspace: its name, and its crates, each with the workspace's crates that it ships.
pub(crate) struct InLayer {
    pub(crate) name: &'static str,
    pub(crate) crates: Vec<(String, Vec<String>)>,
}

/// Returns the layers of the workspace at `root`, the highest first.
///
/// # Errors
/// Returns an error if the workspace cannot be read.
pub(crate) fn by_layer(root: &Path) -> Result<Vec<InLayer>> {
    let graph = graph(&metadata(root)?.workspace_packages());
    let of = |layer: &Layer| {
        let named =
            |name: &&str| ((*name).to_owned(), graph.get(*name).cloned().unwrap_or_default());
        InLayer { name: layer.name, crates: layer.crates.iter().map(named).collect() }
    };
    Ok(LAYERS.iter().map(of).collect())
}

/// Returns cargo's metadata of the workspace, without dependencies from registries.
///
/// # Errors
/// Returns an error if `cargo metadata` fails.
pub(crate) fn metadata(root: &Path) -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    let command = command.manifest_path(root.join("Cargo.toml")).no_deps();
    command.exec().context("`cargo metadata` cannot read the workspace")
}

/// Checks the workspace at `root`.
///
/// # Errors
/// Returns all violations, or an error if the workspace cannot be read.
pub(crate) fn check(root: &Path) -> Result<()> {
    let metadata = metadata(root)?;
    let packages = metadata.workspace_packages();
    let graph = graph(&packages);
    let mut violations = arrows(&graph);
    violations.extend(measurement_on_hosts(&graph));
    for package in &packages {
        violations.extend(attributes(package)?);
    }
    if violations.is_empty() {
        println!("layers: {} crates, every arrow points down", packages.len());
        return Ok(());
    }
    let list: Vec<_> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    bail!("the dependencies violate the layers of crates/xtask/src/layers.rs:{}", list.concat())
}

fn graph(packages: &[&Package]) -> Graph {
    let members: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    packages
        .iter()
        .map(|package| {
            let shipped = package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind != DependencyKind::Development)
                .map(|dependency| dependency.name.clone())
                .filter(|name| members.contains(&name.as_str()))
                .collect();
            (package.name.to_string(), shipped)
        })
        .collect()
}

fn layer_of(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.crates.contains(&name))
}

/// Returns the arrows of the graph that the table does not allow.
fn arrows(graph: &Graph) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (from, dependencies) in graph {
        if DEVELOPMENT.contains(&from.as_str()) {
            continue;
        }
        let Some(layer) = layer_of(from) else {
            violations.push(Violation::NotInTable { name: from.clone() });
            continue;
        };
        violations.extend(dependencies.iter().filter_map(|to| arrow(from, layer.number, to)));
    }
    violations
}

fn arrow(from: &str, from_layer: u8, to: &str) -> Option<Violation> {
    if DEVELOPMENT.contains(&to) {
        return Some(Violation::ShipsDevelopment { from: from.into(), to: to.into() });
    }
    // A dependency outside the table is reported once, on its own.
    let to_layer = layer_of(to)?.number;
    match to_layer.cmp(&from_layer) {
        Ordering::Greater => Some(Violation::PointsUp { from: from.into(), to: to.into() }),
        Ordering::Equal if !WITHIN_A_LAYER.contains(&(from, to)) => {
            Some(Violation::Sideways { from: from.into(), to: to.into() })
        }
        Ordering::Equal | Ordering::Less => None,
    }
}

/// Returns the crates of hosts that depend on a crate of measurement, directly or through others.
fn measurement_on_hosts(graph: &Graph) -> Vec<Violation> {
    let on_host = |from: &&str| {
        let of_measurement = |to: &String| MEASUREMENT.contains(&to.as_str());
        let found = dependencies(graph, from).into_iter().filter(of_measurement);
        found
            .map(|to| Violation::MeasurementOnHost { from: (*from).into(), to })
            .collect::<Vec<_>>()
    };
    ON_HOSTS.iter().flat_map(on_host).collect()
}

/// Returns the crates that a crate ships, directly or through others.
fn dependencies(graph: &Graph, from: &str) -> BTreeSet<String> {
    let (mut found, mut unread) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(name) = unread.pop() {
        for to in graph.get(&name).into_iter().flatten() {
            if found.insert(to.clone()) {
                unread.push(to.clone());
            }
        }
    }
    found
}

/// Returns the attributes that the lib.rs of a sans-IO crate lacks.
fn attributes(package: &Package) -> Result<Vec<Violation>> {
    let sans_io = layer_of(&package.name).is_some_and(|layer| layer.sans_io);
    let library = package.targets.iter().find(|target| target.is_lib());
    let (true, Some(library)) = (sans_io, library) else { return Ok(Vec::new()) };
    let file = library.src_path.as_std_path();
    let source =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(missing_attributes(file, &source))
}

fn missing_attributes(file: &Path, source: &str) -> Vec<Violation> {
    [NO_STD, NO_UNSAFE]
        .iter()
        .filter(|accepted| !source.lines().any(|line| accepted.contains(&line.trim_end())))
        .map(|accepted| Violation::AttributeMissing { file: file.into(), attribute: accepted[0] })
        .collect()
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placed = |name: &str| match layer_of(name) {
            Some(layer) => format!("{name} (layer {}, {})", layer.number, layer.name),
            None => name.to_owned(),
        };
        match self {
            Self::NotInTable { name } => {
                write!(f, "{name} is in no layer: add it to LAYERS or DEVELOPMENT")
            }
            Self::PointsUp { from, to } => {
                write!(f, "{} depends on {}: arrows point down", placed(from), placed(to))
            }
            Self::Sideways { from, to } => write!(
                f,
                "{} depends on {}: the arrow is not in WITHIN_A_LAYER",
                placed(from),
                placed(to)
            ),
            Self::ShipsDevelopment { from, to } => {
                write!(f, "{from} ships {to}: make it a dev-dependency")
            }
            Self::MeasurementOnHost { from, to } => {
                write!(
                    f,
                    "{from} runs on hosts and ships {to}: leave labs, load and simulation to the caller"
                )
            }
            Self::AttributeMissing { file, attribute } => {
                write!(f, "{} lacks the line {attribute}", file.display())
            }
        }
    }
}

#[cfg(test)]
mod tests;
