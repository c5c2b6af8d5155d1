//! The thread that sends: metrics once an interval, events a second after the first of them, and after a failure later and later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use weft_events::{ExportFailed, ExportResumed, per_second};

use super::collector::Fault;
use super::events::{EventQueue, nanos};
use super::metrics::Series;
use super::settings::Settings;
use super::{CountedSince, LAST_EXPORT, Metrics};
use crate::openmetrics::messages;

/// The time after the start until metrics are first sent.
const FIRST: Duration = Duration::from_secs(1);
/// The time after an event until it is sent, with those that follow.
const EVENT_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of events of a message, as in OpenTelemetry's own libraries.
const MAX_BATCH: usize = 512;
/// The first and the longest time after a failure until the next attempt; each failure doubles it.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The interval in which failures are counted after the first one.
const COUNT_INTERVAL: Duration = Duration::from_secs(600);

/// The export of one daemon.
pub(super) struct Exporter {
    settings: Settings,
    queue: Arc<EventQueue>,
    metrics: Metrics,
    series: Mutex<Series>,
    /// The metrics of the last export, if they were taken.
    last: Mutex<Option<Vec<MetricFamily>>>,
    failures: Mutex<Failures>,
    stop: Notify,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Exporter").field("url", &self.settings.url).finish_non_exhaustive()
    }
}

/// The kinds of messages that a round has sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    has_metrics: bool,
    has_any: bool,
}

/// Failures since the last success.
#[derive(Debug)]
struct Failures {
    /// Their number.
    in_a_row: u32,
    /// Their number since an event was logged.
    unlogged: u64,
    /// The time of the last success or of the last event about failures.
    since: Instant,
}

impl Failures {
    /// Counts a failure. Returns their number and the interval if it is time for an event: after the first one, and rarely
    /// from then on.
    fn add(&mut self, now: Instant) -> Option<(u64, f64)> {
        self.in_a_row += 1;
        self.unlogged += 1;
        let span = now.saturating_duration_since(self.since);
        if self.in_a_row > 1 && span < COUNT_INTERVAL {
            return None;
        }
        self.since = now;
        // A collector that is away from the start fails at once.
        Some((std::mem::take(&mut self.unlogged), span.as_secs_f64().max(0.1)))
    }

    /// Records a success. Returns `true` if there were failures.
    fn clear(&mut self, now: Instant) -> bool {
        let had_any = self.in_a_row > 0;
        *self = Self { in_a_row: 0, unlogged: 0, since: now };
        had_any
    }

