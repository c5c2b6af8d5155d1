//! Reads clusters, and the servers of a job.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_plan::Cluster;
use weft_plan::cluster::{ClusterConfig, ServerId};
use weft_plan::machine::{Machine, MachineConfig, read_nccl};
use weft_units::{Seed, unknown_name};

/// A cluster, and the servers of it that are the job's.
#[derive(Debug, clap::Args)]
pub(super) struct ClusterArgs {
    /// The cluster: TOML, or NCCL's topology XML for one server
    file: PathBuf,
    /// The job's servers in rank order: a file with a host name first on each line
    #[arg(long, value_name = "FILE", conflicts_with = "servers")]
    hostfile: Option<PathBuf>,
    /// The job is the first servers, this number of them, after `--shuffle`
    #[arg(long, value_name = "COUNT")]
    servers: Option<usize>,
    /// Put the servers in a random order first, as a scheduler might place ranks
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
}

impl ClusterArgs {
    /// Returns the cluster and the job's servers in rank order.
    pub(super) fn read(&self) -> Result<(Cluster, Vec<ServerId>)> {
        let cluster = read(&self.file).with_context(|| format!("{}", self.file.display()))?;
        let mut job = match &self.hostfile {
            Some(path) => hosts(&cluster, path).with_context(|| format!("{}", path.display()))?,
            None => cluster.server_ids().collect(),
        };
        if let Some(seed) = self.shuffle {
            Seed(seed).child("placement", 0).rng().shuffle(&mut job);
        }
        if let Some(count) = self.servers {
            if count == 0 || count > job.len() {
                bail!("--servers {count}: the cluster has 1 to {}", job.len());
            }
            job.truncate(count);
        }
        Ok((cluster, job))
    }
}

fn read(path: &Path) -> Result<Cluster> {
    let text = fs::read_to_string(path).context("cannot read it")?;
    if path.extension().is_some_and(|extension| extension == "xml") {
        let alone = vec![("localhost".to_owned(), "0".to_owned())];
        return Ok(Cluster::in_blocks(read_nccl(&text)?, alone)?);
    }
    let config: ClusterConfig = toml::from_str(&text)?;
    let machine = machine(&config.machine, path.parent().unwrap_or(path))?;
    Ok(config.build(machine)?)
}

/// Reads the inside of a server; NCCL's file is looked up beside the cluster's.
fn machine(config: &MachineConfig, folder: &Path) -> Result<Machine> {
    let Some(nccl) = &config.nccl else { return config.build().context("machine") };
    let path = folder.join(nccl);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("machine: cannot read {}", path.display()))?;
    read_nccl(&text).with_context(|| format!("machine: {}", path.display()))
}

fn hosts(cluster: &Cluster, path: &Path) -> Result<Vec<ServerId>> {
    let text = fs::read_to_string(path).context("cannot read it")?;
    let known: Vec<&str> = cluster.servers().iter().map(|server| server.name.as_str()).collect();
    let mut job: Vec<ServerId> = vec![];
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let Some(name) = line.split_ascii_whitespace().next() else { continue };
        // Some launchers write `host:slots`.
        let name = name.split(':').next().unwrap_or(name);
        let Some(server) = cluster.find(name) else {
            bail!("line {number}: {}", unknown_name("server", name, &known[..known.len().min(20)]));
        };
        if job.contains(&server) {
            bail!("line {number}: server {name:?} is there twice");
        }
        job.push(server);
    }
    if job.is_empty() {
        bail!("it names no server");
    }
    Ok(job)
}
