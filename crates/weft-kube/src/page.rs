//! Health and metrics of a controller, for kubelets and Prometheus: `/healthz`, `/readyz` and `/metrics` over HTTP.
//!
//! Probers and load balancers show no token, so that `/healthz` and `/readyz` are open, and reasons have no words of other programs:
//! these are in the log alone. The page is served on the controller's own thread: an answer to `/healthz` shows that this thread runs.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use weft_guard::serve_each;

use crate::{FleetError, Readers, Written};

/// Maximum number of connections. More wait.
const MAX_CONNECTIONS: usize = 32;

/// Maximum duration of a connection: a prober has one question.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// The answer to clients that may not read the metrics.
const NOT_READER: &str = "other hosts read with the token of --token-file (Authorization: Bearer TOKEN), or where this controller was \
                          started with --anyone-may-read\n";

const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state of a controller, as its page shows it. Copies are of the same state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// `true` once the objects of the cluster have been read.
    follows: bool,
    /// `true` while this controller has the Lease and its term has begun in etcd.
    leads: bool,
    /// The reason that the last attempt to read or write the fleet failed, if it did.
    fault: Option<&'static str>,
    /// `true` while changes of others in etcd do not arrive. A write may succeed meanwhile.
    is_watch_lost: bool,
    /// Number of objects that the cluster wants in the fleet.
    objects: usize,
    set: u64,
    deleted: u64,
    /// Number of times that a fault began.
    failures: u64,
}

impl Health {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets that the objects of the cluster have been read.
    pub(crate) fn set_following(&self) {
        self.with(|state| state.follows = true);
    }

    /// Sets whether a term of this controller has begun. One that does not begin is a fault, which stays until another attempt
    /// succeeds or another controller has the Lease.
    pub(crate) fn set_leading(&self, leads: bool) {
        self.with(|state| {
            (state.leads, state.fault) = (leads, None);
            if !leads {
                // Who stands by follows nothing in etcd.
                state.is_watch_lost = false;
            }
        });
    }

    /// Records what was written to the fleet, and the number of objects that the cluster wants there.
    pub(crate) fn record_written(&self, written: &Written, objects: usize) {
        self.with(|state| {
            (state.objects, state.fault) = (objects, None);
            state.set += written.set as u64;
            state.deleted += written.deleted as u64;
        });
    }

    /// Records that an attempt to read or write the fleet failed. Further ones until a success are the same failure.
    pub(crate) fn record_failure(&self, error: &FleetError) {
        self.with(|state| {
            state.failures += u64::from(state.fault.is_none());
            state.fault = Some(error.summary());
        });
    }

    /// Sets whether changes of others in etcd do not arrive.
    pub(crate) fn set_watch_lost(&self, is_lost: bool) {
        self.with(|state| {
            state.failures += u64::from(is_lost && !state.is_watch_lost);
            state.is_watch_lost = is_lost;
        });
    }

    /// Answers all requests, without end.
    pub async fn serve(self, listener: TcpListener, readers: Readers) {
        let readers = Arc::new(readers);
        let poll_accept = |context: &mut Context<'_>| listener.poll_accept(context);
        let serve = |(stream, peer): (TcpStream, SocketAddr)| {
            let answer = self.clone().answer(stream, peer.ip(), Arc::clone(&readers));
            let answered = timeout(MAX_DURATION, answer);
            // A client that is too slow, or sends no HTTP, is closed.
            async move { drop(answered.await) }
        };
        serve_each(MAX_CONNECTIONS, poll_accept, serve).await;
    }

    async fn answer(
        self,
        stream: TcpStream,
        peer: IpAddr,
        readers: Arc<Readers>,
    ) -> hyper::Result<()> {
        let answer = |request: Request<Incoming>| {
            let shown = request.headers().get(AUTHORIZATION).and_then(|it| it.to_str().ok());
            let may_read = readers.include(peer, shown);
            let response = self.response(request.method(), request.uri().path(), may_read);
            std::future::ready(Ok::<_, Infallible>(response))
        };
        let mut connection = http1::Builder::new();
        connection
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await
    }

