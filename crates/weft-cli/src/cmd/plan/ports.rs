//! `weft plan ports`: plans source ports for all queue pairs of a collective.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::json;
use weft_plan::Cluster;
use weft_plan::cluster::{Network, ServerId};
use weft_plan::output::{port_csv, port_rows};
use weft_plan::ports::{
    Bound, Entropy, Fabric, Flow, Loads, PortSources, SearchLimits, loads, plan, plan_shared,
    random_ports,
};
use weft_plan::ring::{Transfer, double_tree, ring_hops, rings_on_rails, server_order};
use weft_plan::stacks::Stack;
use weft_plan::traffic::{QueuePair, all_to_all, queue_pairs};
use weft_report::{Cell, Column, Table};
use weft_topo::{Failures, NodeId};
use weft_units::{Seed, unknown_name};

use super::cluster_file::ClusterArgs;
use super::settings::{self, ServerSettings};
use weft_report::terminal::{Output, render, write_file};

/// The largest number of flows of a plan, about three times that of the largest networks.
const MAX_FLOWS: usize = 1 << 22;

/// Options of `weft plan ports`.
#[derive(Debug, clap::Args)]
pub(super) struct PortsArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The traffic whose queue pairs are planned
    #[arg(long, value_enum, default_value_t = Traffic::Ring)]
    traffic: Traffic,
    /// Keep the servers in rank order instead of the planned one
    #[arg(long)]
    as_listed: bool,
    /// Queue pairs of each connection, in turn over the NIC's ports [default: 4, or those of `--for`]
    #[arg(long)]
    qps: Option<usize>,
    /// Plan around failed links, each `SWITCH/SWITCH`
    #[arg(long, value_name = "A/B")]
    down: Vec<String>,
    /// Transport protocol
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    protocol: Protocol,
    /// Destination port [default: 4791, or that of `--for`]
    #[arg(long)]
    to_port: Option<u16>,
    /// Ports to try for all flows together, where hashes cannot be solved
    #[arg(long, default_value_t = SearchLimits::default().total)]
    total: u64,
    /// The seed that selects one of the equally good plans
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the port table, a line a queue pair
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Plan the ports that this program can set, and write its settings: mooncake, mori, nccl, uccl or weft (`weft list settings`)
    #[arg(long = "for", value_name = "STACK")]
    stack: Option<Stack>,
    /// With `--for`: write each server's variables into this folder, as SERVER.env, instead of printing them
    #[arg(long, value_name = "DIR", requires = "stack")]
    settings: Option<PathBuf>,
}

