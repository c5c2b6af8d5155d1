//! `weft route tables`: prints the installed tables.

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::source::Source;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft route tables --lab lab > installed.toml
  weft route tables --config route.toml --json
  weft route explain '10.1.0.2>10.2.0.2' --installed installed.toml")]
pub(super) struct Tables {
    #[command(flatten)]
    source: Source,
}

pub(super) fn run(arguments: &Tables, output: Output) -> Result<ExitCode> {
    let installed = arguments.source.installed()?;
    let text = toml::to_string(&installed).context("tables are written as TOML")?;
    output.value(&installed, || text)?;
    Ok(ExitCode::SUCCESS)
}
