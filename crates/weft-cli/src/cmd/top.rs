//! `weft top`: a live page of paths, pairs, queues and moves.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use weft_report::terminal::Output;
use weft_vswitch::config::CONTROL;

use crate::http::ClientOptions;
use crate::top::{self, Collector, Page, Places, Screen, View};

/// Show paths, pairs, queues and moves live, from running programs and daemons
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft top                                    this host's programs and daemons, and its route controller
  weft top queues --interval 5s               begin with the queues
  weft top --filter 10.0.0.2                  rows that contain a text
  weft top --hosts 10.0.0.1:7475,10.0.0.2:7475 --token-file token   programs of other hosts, from their agents
  weft top --once                             one page as text, with rates over one interval
  weft top --json | jq '.paths[] | select(.state == \"down\")'

Keys: q quits; tab and ←→ change the view, ↑↓ move rows; s sorts by the next column; / filters, Esc shows all; p pauses, also the \
questions. A daemon that does not answer is a line of the page. The page reads the statistics in shared memory and queries the \
daemons as `weft vpc status`, `weft device list` and `weft route status` do, once an interval.")]
pub(crate) struct Args {
    /// The view to begin with; with --once and --json the only one [default: paths; all]
    #[arg(value_enum)]
    view: Option<View>,
    /// Time between two samples
    #[arg(long, value_name = "INTERVAL", default_value = "1s")]
    interval: weft_units::Duration,
    /// Print one page as text
    #[arg(long)]
    once: bool,
    /// Show rows that contain this text, in any case
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Agents of `weft monitor` to ask; this host's programs and daemons are left out unless named
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    hosts: Vec<String>,
    /// The folder in which programs publish their state
    #[arg(long, value_name = "FOLDER", conflicts_with = "hosts")]
    folder: Option<PathBuf>,
    /// The overlay daemon's control socket [default: /run/weft/vpc.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The device daemon's socket [default: this user's daemon, or the machine's]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The address of `weft route serve`'s page
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7490")]
    controller: String,
    #[command(flatten)]
    client: ClientOptions,
}

/// The shortest interval: the questions cost the daemons some time.
const MIN_INTERVAL: weft_units::Duration = weft_units::Duration::from_millis(100);

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { view, interval, once, filter, .. } = &arguments;
    if *interval < MIN_INTERVAL {
        bail!("--interval {interval} is too often: {MIN_INTERVAL} at least");
    }
    let interval = Duration::from_nanos(interval.as_nanos());
    let (view, once) = (*view, *once || output.is_json());
    let screen = Screen::new(view.unwrap_or_default(), filter.clone());
    let collector = Collector::new(places(arguments)?);
    if !once {
        top::run(collector, interval, screen)?;
        return Ok(ExitCode::SUCCESS);
    }
    let page = one_page(collector, interval);
    let views = view.as_ref().map_or(&View::ALL[..], std::slice::from_ref);
    output.value(&page.to_json(views, &screen), || page.to_text(views, &screen))?;
    Ok(ExitCode::SUCCESS)
}

fn places(arguments: Args) -> Result<Places> {
    let Args { hosts, folder, control, socket, controller, client, .. } = arguments;
    let is_here = hosts.is_empty();
    Ok(Places {
        folder,
        agents: hosts,
        overlay: control.or_else(|| is_here.then(|| CONTROL.into())),
        with_device: is_here || socket.is_some(),
        device: socket,
        controller,
        credentials: client.read()?,
    })
}

/// Returns a page of two samples, an interval apart.
fn one_page(mut collector: Collector, interval: Duration) -> Page {
    let before = collector.sample();
    std::thread::sleep(interval);
    Page::of(Some(&before), &collector.sample())
}
