//! `weft plan ring`: plans an order of servers, and rings through them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::json;
use weft_plan::Cluster;
use weft_plan::cluster::ServerId;
use weft_plan::output::{graph_xml, host_file, rank_file};
use weft_plan::ring::{
    Ring, Shares, Transfer, double_tree, ring_hops, rings_as_listed, rings_on_rails, server_order,
    shares, tree_as_listed,
};
use weft_plan::tuner::{HopLatencies, TunerRow, all_reduce_rows, communicators, tuner_csv};
use weft_report::{Cell, Column, Table};
use weft_units::{ByteCount, Duration, Seed};

use super::cluster_file::ClusterArgs;
use weft_report::terminal::{Output, render, write_file};

/// Number of random orders over which the comparison takes the mean, as in Astral's figure 7(b).
const PLACEMENTS: u64 = 200;

/// Options of `weft plan ring`.
#[derive(Debug, clap::Args)]
pub(super) struct RingArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Write Open MPI's rank file
    #[arg(long, value_name = "FILE")]
    rankfile: Option<PathBuf>,
    /// Write a host file in the planned order
    #[arg(long, value_name = "FILE")]
    hosts_out: Option<PathBuf>,
    /// Write NCCL's graph XML, for NCCL_GRAPH_FILE
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Write a table for NCCL's tuner plugin, for WEFT_NCCL_TUNER: trees or rings by the size of all-reduces
    #[arg(long, value_name = "FILE")]
    tuner: Option<PathBuf>,
    /// The time of a short message between servers, for --tuner
    #[arg(long, value_name = "TIME", default_value = "4us")]
    network_latency: Duration,
    /// The time of a short message between GPUs of a server, for --tuner
    #[arg(long, value_name = "TIME", default_value = "200ns")]
    gpu_latency: Duration,
}

/// A way to connect the servers, and the links that its transfers cross.
struct Way {
    name: &'static str,
    key: &'static str,
    shares: Shares,
}

pub(super) fn run(arguments: &RingArgs, output: Output) -> Result<()> {
    let (cluster, job) = arguments.cluster.read()?;
    let order = server_order(&cluster, &job);
    let rings = rings_on_rails(cluster.machine());
    if let Some(path) = &arguments.rankfile {
        write_file(path, &rank_file(&cluster, &order))?;
    }
    if let Some(path) = &arguments.hosts_out {
        write_file(path, &host_file(&cluster, &order))?;
    }
    if let Some(path) = &arguments.graph {
        write_file(path, &graph_xml(cluster.machine(), &rings))?;
    }
    let tuned = match &arguments.tuner {
        Some(path) => {
            let hops =
                HopLatencies { network: arguments.network_latency, inner: arguments.gpu_latency };
            let rows = tuner_rows(&cluster, &order, hops)?;
            write_file(path, &tuner_csv(&rows))?;
            rows
        }
        None => Vec::new(),
    };
    let ways = ways(&cluster, &job, &order, &rings);
    let name = |server: &ServerId| cluster.servers()[server.index()].name.as_str();
    let value = json!({
        "order": order.iter().map(name).collect::<Vec<_>>(),
        "blocks": order.iter().map(|&server| cluster.block(server)).collect::<Vec<_>>(),
        "rings": rings.iter().map(|ring| ring_value(&cluster, ring)).collect::<Vec<_>>(),
        "shares": ways.iter().map(|way| (way.key.to_owned(), json!(way.shares)))
            .collect::<serde_json::Map<_, _>>(),
        "tuner": tuned.iter().map(tuner_value).collect::<Vec<_>>(),
    });
    output.value(&value, || text(&cluster, &order, &rings, &ways) + &tuner_text(&tuned))
}

fn tuner_rows(cluster: &Cluster, order: &[ServerId], hops: HopLatencies) -> Result<Vec<TunerRow>> {
    let known = communicators(cluster, order);
    if known.is_empty() {
        bail!("--tuner: a job on one server has no rings or trees between servers to choose among");
    }
    Ok(known.iter().flat_map(|communicator| all_reduce_rows(communicator, hops)).collect())
}

fn tuner_value(row: &TunerRow) -> serde_json::Value {
    json!({
        "collective": row.collective.name(),
        "servers": row.servers,
        "ranks": row.ranks,
        "from_bytes": row.bytes.start,
        "algorithm": row.algorithm.map(|algorithm| algorithm.name()),
    })
}

