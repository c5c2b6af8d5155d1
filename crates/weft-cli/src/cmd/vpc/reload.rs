//! `weft vpc reload`: applies a changed configuration to a running daemon, and prints what changed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use weft_report::terminal::Output;
use weft_vswitch::Reloaded;
use weft_vswitch::config::{CONTROL, Config};
use weft_vswitch::control::{Answer, Request, send_request};

use super::WRONG_KIND;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft vpc reload --config /etc/weft/vpc.toml
  weft vpc reload --config /etc/weft/vpc.toml --discard-changes

All of the configuration is applied or nothing: where a part is refused, the former configuration stays. Parts that are \
the same are not disturbed. Changes made by command stay in force over the file, until it has them too \
(`weft vpc changes`).")]
pub(super) struct Reload {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Drop the changes made by command: all is as the configuration says
    #[arg(long)]
    discard_changes: bool,
}

pub(super) fn run(control: &Path, options: &Reload, output: Output) -> Result<ExitCode> {
    let file = options.config.display();
    let config = Box::new(Config::read(&options.config)?);
    // The file names the daemon's control socket.
    let named = config.host.control.clone();
    let control = if control == Path::new(CONTROL) { &named } else { control };
    let request = Request::Reload { config, discard_changes: options.discard_changes };
    let done = match send_request(control, &request)? {
        Answer::Reloaded(done) => done,
        Answer::Refused(why) => return Err(anyhow!(why)).context(file.to_string()),
        _ => bail!(WRONG_KIND),
    };
    output.value(&done, || format!("as {file} says: {}", summary(&done)))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the numbers of a reload in words, without zeros.
fn summary(done: &Reloaded) -> String {
    let counts = [
        (done.networks_set, "network", "set"),
        (done.networks_removed, "network", "removed"),
        (done.ports_added, "port", "added"),
        (done.ports_removed, "port", "removed"),
        (done.ports_changed, "port", "with other policies"),
        (done.routes_set, "route", "set"),
        (done.routes_removed, "route", "removed"),
    ];
    let counts = counts.iter().filter(|(count, ..)| *count > 0);
    let words: Vec<_> = counts
        .map(|(count, noun, done)| {
            format!("{count} {noun}{} {done}", if *count == 1 { "" } else { "s" })
        })
        .collect();
    let changed = if words.is_empty() { "nothing changed".into() } else { words.join(", ") };
    match done.overridden {
        0 => changed,
        1 => format!("{changed}; 1 item of the file is overridden (`weft vpc changes`)"),
        more => format!("{changed}; {more} items of the file are overridden (`weft vpc changes`)"),
    }
}

#[test]
fn a_summary_leaves_zeros_out() {
    let done = Reloaded { ports_added: 1, routes_set: 2_000, ..Reloaded::default() };
    assert_eq!(summary(&done), "1 port added, 2000 routes set");
    assert_eq!(summary(&Reloaded::default()), "nothing changed");
    let overridden = summary(&Reloaded { overridden: 2, ..Reloaded::default() });
    assert!(overridden.starts_with("nothing changed; 2 items"), "{overridden}");
}