    /// Returns the time until the next attempt.
    fn delay(&self) -> Duration {
        let (first, longest) = RETRY;
        (first * (1 << self.in_a_row.saturating_sub(1).min(6))).min(longest)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exporter {
    pub(super) fn new(
        settings: Settings,
        queue: Arc<EventQueue>,
        since: CountedSince,
        metrics: Metrics,
    ) -> Arc<Self> {
        let started = match since {
            CountedSince::Start => nanos(SystemTime::now()),
            CountedSince::Unknown => 0,
        };
        let failures = Failures { in_a_row: 0, unlogged: 0, since: Instant::now() };
        Arc::new(Self {
            settings,
            queue,
            metrics,
            series: Mutex::new(Series::new(started)),
            last: Mutex::default(),
            failures: Mutex::new(failures),
            stop: Notify::new(),
        })
    }

    /// Takes the metrics of the last export.
    pub(super) fn take_last(&self, registry: Option<&Registry>) {
        let taken = registry.map(messages).or_else(|| (self.metrics)().as_ref().map(messages));
        *lock(&self.last) = taken;
    }

    /// Has the thread send what is left, and end.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Sends until it is stopped, then once more.
    pub(super) async fn run(self: Arc<Self>) {
        let sending = tokio::spawn(Arc::clone(&self).send_periodically());
        self.stop.notified().await;
        // Events of a message on its way are still in the queue: the collector may get them twice, and none is lost.
        sending.abort();
        let _ = sending.await;
        let last = lock(&self.last).take();
        let send = async {
            if let Some(families) = last {
                let _ = self.send_metrics(families).await;
            }
            let _ = self.send_events().await;
        };
        // What the collector does not take now, nobody sends any more.
        let _ = tokio::time::timeout(LAST_EXPORT, send).await;
    }

    async fn send_periodically(self: Arc<Self>) {
        let interval = self.settings.interval;
        let mut next_metrics = Instant::now() + FIRST.min(interval);
        loop {
            let now = Instant::now();
            let until = next_metrics.saturating_duration_since(now);
            if self.queue.is_empty() {
                // An event ends the wait; those that follow come with it.
                if tokio::time::timeout(until, self.queue.wake.notified()).await.is_ok() {
                    continue;
                }
            } else {
                tokio::time::sleep(until.min(EVENT_DELAY)).await;
            }
            let is_due = Instant::now() >= next_metrics;
            match self.send(is_due).await {
                Ok(sent) => {
                    if is_due {
                        // A daemon that does not answer is asked again soon.
                        let span = if sent.has_metrics { interval } else { FIRST.min(interval) };
                        next_metrics = Instant::now() + span;
                    }
                    if sent.has_any {
                        self.on_success();
                    }
                }
                Err(fault) => {
                    if is_due && matches!(fault, Fault::Never(_)) {
                        next_metrics = Instant::now() + interval;
                    }
                    // Events wait in their queue, and metrics are asked for again.
                    tokio::time::sleep(self.on_failure(&fault)).await;
                }
            }
        }
    }

    /// Sends metrics, if they are due, and all events.
    async fn send(&self, with_metrics: bool) -> Result<Sent, Fault> {
        let families = if with_metrics { (self.metrics)().as_ref().map(messages) } else { None };
        let has_metrics = families.is_some();
        if let Some(families) = families {
            self.send_metrics(families).await?;
        }
        let has_events = self.send_events().await?;
        Ok(Sent { has_metrics, has_any: has_metrics || has_events })
    }

    async fn send_metrics(&self, families: Vec<MetricFamily>) -> Result<(), Fault> {
        let metrics = lock(&self.series).convert(families, nanos(SystemTime::now()));
        if metrics.is_empty() {
            return Ok(());
        }
        let response: ExportMetricsServiceResponse =
            self.settings.post("/v1/metrics", &self.metrics_request(metrics)).await?;
        match response.partial_success {
            Some(it) if it.rejected_data_points > 0 => Err(Fault::Never(format!(
                "it refuses {} samples: {}",
                it.rejected_data_points, it.error_message
            ))),
            _ => Ok(()),
        }
    }

    /// Sends all events that wait. Returns `true` if there were some.
    async fn send_events(&self) -> Result<bool, Fault> {
        let mut has_sent = false;
        loop {
            let records = self.queue.oldest(MAX_BATCH);
            let count = records.len();
            if count == 0 {
                return Ok(has_sent);
            }
            let scope_logs = vec![ScopeLogs {
                scope: Some(scope()),
                log_records: records,
                ..ScopeLogs::default()
            }];
            let resource_logs = vec![ResourceLogs {
                resource: Some(self.resource()),
                scope_logs,
                ..ResourceLogs::default()
            }];
            let request = ExportLogsServiceRequest { resource_logs };
            let sent = self.settings.post::<ExportLogsServiceResponse>("/v1/logs", &request).await;
            match sent {
                Ok(_) => {
                    self.queue.remove(count);
                    has_sent = true;
                }
                Err(Fault::Later(reason, after)) => return Err(Fault::Later(reason, after)),
                Err(Fault::Never(reason)) => {
                    self.queue.drop_oldest(count);
                    return Err(Fault::Never(reason));
                }
            }
        }
    }

    fn metrics_request(&self, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
        let scope_metrics =
            vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource());
        let of_resource = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![of_resource] }
    }

    fn resource(&self) -> Resource {
        Resource { attributes: self.settings.resource.clone(), ..Resource::default() }
    }

    /// Logs a failure, if it is time. Returns the time until the next attempt.
    fn on_failure(&self, fault: &Fault) -> Duration {
        let mut failures = lock(&self.failures);
        let counted = failures.add(Instant::now());
        let delay = failures.delay();
        drop(failures);
        if let Some((count, seconds)) = counted {
            let (collector, reason) = (self.settings.url.clone(), fault.reason().to_owned());
            let (per_second, dropped) = (per_second(count, seconds), self.queue.dropped());
            ExportFailed { collector, reason, count, seconds, per_second, dropped }.emit();
        }
        match fault {
            Fault::Later(_, Some(after)) => delay.max(*after),
            Fault::Later(_, None) | Fault::Never(_) => delay,
        }
    }

    fn on_success(&self) {
        if lock(&self.failures).clear(Instant::now()) {
            let (collector, dropped) = (self.settings.url.clone(), self.queue.dropped());
            ExportResumed { collector, dropped }.emit();
        }
    }
}

fn scope() -> InstrumentationScope {
    let (name, version) = ("weft".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_one_event_at_first_and_one_in_ten_minutes_from_then_on() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut failures = Failures { in_a_row: 0, unlogged: 0, since: start };
        assert_eq!(failures.add(at(10)), Some((1, 10.0)));
        assert_eq!(failures.delay(), Duration::from_secs(1));
        for second in 11..20 {
            assert_eq!(failures.add(at(second)), None);
        }
        assert_eq!(failures.delay(), Duration::from_secs(60));
        assert_eq!(failures.add(at(610)), Some((10, 600.0)));
        assert!(failures.clear(at(611)) && !failures.clear(at(612)));
        assert_eq!(failures.add(at(622)), Some((1, 10.0)));
    }
}
