//! A daemon's metrics and events at a collector of OpenTelemetry (OTLP over HTTP): the values are those of `/metrics`, and a collector
//! that is away changes nothing else.
#![allow(clippy::disallowed_methods, reason = "daemons are waited for in real time")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric::Data};
use rustix::process::{Pid, Signal, kill_process};

mod collector;

use collector::{Collector, Received};
use weft_testkit::{Authority, Issued, Validity};

/// The time limit for a message.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An overlay's daemon without ports, which needs no right.
struct Overlay {
    daemon: Child,
    control: PathBuf,
    config: PathBuf,
    metrics: String,
    /// The time before its start, ns since 1970.
    started: u64,
}

/// Returns the time, ns since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_nanos().try_into().unwrap()
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl Overlay {
    /// Starts a daemon that sends to a collector at this address.
    fn start(folder: &Folder, collector: &str) -> Self {
        Self::start_with(folder, &format!("http://{collector}/prefix"), &[])
    }

    /// Starts a daemon that sends to a collector with this URL, with more variables.
    fn start_with(folder: &Folder, collector: &str, variables: &[(&str, &Path)]) -> Self {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (config, control) = (folder.path("vpc.toml"), folder.path("vpc.sock"));
        let text = format!(
            "[host]\naddress = '127.0.0.1'\nport = {port}\ncontrol = '{}'\n[[network]]\nvni = 100\npeers = []\n",
            control.display()
        );
        fs::write(&config, text).unwrap();
        let (metrics, started) = (free_address(), now());
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["vpc", "serve", "--metrics", &metrics, "--log", "json", "--config"]);
        command.arg(&config).env("OTEL_METRIC_EXPORT_INTERVAL", "300");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).envs(variables.iter().copied());
        command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=a%2Cb");
        command.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab");
        let log = fs::File::create(folder.path("log")).unwrap();
        let daemon = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let overlay = Self { daemon, control, config, metrics, started };
        overlay.until(|| overlay.weft(&["status"]));
        overlay
    }

    fn until(&self, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < LIMIT, "the daemon at {}", self.control.display());
            weft_testkit::pause();
        }
    }

    /// Runs a command of `weft vpc`; returns `true` if it succeeds.
    fn weft(&self, words: &[&str]) -> bool {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["vpc", "--control"]).arg(&self.control).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// Has the daemon log an event.
    fn reload(&self) {
        assert!(self.weft(&["reload", "--config", self.config.to_str().unwrap()]));
    }

    /// Returns the samples of `/metrics`, by name and labels.
    fn samples(&self) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let lines = text.split_once("\r\n\r\n").unwrap().1.lines();
        let samples = lines.filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.replace("{}", ""), value.parse().unwrap())
        });
        samples.collect()
    }

    /// Ends the daemon as systemd does; returns `true` if it succeeds.
    fn terminate(&mut self) -> bool {
        kill_process(Pid::from_child(&self.daemon), Signal::TERM).unwrap();
        self.daemon.wait().unwrap().success()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Waits for what `find` finds at the collector.
fn wait<T>(collector: &Collector, find: impl Fn(&Received) -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find(&collector.0.lock().unwrap()) {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "{:#?}", collector.0.lock().unwrap());
        weft_testkit::pause();
    }
}

fn string(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|it| it.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Returns the samples of a message as `/metrics` names them.
fn samples_of(received: &Received, started: u64) -> Option<BTreeMap<String, f64>> {
    let of_resource = &received.metrics.last()?.resource_metrics[0];
    let mut samples = BTreeMap::new();
    for metric in &of_resource.scope_metrics[0].metrics {
        let (points, is_counter) = match metric.data.as_ref()? {
            Data::Sum(sum) => {
                let cumulative = i32::from(AggregationTemporality::Cumulative);
                assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (cumulative, true));
                (&sum.data_points, true)
            }
            Data::Gauge(gauge) => (&gauge.data_points, false),
            other => panic!("{other:?}"),
        };
        for point in points {
            let value = match point.value? {
                #[expect(clippy::cast_precision_loss, reason = "a count of a test")]
                Number::AsInt(count) => count as f64,
                Number::AsDouble(value) => value,
            };
            let start = point.start_time_unix_nano;
            assert!(if is_counter { start >= started } else { start == 0 }, "{metric:?}");
            assert!(point.time_unix_nano >= start && point.time_unix_nano <= now());
            let label = |it: &KeyValue| {
                format!("{}={:?}", it.key, string(&point.attributes, &it.key).unwrap())
            };
            let labels: Vec<String> = point.attributes.iter().map(label).collect();
            let labels =
                if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let total = if is_counter { "_total" } else { "" };
            samples.insert(format!("{}{total}{labels}", metric.name), value);
        }
    }
    Some(samples)
}

fn events<'a>(received: &'a Received, name: &'a str) -> impl Iterator<Item = &'a LogRecord> {
    let scopes =
        received.logs.iter().flat_map(|it| &it.resource_logs).flat_map(|it| &it.scope_logs);
    scopes.flat_map(|it| &it.log_records).filter(move |record| record.event_name == name)
}