    fn response(&self, method: &Method, path: &str, may_read: bool) -> Response<Full<Bytes>> {
        let (status, kind, body) = match path {
            _ if !matches!(*method, Method::GET | Method::HEAD) => {
                (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n".to_owned())
            }
            "/healthz" => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => {
                let (status, line) = self.with(|state| state.readiness());
                (status, TEXT, line + "\n")
            }
            "/metrics" if !may_read => (StatusCode::UNAUTHORIZED, TEXT, NOT_READER.to_owned()),
            "/metrics" => (StatusCode::OK, OPENMETRICS, self.with(|state| state.metrics())),
            _ => (StatusCode::NOT_FOUND, TEXT, "/healthz, /readyz, /metrics\n".to_owned()),
        };
        let response = Response::builder().status(status).header(CONTENT_TYPE, kind);
        let response = response.header(CACHE_CONTROL, "no-store").body(Full::from(body));
        response.expect("the headers are constants")
    }
}

impl State {
    fn readiness(&self) -> (StatusCode, String) {
        let down = |reason: String| (StatusCode::SERVICE_UNAVAILABLE, reason);
        match self.fault {
            _ if !self.follows => down("the cluster's objects have not been read".into()),
            Some(fault) => {
                down(format!("the fleet cannot be read or written: {fault} (see the log)"))
            }
            None if self.is_watch_lost => {
                down("changes in etcd do not arrive (see the log)".into())
            }
            None if self.leads => (StatusCode::OK, "ok, leads".into()),
            None => (StatusCode::OK, "ok, stands by".into()),
        }
    }

    /// Returns `true` unless the fleet cannot be read or written.
    fn is_usable(&self) -> bool {
        self.fault.is_none() && !self.is_watch_lost
    }

