//! The monitor's process: it scans programs or asks agents, and answers over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hyper::StatusCode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::collect::State;
use super::metrics;
use super::orders::{Order, carry_out};
use super::pings::{self, PingReport, Received};
use super::presence::{HERE, Presence};
use super::watch::{Report, Watcher, now};
use crate::http::{
    Access, CSS, Credentials, HTML, Handler, OPENMETRICS, Reply, Request, SCRIPT, SVG, Server,
    block_on, serve,
};
use crate::openmetrics;
use crate::otlp::{CountedSince, Telemetry};
use crate::supervision::Supervision;

/// The sources of reports.
#[derive(Clone, Debug)]
pub(crate) enum Sources {
    /// This host's programs, in this folder or in the default ones.
    Here(Option<PathBuf>),
    /// Other hosts' agents.
    Agents(Vec<String>),
}

/// The task of the process.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) listen: SocketAddr,
    pub(crate) sources: Sources,
    /// The time between two scans, or two requests.
    pub(crate) every: Duration,
    /// The time that history covers, if the page is served; `None` for an agent.
    pub(crate) keep: Option<Duration>,
    /// Rights to read; at an agent also to give orders to this host's nodes.
    pub(crate) access: Access,
    /// The credentials that are shown to agents, and the authorities that are trusted.
    pub(crate) credentials: Credentials,
}

/// The state that handlers share.
struct Service {
    plan: Plan,
    watcher: Mutex<Watcher>,
    state: Mutex<State>,
    presence: Mutex<Presence>,
}

/// The time for which metrics have a matrix of pings, ms. The page shows it with its time until the next one arrives.
const PINGS_RETENTION: u64 = 600_000;

/// The longest time between two turns of the loop while nothing is due.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The page, compiled into this binary: it loads nothing from other servers.
const PAGE: [(&str, &str, &str); 4] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/script.js", SCRIPT, include_str!("page/script.js")),
    ("/icon.svg", SVG, include_str!("page/icon.svg")),
];

