//! `weft route serve`: runs the controller, its page and its metrics.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use hyper::StatusCode;
use serde_json::json;
use weft_steer::{Daemon, Handle, SteerConfig, View};

use super::{metrics, orders};
use crate::http::{
    self, Access, AccessOptions, CSS, HTML, Handler, OPENMETRICS, Reply, SCRIPT, SVG,
};
use crate::interrupt::until_interrupted;
use crate::log;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft route serve --config /etc/weft/route.toml
  sudo weft route serve --lab lab                    a lab's routers; `weft route agent --lab lab` sends their samples
  sudo weft route serve --lab lab --dry-run          decide and log, and install nothing
  sudo weft route serve --lab lab --token-file token   accept `weft route announce`
  sudo weft route serve --config route.toml --page 10.9.0.1:7490 --tls-certificate me.pem --tls-key me.key \
--tls-clients ca.pem
  curl http://127.0.0.1:7490/metrics                 for Prometheus; /v1/picture has everything as JSON

This host's users may read the page; other hosts with the token, with a certificate of --tls-clients, or where \
--anyone-may-read is given. Nobody may announce or withdraw jobs but with the token or such a certificate. Without \
--tls-certificate nothing is encrypted. `tls = { certificate, key, clients }` in the configuration is the same.

Of several controllers of a fabric one steers: the others watch, and take over when its lease has run out. Moves stay \
when it ends; the next controller knows them.")]
pub(super) struct Serve {
    /// The configuration, a TOML file
    #[arg(long, value_name = "FILE", required_unless_present = "lab")]
    config: Option<PathBuf>,
    /// Steer this lab's routers
    #[arg(long, value_name = "NAME", visible_alias = "from-lab", conflicts_with = "config")]
    lab: Option<String>,
    /// Serve the page and OpenMetrics here; port 0 is any
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7490")]
    page: SocketAddr,
    #[command(flatten)]
    access: AccessOptions,
    /// Decide and log the moves, but install none
    #[arg(long)]
    dry_run: bool,
    /// Write the log as JSON, a line an event
    #[arg(long)]
    log_json: bool,
}

/// The page, compiled into this binary: it loads nothing from other servers.
const PAGE: [(&str, &str, &str); 4] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/script.js", SCRIPT, include_str!("page/script.js")),
    ("/icon.svg", SVG, include_str!("../../monitor/page/icon.svg")),
];

pub(super) fn run(arguments: Serve, output: Output) -> Result<ExitCode> {
    let mut config = match &arguments.config {
        Some(path) => SteerConfig::read(path)?,
        None => SteerConfig { lab: arguments.lab.clone(), ..SteerConfig::default() },
    };
    config.dry_run |= arguments.dry_run;
    let access = arguments.access.at(arguments.page, config.tls.as_ref())?;
    let access = access.with_max_body(orders::MAX_TABLE);
    let scheme = access.scheme();
    log::start(arguments.log_json);
    let mut daemon = Daemon::open(config, weft_trial::inventory)?;
    let page = serve_page(arguments.page, access, daemon.view(), daemon.handle())?;
    let stop = until_interrupted()?;
    let listening = daemon.listening()?;
    output.value(&json!({ "sflow": listening, "page": page }), || {
        format!("listening for sFlow at {listening}, page at {scheme}://{page}")
    })?;
    daemon.run(|| stop.load(Ordering::Relaxed))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers browsers and Prometheus on a thread of its own; returns the address.
fn serve_page(
    at: SocketAddr,
    access: Access,
    picture: Arc<Mutex<View>>,
    handle: Handle,
) -> Result<SocketAddr> {
    let checked = access.clone();
    let handler: Handler = Arc::new(move |request| {
        let page = PAGE.iter().find(|(path, ..)| *path == request.path);
        let picture = || picture.lock().unwrap_or_else(PoisonError::into_inner);
        match (page, request.path.as_str()) {
            _ if request.is_post => orders::carry_out(request, &checked, &handle),
            (Some((_, kind, body)), _) => Reply::new(kind, *body),
            (None, "/v1/picture") => Reply::json(&*picture()),
            (None, "/metrics") => Reply::new(OPENMETRICS, metrics::text(&picture())),
            _ => Reply::refuse(StatusCode::NOT_FOUND, "there are /, /metrics and /v1/picture"),
        }
    });
    http::serve_beside(at, "the page", access, handler)
}