/// Planned ports.
struct Planned {
    /// The ports of a program's settings; empty if each queue pair has a port of its own.
    settings: Vec<u16>,
    /// The port of each flow.
    ports: Vec<u16>,
    bound: Bound,
    /// Unknown for settings that flows share.
    how: Option<PortSources>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Traffic {
    /// The rings of all rails
    Ring,
    /// The two trees, on all rails
    Tree,
    /// Every server to every other, rail by rail
    AllToAll,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(in crate::cmd) enum Protocol {
    /// RoCEv2, or anything over UDP
    Udp,
    /// TCP
    Tcp,
}

impl Protocol {
    /// The protocol's number, assigned by IANA.
    pub(in crate::cmd) const fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }
}

pub(super) fn run(arguments: &PortsArgs, output: Output) -> Result<()> {
    let (cluster, job) = arguments.cluster.read()?;
    let Some(network) = cluster.network() else {
        bail!("the cluster's file names no network: give [network] or [[switch]] entries");
    };
    let row = arguments.stack.map(Stack::row);
    let qps = arguments.qps.unwrap_or_else(|| row.map_or(4, |row| row.queue_pairs));
    if let Some(stack) = arguments.stack
        && stack.row().settings().is_none()
        && arguments.csv.is_none()
    {
        bail!("--for {stack} needs --csv FILE: its ports are in a table, not in variables");
    }
    let order = if arguments.as_listed { job.clone() } else { server_order(&cluster, &job) };
    let hops = hops(&cluster, &order, arguments.traffic);
    let count = hops.len().saturating_mul(qps);
    if qps == 0 || count > MAX_FLOWS {
        bail!("--qps {qps} makes {count} flows; a plan has 1 to {MAX_FLOWS}");
    }
    let (pairs, flows) = queue_pairs(&cluster, &hops, qps);
    let failures = failures(network, &arguments.down)?;
    let entropy = Entropy { protocol: arguments.protocol.number(), ..Entropy::default() };
    let to_port = arguments.to_port.or_else(|| row.map(|row| row.destination_port));
    let entropy =
        Entropy { destination_port: to_port.unwrap_or(entropy.destination_port), ..entropy };
    let fabric = Fabric::new(network, &failures, entropy)?;
    let plan = planned(arguments, &fabric, &pairs, &flows, qps)?;
    let planned = loads(&fabric, &flows, &plan.ports);
    let drawn = random_ports(&fabric, flows.len(), Seed(arguments.seed));
    let random = loads(&fabric, &flows, &drawn);
    let servers = arguments.stack.map_or_else(Vec::new, |stack| {
        settings::of_servers(&cluster, &job, stack, &plan.settings, qps, arguments.csv.as_deref())
    });
    if let Some(folder) = &arguments.settings {
        settings::write(folder, &servers)?;
    }
    if output.is_json() || arguments.csv.is_some() {
        let rows = port_rows(&cluster, &fabric, &pairs, &flows, &plan.ports);
        if let Some(path) = &arguments.csv {
            write_file(path, &port_csv(&rows))?;
        }
        if output.is_json() {
            let value = json!({
                "flows": flows.len(),
                "bound": plan.bound.flows,
                "busiest_planned": planned.max(),
                "busiest_random": random.max(),
                "alone_planned": planned.alone,
                "alone_random": random.alone,
                "how": plan.how,
                "queue_pairs": rows,
                "settings": servers,
            });
            return output.value(&value, String::new);
        }
    }
    output.value(&(), || {
        let mut text = text(network, flows.len(), &plan, &planned, &random);
        if let Some(stack) = arguments.stack {
            let printed: &[ServerSettings] =
                if arguments.settings.is_some() { &[] } else { &servers };
            text += &settings::text(stack, printed);
        }
        text
    })
}

/// Plans a port for each flow, or the settings of a program.
fn planned(
    arguments: &PortsArgs,
    fabric: &Fabric<'_>,
    pairs: &[QueuePair],
    flows: &[Flow],
    qps: usize,
) -> Result<Planned> {
    let limits = SearchLimits { total: arguments.total, ..SearchLimits::default() };
    let seed = Seed(arguments.seed);
    let Some(settings) = arguments.stack.and_then(|stack| stack.row().settings()) else {
        let plan = plan(fabric, flows, limits, seed)?;
        let (ports, bound, how) = (plan.ports, plan.bound, Some(plan.how));
        return Ok(Planned { settings: Vec::new(), ports, bound, how });
    };
    let (sources, span) = (settings.sources(pairs, qps), (settings.span)(qps));
    let plan = plan_shared(fabric, flows, &sources, span, limits, seed)?;
    Ok(Planned { settings: plan.settings, ports: plan.ports, bound: plan.bound, how: None })
}

fn hops(cluster: &Cluster, order: &[ServerId], traffic: Traffic) -> Vec<Transfer> {
    match traffic {
        Traffic::Ring => ring_hops(order, &rings_on_rails(cluster.machine())),
        Traffic::Tree => {
            let trees = double_tree(cluster, order);
            let of_rail = |rail| trees.iter().flat_map(move |tree| tree.hops(rail));
            (0..cluster.rails()).flat_map(of_rail).collect()
        }
        Traffic::AllToAll => all_to_all(order, cluster.rails()),
    }
}

/// Returns the links that are down, by the names of their ends.
fn failures(network: &Network, down: &[String]) -> Result<Failures> {
    let topology = &network.topology;
    let names: Vec<(String, NodeId)> =
        topology.switch_ids().map(|switch| (network.name(switch), switch)).collect();
    let known: Vec<&str> = names.iter().take(20).map(|(name, _)| name.as_str()).collect();
    let find = |name: &str| match names.iter().find(|(known, _)| known == name) {
        Some(&(_, switch)) => Ok(switch),
        None => bail!(unknown_name("switch", name, &known)),
    };
    let mut failures = Failures::none();
    for link in down {
        let Some((a, b)) = link.split_once('/') else {
            bail!("--down {link:?}: expected two switches with a / between them");
        };
        let (a, b) = (find(a.trim())?, find(b.trim())?);
        let between = topology.ports(a).iter().filter(|&&port| topology.link(port).to == b);
        let mut found = between.copied().peekable();
        if found.peek().is_none() {
            bail!("--down {link:?}: no cable joins them");
        }
        found.for_each(|link| failures.fail_link(link));
    }
    Ok(failures)
}

fn text(
    network: &Network,
    flows: usize,
    plan: &Planned,
    planned: &Loads,
    random: &Loads,
) -> String {
    let mut table = Table::new(vec![
        Column::text("ports", "ports"),
        Column::number("flows on the busiest link", "busiest"),
        Column::text("which is", "link"),
        Column::number("flows that share no link", "alone"),
    ]);
    let link = |loads: &Loads| {
        loads.worst.map_or_else(Cell::missing, |link| {
            let link = network.topology.link(link);
            format!("{} > {}", network.name(link.from), network.name(link.to)).into()
        })
    };
    for (name, loads) in [("random", random), ("planned", planned)] {
        let row = vec![Cell::from(name), loads.max().into(), link(loads), loads.alone.into()];
        table.push(row);
    }
    let Bound { flows: least, at, crossing, links } = plan.bound;
    let why = at.map_or_else(String::new, |switch| {
        format!(": {crossing} flows cross {links} links at {}", network.name(switch))
    });
    let how = plan.how.map_or_else(String::new, |how| {
        format!(
            "{} solved, {} found, {} fitted in, {} without a choice.\n",
            how.solved, how.found, how.fitted, how.without_choice
        )
    });
    format!(
        "{flows} flows\n\n{}\nAt least {least} on the busiest link{why}.\n{how}",
        render(&table)
    )
}