    fn metrics(&self) -> String {
        let bit = u64::from;
        let usable = bit(self.is_usable());
        let objects = self.objects as u64;
        let mut text = String::new();
        for (name, help, value) in [
            ("weft_kube_leads", "1 if this controller leads, else 0", bit(self.leads)),
            ("weft_kube_follows", "1 once the cluster's objects have been read", bit(self.follows)),
            (
                "weft_kube_fleet_usable",
                "0 while the fleet cannot be read or written, else 1",
                usable,
            ),
            ("weft_kube_objects", "Objects that the cluster wants in the fleet", objects),
        ] {
            family(&mut text, name, "gauge", help, &[("", value)]);
        }
        let changes = [("{kind=\"set\"}", self.set), ("{kind=\"deleted\"}", self.deleted)];
        let help = "Objects written since the start";
        family(&mut text, "weft_kube_changes", "counter", help, &changes);
        let help = "Times that reading or writing the fleet began to fail, since the start";
        family(&mut text, "weft_kube_failures", "counter", help, &[("", self.failures)]);
        text + "# EOF\n"
    }
}

/// Adds a family of metrics with its samples, each with its labels.
fn family(text: &mut String, name: &str, kind: &str, help: &str, samples: &[(&str, u64)]) {
    *text += &format!("# HELP {name} {help}.\n# TYPE {name} {kind}\n");
    let suffix = if kind == "counter" { "_total" } else { "" };
    for (labels, value) in samples {
        *text += &format!("{name}{suffix}{labels} {value}\n");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn ask(health: &Health, path: &str) -> (StatusCode, String) {
        let response = health.response(&Method::GET, path, true);
        let status = response.status();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = http_body_util::BodyExt::collect(response.into_body());
        let body = runtime.block_on(body).unwrap().to_bytes();
        (status, String::from_utf8(body.into()).unwrap())
    }

    #[test]
    fn a_controller_is_ready_once_it_follows_and_while_it_can_write() {
        let health = Health::default();
        let ready = || ask(&health, "/readyz");
        assert_eq!(ready().0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(&health, "/healthz"), (StatusCode::OK, "ok\n".into()));
        health.set_following();
        assert_eq!(ready(), (StatusCode::OK, "ok, stands by\n".into()));
        health.set_leading(true);
        assert_eq!(ready(), (StatusCode::OK, "ok, leads\n".into()));
        health.record_failure(&FleetError::Contended);
        let refused =
            "the fleet cannot be read or written: others change the same keys (see the log)\n"
                .into();
        assert_eq!(ready(), (StatusCode::SERVICE_UNAVAILABLE, refused));
        health.record_written(&Written { set: 3, deleted: 1, ..Written::default() }, 7);
        assert_eq!(ready(), (StatusCode::OK, "ok, leads\n".into()));
        // A standby has nothing that it could not write.
        health.record_failure(&FleetError::Contended);
        health.set_leading(false);
        assert_eq!(ready().1, "ok, stands by\n");
    }

    #[test]
    fn a_lost_watch_is_a_fault_until_it_is_back_whatever_is_written() {
        let health = Health::default();
        health.set_following();
        health.set_leading(true);
        let state = || {
            let ready = ask(&health, "/readyz").0 == StatusCode::OK;
            assert_eq!(health.with(|state| state.is_usable()), ready);
            (ready, health.with(|state| state.failures))
        };
        let lost = || health.set_watch_lost(true);
        let write = || health.record_written(&Written::default(), 7);
        lost();
        assert_eq!(state(), (false, 1));
        lost();
        write();
        assert_eq!(state(), (false, 1), "each look finds it lost");
        // A read that fails, and the write that follows it.
        health.record_failure(&FleetError::Contended);
        health.record_failure(&FleetError::Contended);
        assert_eq!(state(), (false, 2));
        write();
        health.set_watch_lost(false);
        assert_eq!(state(), (true, 2));
        lost();
        assert_eq!(state(), (false, 3));
        // A standby follows nothing in etcd.
        health.set_leading(false);
        assert_eq!(state(), (true, 3));
    }

    #[test]
    fn prometheus_reads_the_metrics() {
        let health = Health::default();
        health.set_following();
        health.set_leading(true);
        health.record_written(&Written { set: 3, deleted: 1, ..Written::default() }, 7);
        health.record_failure(&FleetError::Contended);
        let text = ask(&health, "/metrics").1;
        assert_eq!(text, include_str!("../tests/golden/metrics.txt"));
        assert_eq!(weft_testkit::samples(&text).len(), 7);
    }

    #[test]
    fn requests_of_other_methods_and_paths_are_refused() {
        let health = Health::default();
        assert_eq!(ask(&health, "/").0, StatusCode::NOT_FOUND);
        let post = health.response(&Method::POST, "/healthz", true);
        assert_eq!(post.status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    /// The attacker: a host that reaches the port.
    #[test]
    fn reasons_have_no_words_of_other_programs_and_metrics_are_for_readers() {
        let health = Health::default();
        health.set_following();
        health.record_failure(&FleetError::Fenced("h3-5f2e".into()));
        let (status, reason) = ask(&health, "/readyz");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(reason.contains("another controller leads") && !reason.contains("h3"), "{reason}");
        let status = |path| health.response(&Method::GET, path, false).status();
        assert_eq!(status("/metrics"), StatusCode::UNAUTHORIZED);
        assert_eq!([status("/healthz"), status("/readyz")].map(|it| it.as_u16()), [200, 503]);
    }

    #[test]
    fn a_silent_client_delays_no_other() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(Health::default().serve(listener, Readers::default()));
        let client = std::thread::spawn(move || {
            let _silent = std::net::TcpStream::connect(address).unwrap();
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let ended = tokio::task::spawn_blocking;
        let answer =
            runtime.block_on(async { ended(move || client.join().unwrap()).await.unwrap() });
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
    }
}
