//! `weft sim merge`: joins the results of all shards of a comparison.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weft_report::terminal::Output;
use weft_sim::compare::Part;

use super::{Comparison, Outputs};

/// Options of the merged comparison's report.
#[derive(Debug, clap::Args)]
pub(crate) struct MergeArgs {
    /// The files of all shards, in any order
    #[arg(required = true)]
    parts: Vec<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

pub(crate) fn run(arguments: &MergeArgs, output: Output) -> Result<()> {
    let parts = arguments.parts.iter().map(|file| read(file)).collect::<Result<_>>()?;
    let (plan, runs) = Part::merge(parts)?;
    if let Some(file) = arguments.outputs.flows.as_deref().filter(|_| !plan.flows) {
        anyhow::bail!("{}: the shards kept no flows; run them with --part-flows", file.display());
    }
    arguments.outputs.show(output, || Comparison::new(plan, runs))
}

fn read(file: &Path) -> Result<(String, Part)> {
    let name = file.display().to_string();
    let text = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    let part = serde_json::from_slice(&text)
        .with_context(|| format!("{name}: not a file that `weft sim compare --part` wrote"))?;
    Ok((name, part))
}
