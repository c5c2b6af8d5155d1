//! `/healthz` and `/readyz`: what load balancers, kubelets and Prometheus' blackbox exporter ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;

use crate::http::{HEALTH, Handler, READINESS, Reply, Request, TEXT};

/// The time without a turn of the main loop after which a daemon counts as dead. The longest turn of a healthy one is that
/// of a monitor, which waits 5 s for agents.
const MAX_SILENCE: Duration = Duration::from_secs(15);

/// The state of a daemon's main loop, which other threads read.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    /// Time of the last turn, milliseconds since the start.
    last_turn: AtomicU64,
    is_serving: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last_turn: AtomicU64::new(0),
            is_serving: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// Records a turn of the main loop. Returns `true` if it is the first.
    pub(super) fn on_turn(&self) -> bool {
        self.last_turn.store(millis(self.started.elapsed()), Ordering::Relaxed);
        !self.is_serving.swap(true, Ordering::Relaxed)
    }

    pub(super) fn on_stop(&self) {
        self.is_serving.store(false, Ordering::Relaxed);
    }

    /// Returns a handler that answers `/healthz` and `/readyz` and passes other requests to `handler`. `ready` returns a line
    /// about a running daemon that is ready, or else the reason for which it cannot do its work.
    pub(crate) fn before(
        self: Arc<Self>,
        handler: Handler,
        ready: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Handler {
        Arc::new(move |request: &Request| {
            let alive = self.silence().map_or_else(|| Ok("ok".to_owned()), Err);
            let serving = || self.not_serving().map_or_else(&ready, Err);
            let state = match request.path.as_str() {
                _ if request.is_post => return handler(request),
                HEALTH => alive,
                READINESS => alive.and_then(|_| serving()),
                _ => return handler(request),
            };
            match state {
                Ok(line) => Reply::new(TEXT, format!("{line}\n")),
                Err(reason) => Reply::refuse(StatusCode::SERVICE_UNAVAILABLE, &reason),
            }
        })
    }

    /// Returns the reason for which the daemon counts as dead, if it does.
    fn silence(&self) -> Option<String> {
        let now = millis(self.started.elapsed());
        let silent = now.saturating_sub(self.last_turn.load(Ordering::Relaxed));
        let is_dead = silent > millis(MAX_SILENCE);
        is_dead.then(|| format!("the daemon's main loop has not run for {} s", silent / 1000))
    }

    fn not_serving(&self) -> Option<String> {
        let is_serving = self.is_serving.load(Ordering::Relaxed);
        (!is_serving).then(|| "the daemon starts or stops".to_owned())
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::http::Shown;

    fn get(handler: &Handler, path: &str) -> (u16, String) {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (query, shown, body) = (String::new(), Shown::default(), vec![]);
        let request = Request { is_post: false, path: path.into(), query, peer, shown, body };
        let Reply { status, body, .. } = handler(&request);
        (status.as_u16(), String::from_utf8(body).unwrap())
    }

    #[test]
    fn a_daemon_is_ready_between_its_first_turn_and_its_end_and_dead_after_15_s_of_silence() {
        let started = Instant::now().checked_sub(Duration::from_secs(16)).unwrap();
        let health = Arc::new(Health { started, ..Health::default() });
        let lacks_tables = Arc::new(AtomicBool::new(false));
        let lacks = Arc::clone(&lacks_tables);
        let ready = move || match lacks.load(Ordering::Relaxed) {
            true => Err("no tables".to_owned()),
            false => Ok("ok, leads".to_owned()),
        };
        let other: Handler = Arc::new(|_| Reply::new(TEXT, "other"));
        let handler = Arc::clone(&health).before(other, ready);
        let state = || ["/healthz", "/readyz"].map(|path| get(&handler, path).0);

        assert_eq!(state(), [503, 503], "16 s without a turn");
        assert!(get(&handler, "/healthz").1.contains("has not run for 16 s"));
        assert!(health.on_turn());
        assert_eq!(state(), [200, 200]);
        assert!(!health.on_turn());
        assert_eq!(get(&handler, "/readyz").1, "ok, leads\n");
        assert_eq!(get(&handler, "/healthz").1, "ok\n");
        lacks_tables.store(true, Ordering::Relaxed);
        assert_eq!(state(), [200, 503]);
        assert_eq!(get(&handler, "/readyz").1, "no tables\n");
        lacks_tables.store(false, Ordering::Relaxed);
        health.on_stop();
        assert_eq!(state(), [200, 503], "it stops");
        assert_eq!(get(&handler, "/metrics"), (200, "other".into()));
        let fresh = Arc::new(Health::default()).before(handler, || Ok("ok".into()));
        assert_eq!(
            ["/healthz", "/readyz"].map(|path| get(&fresh, path).0),
            [200, 503],
            "it starts"
        );
    }
}