/// Runs until the program is ended. Calls `listening` with the address that it listens at.
///
/// # Errors
/// Returns an error if it cannot listen there, or this host's programs cannot be scanned.
pub(crate) fn run(
    plan: Plan,
    supervision: Supervision,
    telemetry: Telemetry,
    listening: impl FnOnce(SocketAddr) -> Result<String>,
) -> Result<()> {
    let supervision = Arc::new(supervision);
    let hosts = match &plan.sources {
        Sources::Here(_) => vec![HERE.to_owned()],
        Sources::Agents(hosts) => hosts.clone(),
    };
    let folder = match &plan.sources {
        Sources::Here(folder) => folder.clone(),
        Sources::Agents(_) => None,
    };
    let keep = plan.keep.map_or(0, |keep| u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    let service = Arc::new(Service {
        watcher: Mutex::new(Watcher::new(folder)),
        state: Mutex::new(State::new(&hosts, keep)),
        presence: Mutex::default(),
        plan,
    });
    if matches!(service.plan.sources, Sources::Here(_)) {
        lock(&service.watcher).scan()?;
    }
    block_on(async {
        let listener = supervision.listen(service.plan.listen, "HTTP")?;
        supervision.check_sockets()?;
        let listener = TcpListener::from_std(listener)?;
        let status = listening(listener.local_addr().context("a listener has an address")?)?;
        let answering = Arc::clone(&service);
        let handler: Handler = Arc::new(move |request| answering.answer(request));
        let handler = supervision.health().before(handler, || Ok("ok".into()));
        tokio::spawn(serve(listener, service.plan.access.clone(), handler));
        let measured = Arc::clone(&service);
        telemetry.begin(CountedSince::Unknown, Box::new(move || Some(measured.registry())))?;
        exit_when_interrupted(Arc::clone(&supervision), telemetry)?;
        service.run_periodically(|| supervision.on_turn(|| status.clone())).await
    })?
}

/// Ends the program when it is interrupted: it keeps nothing that would have to be saved.
fn exit_when_interrupted(supervision: Arc<Supervision>, telemetry: Telemetry) -> Result<()> {
    let exit = move || {
        supervision.on_stop();
        telemetry.take_last(None);
        telemetry.stop();
        std::process::exit(0);
    };
    ctrlc::set_handler(exit).context("cannot listen for an interrupt")
}

/// Locks a mutex. A mutex that a panic poisoned is locked too, and its state is shown as it is.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Scans programs, or asks agents, periodically. Calls `on_turn` each time, and while nothing is due.
    async fn run_periodically(self: Arc<Self>, on_turn: impl Fn()) -> Result<()> {
        let mut ticks = tokio::time::interval(self.plan.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if tokio::time::timeout(MAX_WAIT, ticks.tick()).await.is_ok() {
                self.collect().await;
            }
            on_turn();
        }
    }

    /// Scans programs, or asks agents, once.
    async fn collect(&self) {
        match &self.plan.sources {
            Sources::Here(_) => self.scan_here(),
            Sources::Agents(hosts) => self.ask(hosts).await,
        }
        lock(&self.presence).on_state(&lock(&self.state), Instant::now());
        if self.plan.keep.is_some() {
            lock(&self.state).record_history();
        }
    }

    fn scan_here(&self) {
        let mut watcher = lock(&self.watcher);
        let scanned = watcher.scan();
        let mut state = lock(&self.state);
        match scanned {
            Ok(()) => {
                let report = watcher.report(state.after(HERE));
                state.take(HERE, report);
            }
            Err(error) => state.on_no_answer(HERE, &format!("{error:#}")),
        }
    }

    /// Asks all agents at once.
    async fn ask(&self, hosts: &[String]) {
        let requests: Vec<_> = hosts
            .iter()
            .map(|host| {
                let (host, after) = (host.clone(), lock(&self.state).after(host));
                let credentials = self.plan.credentials.clone();
                tokio::spawn(async move {
                    let path = format!("/v1/report?after={after}");
                    let response = Server::agent(&host).fetch(&path, None, &credentials).await;
                    let answer = response.and_then(|answer| {
                        serde_json::from_slice::<Report>(&answer)
                            .with_context(|| format!("{host} is no agent of `weft monitor`"))
                    });
                    (host, answer)
                })
            })
            .collect();
        for request in requests {
            let Ok((host, answer)) = request.await else { continue };
            match answer {
                Ok(report) => lock(&self.state).take(&host, report),
                Err(error) => lock(&self.state).on_no_answer(&host, &format!("{error:#}")),
            }
        }
    }

    /// Answers a request.
    fn answer(&self, request: &Request) -> Reply {
        let has_page = self.plan.keep.is_some();
        if request.is_post {
            return match request.path.as_str() {
                "/v1/orders" if !has_page => self.order(request),
                pings::PATH if has_page => self.take_pings(request),
                _ => Reply::refuse(StatusCode::NOT_FOUND, "nothing is posted there"),
            };
        }
        let page = PAGE.iter().filter(|_| has_page).find(|(path, ..)| *path == request.path);
        match (page, request.path.as_str()) {
            (Some((_, kind, body)), _) => Reply::new(kind, *body),
            (None, "/metrics") => Reply::new(OPENMETRICS, openmetrics::text(&self.registry())),
            (None, "/v1/report") => Reply::json(&lock(&self.watcher).report(after(&request.query))),
            (None, "/v1/picture") if has_page => Reply::json(&lock(&self.state).picture(now())),
            _ => Reply::refuse(
                StatusCode::NOT_FOUND,
                if has_page {
                    "there are /, /metrics and /v1/picture"
                } else {
                    "there are /metrics and /v1/report"
                },
            ),
        }
    }

    fn registry(&self) -> Registry {
        let state = lock(&self.state);
        let silent: Vec<String> = state
            .hosts
            .iter()
            .filter(|(_, it)| it.silent.is_some())
            .map(|(host, _)| host.clone())
            .collect();
        let recent = |received: &&Received| now().saturating_sub(received.at) < PINGS_RETENTION;
        metrics::registry(state.living(), &silent, state.pings.as_ref().filter(recent))
    }

    /// Takes a matrix of pings, if the client may give orders.
    fn take_pings(&self, request: &Request) -> Reply {
        let access = &self.plan.access;
        if let Err(refusal) = access.check_order(&request.shown, "`weft monitor serve`") {
            return refusal;
        }
        match serde_json::from_slice::<PingReport>(&request.body) {
            Ok(report) => {
                lock(&self.state).pings = Some(Received { at: now(), report });
                Reply::json(&serde_json::json!({}))
            }
            Err(error) => {
                Reply::refuse(StatusCode::BAD_REQUEST, &format!("no matrix of pings: {error}"))
            }
        }
    }

    /// Sends an order to this host's nodes, if the client may give orders.
    fn order(&self, request: &Request) -> Reply {
        let access = &self.plan.access;
        if let Err(refusal) = access.check_order(&request.shown, "`weft monitor agent`") {
            return refusal;
        }
        let folder = match &self.plan.sources {
            Sources::Here(folder) => folder.as_deref(),
            Sources::Agents(_) => None,
        };
        let order = match serde_json::from_slice::<Order>(&request.body) {
            Ok(order) => order,
            Err(error) => {
                return Reply::refuse(StatusCode::BAD_REQUEST, &format!("no order: {error}"));
            }
        };
        match carry_out(folder, &order) {
            Ok(outcomes) => Reply::json(&outcomes),
            Err(error) => Reply::refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        }
    }
}

/// Returns the number in `after=NUMBER`.
fn after(query: &str) -> u64 {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(name, _)| *name == "after");
    named.next().and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}
