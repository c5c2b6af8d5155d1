//! `weft man`: writes a manual page for every command, from the parser.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::Arguments;
use weft_report::terminal::Output;

/// Write manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft man out/man && man -l out/man/weft-lab-up.1
  sudo weft man /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// Folder to write them to; it is made when missing
    folder: PathBuf,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let folder = &arguments.folder;
    let write = || -> std::io::Result<Vec<String>> {
        fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Arguments::command(), folder)?;
        let pages = fs::read_dir(folder)?.flatten();
        let mut pages: Vec<String> =
            pages.filter_map(|page| page.file_name().into_string().ok()).collect();
        pages.retain(|name| name.starts_with("weft") && name.ends_with(".1"));
        pages.sort();
        Ok(pages)
    };
    let pages = write().with_context(|| format!("cannot write to {}", folder.display()))?;
    output.value(&pages, || format!("{} pages in {}", pages.len(), folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
