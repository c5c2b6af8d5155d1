//! `weft route serve`: runs the controller, its page and its metrics.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use hyper::StatusCode;
use serde_json::json;
use weft_steer::{ClusterConfig, Daemon, EtcdSettings, Handle, Leader, Role, SteerConfig, View};

use super::{metrics, orders};
use crate::http::{
    self, Access, AccessOptions, CSS, HTML, Handler, OPENMETRICS, Reply, SCRIPT, SVG,
};
use crate::interrupt::until_interrupted;
use crate::log::LogOptions;
use crate::otlp::CountedSince;
use crate::supervision::{Health, Supervision};
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
  sudo weft route serve --config route.toml --etcd 10.9.0.2:2379,10.9.0.3:2379,10.9.0.4:2379   one of several controllers
  curl http://127.0.0.1:7490/metrics                 for Prometheus; /v1/picture has everything as JSON

This host's users may read the page; other hosts with the token, with a certificate of --tls-clients, or where \
--anyone-may-read is given. Nobody may announce or withdraw jobs but with the token or such a certificate. Without \
--tls-certificate nothing is encrypted. `tls = { certificate, key, clients }` in the configuration is the same.

Of several controllers of a fabric one steers: the others watch, and take over when its lease has run out. Moves stay \
when it ends; the next controller knows them. Controllers that share etcd (`cluster` in the configuration, or --etcd) also \
know each other's jobs and decisions, and take over within seconds.")]
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
    /// Keep decisions in these members of etcd, for other controllers of the fabric, in place of those of the configuration
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Decide and log the moves, but install none
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    log: LogOptions,
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
    if !arguments.etcd.is_empty() {
        let endpoints: Vec<&str> = arguments.etcd.iter().map(String::as_str).collect();
        let cluster = ClusterConfig::of(EtcdSettings::plain(&endpoints));
        let cluster = config.cluster.get_or_insert(cluster);
        cluster.etcd.endpoints = arguments.etcd.clone();
        config.check()?;
    }
    let access = arguments.access.at(arguments.page, config.tls.as_ref())?;
    let access = access.with_max_body(orders::MAX_TABLE);
    let scheme = access.scheme();
    let supervision = Supervision::start()?;
    let telemetry = arguments.log.start("weft-route")?;
    let listener = supervision.listen(arguments.page, "the page")?;
    supervision.check_sockets()?;
    let mut daemon = Daemon::open(config, weft_trial::inventory)?;
    let (view, handle) = (daemon.view(), daemon.handle());
    let page = serve_page(listener, access, (view, handle), supervision.health())?;
    let seen = daemon.view();
    let registry =
        move || Some(metrics::registry(&seen.lock().unwrap_or_else(PoisonError::into_inner)));
    telemetry.begin(CountedSince::Start, Box::new(registry))?;
    daemon.join(&format!("{scheme}://{page}"))?;
    let stop = until_interrupted()?;
    let listening = daemon.listening()?;
    output.value(&json!({ "sflow": listening, "page": page }), || {
        format!("listening for sFlow at {listening}, page at {scheme}://{page}")
    })?;
    let view = daemon.view();
    let run = daemon.run(|| {
        supervision.on_turn(|| describe(&view.lock().unwrap_or_else(PoisonError::into_inner)));
        let stops = stop.load(Ordering::Relaxed);
        if stops {
            supervision.on_stop();
        }
        stops
    });
    telemetry.take_last(None);
    telemetry.stop();
    run?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a line about the controller's state, for the service manager.
fn describe(view: &View) -> String {
    let role = match &view.other {
        _ if view.steers => "steers".to_owned(),
        _ if view.role == Role::TakesOver => "takes over".to_owned(),
        Some(holder) => format!("watches, {holder} steers"),
        None => "watches".to_owned(),
    };
    let (moves, jobs, unread) = (view.moves.len(), view.jobs.len(), view.unread.len());
    format!("{role}; {moves} moves, {jobs} jobs, {unread} routers that cannot be read")
}

/// Answers browsers and Prometheus on a thread of its own; returns the address.
fn serve_page(
    listener: TcpListener,
    access: Access,
    (picture, handle): (Arc<Mutex<View>>, Handle),
    health: Arc<Health>,
) -> Result<SocketAddr> {
    let seen = Arc::clone(&picture);
    let ready = move || readiness(&seen.lock().unwrap_or_else(PoisonError::into_inner));
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
    http::serve_beside(listener, access, health.before(handler, ready))
}

/// Returns the role of a controller, or the reason for which it can neither steer nor take over.
fn readiness(view: &View) -> Result<String, String> {
    let routers = view.nodes.iter().filter(|node| node.tier > 0).count();
    if routers > 0 && view.unread.len() == routers {
        return Err(format!("the tables of all {routers} routers cannot be read"));
    }
    if let Some(reason) = &view.store_fault {
        return Err(format!("decisions cannot be kept: {reason}"));
    }
    Ok(match (view.role, &view.leader) {
        (Role::Alone, _) => "ok".into(),
        (Role::Leads, _) => "ok, leads".into(),
        (Role::TakesOver, _) => "ok, takes over".into(),
        (Role::StandsBy, Some(Leader { holder, url })) => {
            format!("ok, stands by; {holder} leads at {url}")
        }
        (Role::StandsBy, None) => "ok, stands by; nobody leads".into(),
    })
}
