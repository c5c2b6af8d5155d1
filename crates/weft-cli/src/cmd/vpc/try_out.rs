//! `weft vpc try`: runs the overlay on this machine, in one command.

use std::io::{IsTerminal, stdin};
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use weft_lab::{Direction, Impairment, LabSpec, Probability};
use weft_trial::{Trial, TrialConfig};

use crate::interrupt::until_interrupted;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft vpc try --loss 1%                       a shell in tenant red on host 0; its other half is 192.168.7.2
  sudo weft vpc try --loss 1% -- ping -c 100 -i 0.01 192.168.7.2
  sudo weft vpc try --loss 1% --plain -- ping -c 100 -i 0.01 192.168.7.2     the same as a plain VXLAN

Inside, `ip netns exec weft-try.red1 redis-server` starts a program in red's other half, and `weft vpc status \
--control /tmp/weft-try-h0.sock` shows the paths.")]
pub(super) struct Try {
    /// Share of packets that every path loses
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    loss: Probability,
    /// Disjoint paths between the hosts
    #[arg(long, default_value_t = 4)]
    paths: usize,
    /// Run without reliability: a plain VXLAN, for comparison
    #[arg(long)]
    plain: bool,
    /// A program for tenant red on host 0, instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(options: Try, output: Output) -> Result<ExitCode> {
    let mut config = TrialConfig::named("try");
    config.lab = LabSpec { spines: options.paths, ..config.lab };
    config.network.reliable = !options.plain;
    let mut trial = Trial::up(&config)?;
    for spine in 0..options.paths {
        let impairment = Impairment { loss: options.loss, ..Impairment::default() };
        trial.lab.impair(&format!("l1-s{spine}"), Direction::Both, &impairment)?;
    }
    match options.command.split_first() {
        Some((program, arguments)) => execute(trial.command("red", 0, program).args(arguments)),
        None if stdin().is_terminal() => {
            explain(&trial, &options, output)?;
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
            execute(&mut trial.command("red", 0, &shell))
        }
        None => {
            explain(&trial, &options, output)?;
            let stop = until_interrupted()?;
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn explain(trial: &Trial, options: &Try, output: Output) -> Result<()> {
    let tenants = ["red", "blue"];
    let namespaces: Vec<_> = tenants
        .iter()
        .flat_map(|tenant| (0..2).map(|host| trial.namespace(tenant, host)))
        .collect();
    output.value(&json!({ "tenants": namespaces, "control": trial.control(0) }), || {
        let kind = if options.plain { "a plain VXLAN" } else { "Weft" };
        format!(
            "two hosts, {} paths that lose {} of their packets, {kind} between them\n\
             tenants red and blue have {} on host 0 and {} on host 1: the same addresses, two networks\n\
             a program in one of them: ip netns exec {} COMMAND (or {})\n\
             the paths:                weft vpc status --control {}",
            options.paths,
            options.loss,
            Trial::address(0),
            Trial::address(1),
            namespaces[1],
            namespaces[2..].join(", "),
            trial.control(0).display(),
        )
    })
}

/// Runs the command, and returns its exit code as this command's.
fn execute(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot enter the tenant's namespace")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