#[test]
fn a_collector_gets_what_prometheus_gets_and_the_events_of_the_log() {
    let folder = Folder::new("otlp-same");
    let collector = Collector::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    collector.serve(listener);
    let mut overlay = Overlay::start(&folder, &at);
    overlay.reload();
    let reloads = "weft_vpc_reloads_total{outcome=\"applied\"}";
    let sent = wait(&collector, |received| {
        samples_of(received, overlay.started).filter(|samples| samples[reloads] == 1.0)
    });
    // Nothing happens in this overlay.
    let served: BTreeMap<_, _> = overlay.samples();
    let busy = |name: &str| name.contains("thread_packets") || name.contains("transport");
    let quiet = |samples: &BTreeMap<String, f64>| {
        samples
            .iter()
            .filter(|(name, _)| !busy(name))
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(quiet(&sent), quiet(&served));
    assert_eq!(sent.keys().collect::<Vec<_>>(), served.keys().collect::<Vec<_>>());

    let record = wait(&collector, |received| events(received, "reload-applied").next().cloned());
    assert_eq!(string(&record.attributes, "source").as_deref(), Some("file"));
    assert_eq!((record.severity_number, record.severity_text.as_str()), (9, "INFO"));
    assert!(record.observed_time_unix_nano >= overlay.started);
    {
        let received = collector.0.lock().unwrap();
        assert_eq!(received.headers["x-token"], "a,b");
        for resource in [
            received.metrics[0].resource_metrics[0].resource.clone().unwrap(),
            received.logs[0].resource_logs[0].resource.clone().unwrap(),
        ] {
            let of = |key: &str| string(&resource.attributes, key).unwrap();
            assert_eq!(of("service.name"), "weft-vpc");
            assert_eq!(of("deployment.environment.name"), "lab");
            assert!(!of("host.name").is_empty() && !of("service.version").is_empty());
        }
    }

    // The last export has what happened just before the end.
    overlay.reload();
    assert!(overlay.terminate());
    let received = collector.0.lock().unwrap();
    assert_eq!(samples_of(&received, overlay.started).unwrap()[reloads], 2.0);
    assert_eq!(events(&received, "reload-applied").count(), 2);
}

/// A collector that is away from the start, comes, and refuses for a while.
#[test]
fn a_collector_that_is_away_is_one_event_and_gets_the_events_when_it_is_back() {
    let folder = Folder::new("otlp-away");
    let at = free_address();
    let mut overlay = Overlay::start(&folder, &at);
    let log = || fs::read_to_string(folder.path("log")).unwrap();
    let logged = |event: &str| log().matches(&format!("\"event\":\"{event}\"")).count();
    overlay.until(|| logged("export-failed") == 1);
    // The daemon answers as before.
    overlay.reload();
    assert!(!overlay.samples().is_empty());
    let collector = Collector::default();
    let refusals = vec![StatusCode::SERVICE_UNAVAILABLE; 2];
    collector.0.lock().unwrap().refusals = refusals;
    collector.serve(TcpListener::bind(&at).unwrap());
    overlay.until(|| logged("export-resumed") == 1);
    assert_eq!(logged("export-failed"), 1, "{}", log());
    for event in ["reload-applied", "export-failed", "export-resumed"] {
        wait(&collector, |received| events(received, event).next().cloned());
    }
    wait(&collector, |received| samples_of(received, overlay.started));
    assert!(overlay.terminate());
}

/// A collector with TLS that wants certificates of its clients.
#[test]
fn a_collector_and_a_daemon_know_each_other_by_certificates() {
    let folder = Folder::new("otlp-tls");
    let (ours, others) = (Authority::new(&folder.0, "ours"), Authority::new(&folder.0, "others"));
    let server = ours.issue("collector", &["127.0.0.1"], Validity::Current);
    let client = ours.issue("daemon", &["daemon"], Validity::Current);
    let collector = Collector::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/prefix", listener.local_addr().unwrap());
    collector.serve_tls(listener, &ours, server);
    let start = |authority: &Authority, own: Option<&Issued>| {
        let mut variables = vec![("OTEL_EXPORTER_OTLP_CERTIFICATE", &*authority.certificate)];
        if let Some(own) = own {
            variables.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &own.certificate));
            variables.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", &own.key));
        }
        Overlay::start_with(&folder, &url, &variables)
    };
    let log = || fs::read_to_string(folder.path("log")).unwrap();
    // Neither a collector of another authority nor one that wants a certificate gets anything.
    for (authority, own, reason) in [
        (&others, Some(&client), "was not issued by an authority in"),
        (&ours, None, "wants a client's certificate"),
    ] {
        let overlay = start(authority, own);
        overlay.until(|| log().contains("\"event\":\"export-failed\""));
        assert!(log().contains(reason), "{}", log());
        let received = collector.0.lock().unwrap();
        assert!(received.metrics.is_empty() && received.logs.is_empty());
    }
    let mut overlay = start(&ours, Some(&client));
    overlay.reload();
    wait(&collector, |received| samples_of(received, overlay.started));
    wait(&collector, |received| events(received, "reload-applied").next().cloned());
    assert!(overlay.terminate());
    assert!(!log().contains("export-failed"), "{}", log());
}

/// A collector that accepts connections and never answers.
#[test]
fn a_collector_that_does_not_answer_delays_the_end_by_seconds_at_most() {
    let folder = Folder::new("otlp-silent");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut overlay = Overlay::start(&folder, &listener.local_addr().unwrap().to_string());
    listener.accept().unwrap();
    overlay.reload();
    let began = Instant::now();
    assert!(overlay.terminate());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A wrong address is refused when the daemon starts.
#[test]
fn a_wrong_address_of_a_collector_is_named() {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    command.args(["monitor", "agent", "--listen", "127.0.0.1:0", "--otlp", "collector:4318"]);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("--otlp: collector:4318"), "{error}");
}