/// Returns the sizes from which each algorithm is the answer, a line for each.
fn tuner_text(rows: &[TunerRow]) -> String {
    let line = |row: &TunerRow| {
        format!(
            "{} of {} ranks on {} servers, from {}: {}\n",
            row.collective,
            row.ranks,
            row.servers,
            ByteCount(row.bytes.start),
            row.algorithm.map_or("as NCCL chooses", |algorithm| algorithm.name()),
        )
    };
    rows.iter().map(line).collect()
}

fn ways(cluster: &Cluster, job: &[ServerId], order: &[ServerId], rings: &[Ring]) -> Vec<Way> {
    let listed = rings_as_listed(cluster.machine());
    let count = |hops: &[Transfer]| shares(cluster, hops);
    let random = (0..PLACEMENTS).map(|placement| {
        let mut shuffled = job.to_vec();
        Seed(placement).child("random order", 0).rng().shuffle(&mut shuffled);
        count(&ring_hops(&shuffled, &listed))
    });
    let random = random.fold(Shares::default(), |sum, one| Shares {
        transfers: sum.transfers + one.transfers,
        cross_rail: sum.cross_rail + one.cross_rail,
        cross_block: sum.cross_block + one.cross_block,
        cross_spine: sum.cross_spine + one.cross_spine,
    });
    let on_rails = |trees: &[weft_plan::ring::Tree]| {
        let hops =
            (0..cluster.rails()).flat_map(|rail| trees.iter().flat_map(move |t| t.hops(rail)));
        count(&hops.collect::<Vec<_>>())
    };
    let way = |name, key, shares| Way { name, key, shares };
    vec![
        way("ring, ranks at random, as NCCL is described", "ring_random", random),
        way(
            "ring, as listed, as NCCL is described",
            "ring_listed",
            count(&ring_hops(job, &listed)),
        ),
        way("ring, as listed, on rails", "ring_listed_on_rails", count(&ring_hops(job, rings))),
        way("ring, planned", "ring_planned", count(&ring_hops(order, rings))),
        way("tree, as listed, on rails", "tree_listed", on_rails(&[tree_as_listed(job)])),
        way("double tree, planned", "tree_planned", on_rails(&double_tree(cluster, order))),
    ]
}

fn ring_value(cluster: &Cluster, ring: &Ring) -> serde_json::Value {
    let machine = cluster.machine();
    let nics = machine.nics();
    json!({
        "nic_in": machine.name(nics[ring.rail_in]),
        "gpus": ring.gpus.iter().map(|&gpu| machine.name(gpu)).collect::<Vec<_>>(),
        "nic_out": machine.name(nics[ring.rail_out]),
        "rate_bps": ring.rate.as_bps(),
    })
}

fn text(cluster: &Cluster, order: &[ServerId], rings: &[Ring], ways: &[Way]) -> String {
    let mut table = Table::new(vec![
        Column::text("transfers between servers", "way"),
        Column::number("count", "transfers"),
        Column::number("across rails", "cross_rail"),
        Column::number("blocks", "cross_block"),
        Column::number("spines", "cross_spine"),
    ]);
    for Way { name, shares, .. } in ways {
        let share = |part: u64| percent(part, shares.transfers);
        let [rail, block, spine] =
            [shares.cross_rail, shares.cross_block, shares.cross_spine].map(share);
        table.push(vec![(*name).into(), shares.transfers.into(), rail, block, spine]);
    }
    let machine = cluster.machine();
    let nics = machine.nics();
    let mut paths = Table::new(vec![
        Column::text("rail", "rail"),
        Column::text("inside of each server", "path"),
        Column::number("Gb/s", "rate_gbps"),
    ]);
    for ring in rings {
        let gpus = ring.gpus.iter().map(|&gpu| machine.name(gpu));
        let ends = [ring.rail_in, ring.rail_out].map(|rail| machine.name(nics[rail]));
        let path: Vec<&str> = [ends[0]].into_iter().chain(gpus).chain([ends[1]]).collect();
        let gbps = ring.rate.as_bps() / 1_000_000_000;
        paths.push(vec![ring.rail_in.into(), path.join(" > ").into(), gbps.into()]);
    }
    let mut text = format!("{}\n{}\n", render(&table), render(&paths));
    for block in order.chunk_by(|&a, &b| cluster.block(a) == cluster.block(b)) {
        let names: Vec<&str> =
            block.iter().map(|id| cluster.servers()[id.index()].name.as_str()).collect();
        text += &format!("block {}: {}\n", cluster.block(block[0]), names.join(" "));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn percent(part: u64, all: u64) -> Cell {
    if all == 0 {
        return Cell::missing();
    }
    let share = 100.0 * part as f64 / all as f64;
    Cell::new(format!("{share:.1} %"), share)
}
