//! `weft route announce` and `weft route withdraw`: report a job's beginning and end to a running controller.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use serde_json::json;
use weft_plan::output::port_csv;
use weft_route::Job;
use weft_steer::{PlannedJob, read_job_table};
use weft_units::BitRate;

use crate::cmd::plan::Protocol;
use crate::http::{ClientOptions, Server, block_on};
use weft_report::terminal::{Output, write_file};

/// A running controller.
#[derive(Debug, clap::Args)]
pub(crate) struct ControllerOptions {
    /// The address of `weft route serve`'s page; https://HOST:PORT if it has a certificate; of several controllers that share
    /// a store, all their addresses with commas between
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7490")]
    controller: String,
    #[command(flatten)]
    client: ClientOptions,
}

impl ControllerOptions {
    /// Sends a request, and returns the body of the response. The timeout of 60 s allows for large tables, whose
    /// planning takes time in proportion to their flows.
    pub(crate) fn fetch(&self, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let credentials = self.client.read()?;
        let timeout = Duration::from_secs(60);
        let server = Server { host: &self.controller, command: "weft route serve", timeout };
        block_on(server.fetch(path, body, &credentials))?
    }

    /// Returns the error for a response that is not a controller's.
    pub(super) fn malformed(&self, error: &serde_json::Error) -> anyhow::Error {
        anyhow!("{} is no controller of `weft route serve`: {error}", self.controller)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft plan ports cluster.toml --hostfile hosts --csv ports.csv          a plan made beforehand
  weft route announce job-7 ports.csv --token-file token --csv ports.csv  planned again on the measured load
  weft route announce job-8 pairs.csv --token-file token --json          of a table with source and destination alone
  weft route withdraw job-7 --token-file token                           when it has ended

A queue pair keeps the port it has where all links of its path stay below three quarters full. Until a job is \
withdrawn, its traffic counts when ports are planned for other jobs, measured or not. Announced again under its name, a \
job is planned anew.")]
pub(super) struct Announce {
    /// The job's name
    job: String,
    /// Its table of ports, as `weft plan ports` writes it, CSV or JSON; the columns source and destination are enough
    table: PathBuf,
    /// Rate of a queue pair; if not given, an equal part of its cable's rate
    #[arg(long)]
    rate: Option<BitRate>,
    /// Transport protocol
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    protocol: Protocol,
    /// Destination port
    #[arg(long, default_value_t = 4791)]
    to_port: u16,
    /// The seed that selects one of the equally good plans
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the port table, a line a queue pair
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    at: ControllerOptions,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft route withdraw job-7 --token-file token
  weft route withdraw job-7 --token-file token --controller 10.9.0.1:7490
  weft route withdraw job-7 --controller https://10.9.0.1:7490 --ca ca.pem --certificate me.pem --key me.key

A job that is never withdrawn is removed when none of its packets was sampled for a time (`forget` in the controller's file).")]
pub(super) struct Withdraw {
    /// The job's name
    job: String,
    #[command(flatten)]
    at: ControllerOptions,
}

pub(super) fn run(arguments: &Announce, output: Output) -> Result<ExitCode> {
    let Announce { job, table, to_port, seed, .. } = arguments;
    let file = table.display();
    let body = std::fs::read(table).with_context(|| format!("cannot read {file}"))?;
    // The table is checked here, where the error can name its file.
    read_job_table(&body).map_err(|error| anyhow!("{file}: {error}"))?;
    Job::check_name(job)?;
    let protocol = arguments.protocol.number();
    let mut path = format!("/v1/jobs?job={job}&protocol={protocol}&to_port={to_port}&seed={seed}");
    if let Some(rate) = arguments.rate {
        write!(path, "&rate={}bps", rate.as_bps()).expect("writing to a string cannot fail");
    }
    let answer = arguments.at.fetch(&path, Some(body))?;
    let planned: PlannedJob =
        serde_json::from_slice(&answer).map_err(|error| arguments.at.malformed(&error))?;
    if let Some(path) = &arguments.csv {
        write_file(path, &port_csv(&planned.queue_pairs))?;
    }
    output.value(&planned, || {
        format!(
            "{}: {} flows, {} with the ports they had\nthe fullest link of their paths will be {} % full: {}",
            planned.job,
            planned.flows,
            planned.kept,
            planned.fullest_per_mille.div_ceil(10),
            planned.fullest
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn withdraw(arguments: &Withdraw, output: Output) -> Result<ExitCode> {
    #[derive(Deserialize)]
    struct Withdrawn {
        flows: usize,
    }
    let job = &arguments.job;
    Job::check_name(job)?;
    let path = format!("/v1/withdraw?job={job}");
    let answer = arguments.at.fetch(&path, Some(vec![]))?;
    let Withdrawn { flows } =
        serde_json::from_slice(&answer).map_err(|error| arguments.at.malformed(&error))?;
    output.value(&json!({ "job": job, "flows": flows }), || {
        format!("{job}: {flows} flows no longer count")
    })?;
    Ok(ExitCode::SUCCESS)
}
