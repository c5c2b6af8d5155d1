//! `weft completions`: writes the file with which a shell completes command lines.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Arguments;
use weft_report::terminal::Output;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft completions bash > /etc/bash_completion.d/weft
  weft completions zsh > ~/.zfunc/_weft
  weft completions fish > ~/.config/fish/completions/weft.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    // The text is made in memory first: the generator panics when it cannot write.
    let mut script = vec![];
    generate(arguments.shell, &mut Arguments::command(), "weft", &mut script);
    output.raw(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
