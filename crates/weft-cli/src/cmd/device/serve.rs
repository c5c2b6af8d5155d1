//! `weft device serve`: runs the device's daemon.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use hyper::StatusCode;
use serde_json::json;
use weft_report::terminal::Output;
use weft_verbs::{Admin, CallError, Daemon, DaemonSettings, DeviceState, Totals, default_socket};

use super::{events, metrics};
use crate::http::{self, Access, AccessOptions, Handler, OPENMETRICS, Reply};
use crate::log::LogOptions;
use crate::otlp::CountedSince;
use crate::supervision::{Health, Supervision};

/// The machine's daemon, and the file that keeps its devices: the socket's folder is empty after a reboot.
const MACHINE: (&str, &str) = ("/run/weft/device.sock", "/var/lib/weft/device.state");

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft device serve                        for every user of the machine
  weft device serve --socket /tmp/a.sock        for this user, at this place
  weft device serve --config /etc/weft/device.toml
  weft device serve --metrics 127.0.0.1:9465    Prometheus reads http://127.0.0.1:9465/metrics
  WEFT_PROFILE=stellar weft device serve        every packet over one of 128 paths at random

The file has lines such as `profile = \"stellar\"`; its keys are profile, policy, congestion, paths, rto, mtu, \
line-rate, wire, held-bytes, held-bytes-per-peer, state, and quotas such as queue-pairs-per-user (docs/device.md). Variables of \
those names, WEFT_PROFILE to WEFT_HELD_BYTES_PER_PEER, take precedence; state and quotas have none. Programs find the addresses that the \
daemon's host, or network namespace, has when it starts.

Devices are kept for the next daemon, in /var/lib/weft/device.state for the machine's socket, else in the file of the socket's name with the \
extension `state`; `state` in the file names another one.")]
pub(super) struct Serve {
    /// Settings of the daemon and of its devices' transport, a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve OpenMetrics here
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Devices with samples of their own in the metrics, of those that a process has used
    #[arg(long, value_name = "N", default_value_t = 256, requires = "metrics")]
    metrics_devices: usize,
    #[command(flatten)]
    access: AccessOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) fn run(arguments: Serve, socket: Option<PathBuf>, output: Output) -> Result<()> {
    let supervision = Arc::new(Supervision::start()?);
    let telemetry = Arc::new(arguments.log.start("weft-device")?);
    let socket = socket.unwrap_or_else(default_socket);
    let mut settings = arguments.config.as_deref().map_or(Ok(DaemonSettings::default()), read)?;
    settings.state.get_or_insert_with(|| state_of(&socket));
    let metrics =
        arguments.metrics.map(|at| arguments.access.at(at, None).map(|access| (at, access)));
    let metrics = metrics.transpose()?;
    let listener =
        metrics.as_ref().map(|(at, _)| supervision.listen(*at, "metrics")).transpose()?;
    let passed = supervision.take_device(&socket);
    supervision.check_sockets()?;
    let mut daemon = match passed {
        Some(listener) => Daemon::open_on(listener, &socket, settings)?,
        None => Daemon::open(&socket, settings)?,
    };
    daemon.on_event(events::emit);
    let max = arguments.metrics_devices;
    if let Some((listener, (_, access))) = listener.zip(metrics) {
        serve_metrics(listener, access, (socket.clone(), max), supervision.health())?;
    }
    let asked = socket.clone();
    let ask = move || ask(&asked, max).ok().map(|(totals, used)| metrics::registry(&totals, &used));
    telemetry.begin(CountedSince::Start, Box::new(ask))?;
    let (stopper, exported) = (daemon.stopper(), Arc::clone(&telemetry));
    let stop = move || {
        // Nobody answers after the daemon's end.
        exported.take_last(None);
        stopper.stop();
    };
    ctrlc::set_handler(stop).context("cannot watch for interruption")?;
    let status = format!("serving at {}", socket.display());
    output.value(&json!({ "serving": socket }), || status.clone())?;
    let alive = Arc::clone(&supervision);
    let run = daemon.run(move || alive.on_turn(|| status.clone()));
    supervision.on_stop();
    telemetry.stop();
    Ok(run?)
}

/// Returns the file that keeps the devices of the daemon at a socket.
fn state_of(socket: &Path) -> PathBuf {
    let (machine, state) = MACHINE;
    if socket == Path::new(machine) { state.into() } else { socket.with_extension("state") }
}

/// Reads a file of settings.
fn read(file: &Path) -> Result<DaemonSettings> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let keys: toml::Table = text.parse().with_context(|| file.display().to_string())?;
    let mut settings = DaemonSettings::default();
    for (key, value) in &keys {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        settings.set(key, &value).with_context(|| file.display().to_string())?;
    }
    Ok(settings)
}

/// Asks the daemon for its metrics.
fn ask(socket: &Path, max: usize) -> Result<(Totals, Vec<DeviceState>), CallError> {
    let mut admin = Admin::connect(Some(socket))?;
    Ok((admin.totals()?, admin.list_used(max)?))
}

/// Answers Prometheus on a thread of its own, which queries the daemon over its socket.
fn serve_metrics(
    listener: TcpListener,
    access: Access,
    (socket, max): (PathBuf, usize),
    health: Arc<Health>,
) -> Result<()> {
    let handler: Handler = Arc::new(move |request| {
        if request.path != "/metrics" {
            return Reply::refuse(StatusCode::NOT_FOUND, "metrics are at /metrics");
        }
        match ask(&socket, max) {
            Ok((totals, devices)) => Reply::new(OPENMETRICS, metrics::text(&totals, &devices)),
            Err(_) => Reply::refuse(StatusCode::SERVICE_UNAVAILABLE, "the daemon does not answer"),
        }
    });
    let handler = health.before(handler, || Ok("ok".into()));
    http::serve_beside(listener, access, handler).map(drop)
}
