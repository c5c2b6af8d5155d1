//! `weft vpc capture`: writes a port's packets to a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use weft_vswitch::control::Request;

use super::send;
use crate::interrupt::until_interrupted;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft vpc capture web --to web.pcapng                 until Ctrl-C
  weft vpc capture web --to web.pcapng --seconds 10
  tshark -r web.pcapng

Of each frame the first 256 bytes are kept, as the tenant sees it: its own before they are cut into packets, others' in the \
order it gets them. The daemon writes the file.")]
pub(super) struct Capture {
    /// The port
    port: String,
    /// The file, which must not exist
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Stop after this time
    #[arg(long)]
    seconds: Option<u64>,
}

pub(super) fn run(control: &Path, options: &Capture, output: Output) -> Result<ExitCode> {
    let Capture { port, to, seconds } = options;
    let file = std::path::absolute(to).context("cannot name the file")?;
    let stop = until_interrupted()?;
    send(control, &Request::Capture { port: port.clone(), file: Some(file.clone()) })?;
    let began = Instant::now();
    let over = || seconds.is_some_and(|span| began.elapsed() >= Duration::from_secs(span));
    while !stop.load(Ordering::Relaxed) && !over() {
        thread::sleep(Duration::from_millis(50));
    }
    send(control, &Request::Capture { port: port.clone(), file: None })?;
    output.value(&json!({ "port": port, "file": file }), || format!("wrote {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}
