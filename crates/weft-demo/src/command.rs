//! The command: its arguments, its stage, and its output.

use std::path::PathBuf;
use std::process::{ExitCode, exit};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use weft_lab::Lab;

use crate::loopback::Loopback;
use crate::namespaces::Namespaces;
use crate::perform;
use crate::present::{report, text};
use crate::stage::Stage;
use weft_report::terminal::{Output, write_file};

/// Show one connection over four paths of which one loses packets and another fails (about 30 s)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft demo                 on network namespaces and kernel ECMP, beside kernel TCP
  weft demo                      on loopback, through emulated paths
  weft demo --html demo.html --json > demo.json")]
pub struct Args {
    /// File to write the page with plots to
    #[arg(long, default_value = "out/demo.html")]
    html: PathBuf,
    /// Use emulated paths on loopback, even where namespaces are possible
    #[arg(long)]
    loopback: bool,
}

/// The exit status that shells report for a program ended by an interrupt.
const INTERRUPTED: i32 = 130;

/// Runs the demonstration, prints its table and writes its page.
///
/// # Errors
/// Returns an error if the network cannot be built, a measurement fails, or the page cannot be written.
pub fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    let mut stage = stage(&arguments, &bar)?;
    let outcome = perform(stage.as_mut(), |step| bar.set_message(step.to_owned()));
    // The lab is removed before anything is printed.
    drop(stage);
    bar.finish_and_clear();
    let outcome = outcome?;
    write_file(&arguments.html, &report(&outcome).to_html())?;
    output.value(&outcome, || {
        format!("{}\nThe page with the plots: {}", text(&outcome), arguments.html.display())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn stage(arguments: &Args, bar: &ProgressBar) -> Result<Box<dyn Stage>> {
    if arguments.loopback {
        return Ok(Box::new(Loopback::default()));
    }
    if let Some(missing) = weft_lab::requirements().into_iter().find(|need| !need.met) {
        let (name, fix) = (missing.name, missing.fix);
        bar.suspend(|| eprintln!("no {name} ({fix}): playing on loopback instead of namespaces"));
        return Ok(Box::new(Loopback::default()));
    }
    let name = format!("demo-{}", std::process::id());
    let interrupted = name.clone();
    ctrlc::set_handler(move || {
        // The next lab removes the remains.
        let _ = Lab::down(&interrupted);
        exit(INTERRUPTED);
    })
    .context("cannot listen for an interrupt")?;
    Ok(Box::new(Namespaces::up(&name)?))
}
