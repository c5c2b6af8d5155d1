//! `weft vpc serve`: runs the overlay's daemon.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::StatusCode;
use serde_json::json;
use weft_vswitch::config::Config;
use weft_vswitch::control::{Answer, Request, send_within};
use weft_vswitch::{Daemon, Notice, Status};

use super::metrics;
use crate::http::{self, Access, AccessOptions, Handler, OPENMETRICS, Reply};
use crate::interrupt::until_interrupted;
use crate::log::LogOptions;
use crate::otlp::CountedSince;
use crate::supervision::{Health, Supervision};
use weft_report::terminal::Output;

/// The time for the daemon's status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft vpc serve --config /etc/weft/vpc.toml
  sudo weft vpc serve --config vpc.toml --metrics 127.0.0.1:9464    Prometheus reads http://127.0.0.1:9464/metrics
  WEFT_LOG=debug sudo -E weft vpc serve --config vpc.toml

Needs CAP_NET_ADMIN for TAP interfaces. A restart keeps tenants' connections where their interfaces are persistent.")]
pub(super) struct Serve {
    /// The configuration, a TOML file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Serve OpenMetrics here
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    access: AccessOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) fn run(arguments: Serve, output: Output) -> Result<ExitCode> {
    let config = Config::read(&arguments.config)?;
    let supervision = Supervision::start()?;
    let telemetry = arguments.log.start("weft-vpc")?;
    let control = config.host.control.clone();
    let address = config.host.socket();
    let metrics = arguments
        .metrics
        .map(|at| arguments.access.at(at, config.host.tls.as_ref()).map(|access| (at, access)));
    let metrics = metrics.transpose()?;
    let listener =
        metrics.as_ref().map(|(at, _)| supervision.listen(*at, "metrics")).transpose()?;
    let socket = supervision.take_control(&control);
    supervision.check_sockets()?;
    let mut daemon = Daemon::open_on(config, socket)?;
    if let Some((listener, (_, access))) = listener.zip(metrics) {
        serve_metrics(listener, access, control.clone(), supervision.health())?;
    }
    let asked = control.clone();
    let ask = move || ask_status(&asked).map(|status| metrics::registry(&status));
    telemetry.begin(CountedSince::Start, Box::new(ask))?;
    let stop = until_interrupted()?;
    let status = format!("serving at {address}, asked at {}", control.display());
    output.value(&json!({ "serving": address, "control": control }), || status.clone())?;
    let notify = |notice| match notice {
        Notice::Responsive => supervision.on_turn(|| status.clone()),
        Notice::Reloading => supervision.on_reload(),
        Notice::Reloaded => supervision.on_reloaded(&status),
    };
    let run = daemon.run(|| stop.load(Ordering::Relaxed), notify);
    supervision.on_stop();
    telemetry.take_last(daemon.status().ok().map(|status| metrics::registry(&status)).as_ref());
    telemetry.stop();
    run.context("cannot wait for packets")?;
    Ok(ExitCode::SUCCESS)
}

/// Answers Prometheus on a thread of its own, which queries the daemon over its control socket.
fn serve_metrics(
    listener: TcpListener,
    access: Access,
    control: PathBuf,
    health: Arc<Health>,
) -> Result<()> {
    let handler: Handler = Arc::new(move |request| {
        if request.path != "/metrics" {
            return Reply::refuse(StatusCode::NOT_FOUND, "metrics are at /metrics");
        }
        match ask_status(&control) {
            Some(status) => Reply::new(OPENMETRICS, metrics::text(&status)),
            None => Reply::refuse(StatusCode::SERVICE_UNAVAILABLE, "the daemon does not answer"),
        }
    });
    let handler = health.before(handler, || Ok("ok".into()));
    http::serve_beside(listener, access, handler).map(drop)
}

/// Returns the status of the daemon, over its control socket; `None` if it does not answer.
fn ask_status(control: &Path) -> Option<Box<Status>> {
    match send_within(control, &Request::Status, Some(STATUS_TIMEOUT)) {
        Ok(Answer::Status(status)) => Some(status),
        _ => None,
    }
}
