//! `weft plan show`: prints a cluster as the planner reads it.

use anyhow::Result;
use serde_json::{Value, json};
use weft_plan::Cluster;
use weft_plan::machine::BestPaths;
use weft_report::{Cell, Column, Table};

use super::cluster_file::ClusterArgs;
use weft_report::terminal::{Output, render};

/// Options of `weft plan show`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) fn run(arguments: &ShowArgs, output: Output) -> Result<()> {
    let (cluster, _) = arguments.cluster.read()?;
    output.value(&value(&cluster), || text(&cluster))
}

fn value(cluster: &Cluster) -> Value {
    let servers = cluster.server_ids().map(|id| {
        let server = &cluster.servers()[id.index()];
        let nics: Vec<u32> = server.nics.iter().map(|nic| nic.0).collect();
        json!({ "name": server.name, "block": cluster.block(id), "nics": nics })
    });
    let machine = cluster.machine();
    let devices = machine.devices().iter().map(|device| {
        json!({
            "name": device.name,
            "kind": device.kind,
            "number": device.number,
            "rate_bps": device.rate.map(|rate| rate.as_bps()),
        })
    });
    let links = machine.links().iter().map(|link| {
        json!({
            "ends": link.ends.map(|end| machine.name(end)),
            "kind": link.kind,
            "rate_bps": link.rate.as_bps(),
        })
    });
    json!({
        "servers": servers.collect::<Vec<_>>(),
        "blocks": cluster.blocks(),
        "rails": cluster.rails(),
        "network": cluster.network().map(|network| {
            let topology = &network.topology;
            let switches = topology.switch_ids().zip(&network.hashes).map(|(switch, hash)| {
                json!({
                    "name": network.name(switch),
                    "tier": topology.tier(switch),
                    "plane": topology.plane(switch),
                    "ports": topology.ports(switch).len(),
                    "hash": hash.algorithm.name(),
                    "seed": hash.seed,
                    "rotate": hash.rotate,
                })
            });
            json!({ "switches": switches.collect::<Vec<_>>(), "planes": topology.planes() })
        }),
        "machine": { "devices": devices.collect::<Vec<_>>(), "links": links.collect::<Vec<_>>() },
    })
}

fn text(cluster: &Cluster) -> String {
    let count = cluster.servers().len();
    let (gpus, rails) = (cluster.machine().gpus().len(), cluster.rails());
    let mut text = format!(
        "{count} servers in {} blocks; {gpus} GPUs and {rails} rails each, {} GPUs in all\n",
        cluster.blocks(),
        count * gpus
    );
    if let Some(network) = cluster.network() {
        let topology = &network.topology;
        let mut table = Table::new(vec![
            Column::text("switches", "tier"),
            Column::number("count", "count"),
            Column::number("ports", "ports"),
            Column::text("hash", "hash"),
        ]);
        let highest = topology.switch_ids().map(|switch| topology.tier(switch)).max().unwrap_or(0);
        for tier in 1..=highest {
            let of_tier = || topology.switch_ids().filter(|&switch| topology.tier(switch) == tier);
            let ports = of_tier().map(|switch| topology.ports(switch).len()).max().unwrap_or(0);
            let first = of_tier().next().map(|switch| switch.index() - topology.hosts() as usize);
            let hash = first.map_or("", |first| network.hashes[first].algorithm.name());
            table.push(vec![
                Cell::from(
                    ["", "leaves", "spines", "cores"]
                        .get(usize::from(tier))
                        .copied()
                        .unwrap_or("above"),
                ),
                of_tier().count().into(),
                ports.into(),
                hash.into(),
            ]);
        }
        text += &format!("\n{}{} planes\n", render(&table), topology.planes());
    }
    text + "\n" + &render(&inside(cluster))
}

/// Returns the path from each rail's NIC to each GPU.
fn inside(cluster: &Cluster) -> Table {
    let machine = cluster.machine();
    let (reach, gpus, nics) = (BestPaths::new(machine), machine.gpus(), machine.nics());
    let mut columns = vec![Column::text("rail", "rail"), Column::text("NIC", "nic")];
    columns.extend(gpus.iter().map(|&gpu| Column::text(machine.name(gpu), machine.name(gpu))));
    let mut table = Table::new(columns);
    for (rail, &nic) in nics.iter().enumerate() {
        let mut row = vec![rail.into(), machine.name(nic).into()];
        row.extend(gpus.iter().map(|&gpu| {
            reach.between(nic, gpu).map_or_else(Cell::missing, |way| way.closeness.nccl().into())
        }));
        table.push(row);
    }
    table
}
