//! Events of the log as OTLP's records, in a queue until they are sent.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::settings::attribute;

/// Maximum number of events that wait, as in OpenTelemetry's own libraries. Later ones are dropped.
const MAX_WAITING: usize = 2048;

/// The events that were not sent yet.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    records: Mutex<VecDeque<LogRecord>>,
    /// Number of events that were dropped.
    dropped: AtomicU64,
    /// Wakes the exporter.
    pub(super) wake: Notify,
}

impl EventQueue {
    /// Returns up to `count` of the oldest events, which stay.
    pub(super) fn oldest(&self, count: usize) -> Vec<LogRecord> {
        self.records().iter().take(count).cloned().collect()
    }

    /// Removes the oldest events, which were sent.
    pub(super) fn remove(&self, count: usize) {
        let mut records = self.records();
        let count = count.min(records.len());
        records.drain(..count);
    }

    /// Removes the oldest events, which the collector will never take.
    pub(super) fn drop_oldest(&self, count: usize) {
        self.remove(count);
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Returns the number of events that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn push(&self, record: LogRecord) {
        let mut records = self.records();
        if records.len() == MAX_WAITING {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        records.push_back(record);
        drop(records);
        self.wake.notify_one();
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<LogRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer of the log that puts events of the table (`weft-events`) into the queue.
#[derive(Debug)]
pub(crate) struct EventLayer(Arc<EventQueue>);

impl EventLayer {
    pub(super) const fn new(queue: Arc<EventQueue>) -> Self {
        Self(queue)
    }
}

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut record = Reader(LogRecord::default());
        event.record(&mut record);
        let Reader(record) = record;
        // Other entries of the log have no name.
        if record.event_name.is_empty() {
            return;
        }
        let (severity, name) = severity(*event.metadata().level());
        let now = nanos(SystemTime::now());
        self.0.push(LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number: severity.into(),
            severity_text: name.to_owned(),
            ..record
        });
    }
}

/// Returns a time as OTLP has it.
pub(super) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn severity(level: Level) -> (SeverityNumber, &'static str) {
    match level {
        Level::ERROR => (SeverityNumber::Error, "ERROR"),
        Level::WARN => (SeverityNumber::Warn, "WARN"),
        Level::INFO => (SeverityNumber::Info, "INFO"),
        Level::DEBUG => (SeverityNumber::Debug, "DEBUG"),
        Level::TRACE => (SeverityNumber::Trace, "TRACE"),
    }
}

/// Puts the fields of an entry into a record.
struct Reader(LogRecord);

impl Reader {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("event", Value::StringValue(name)) => self.0.event_name = name,
            ("message", value) => self.0.body = Some(AnyValue { value: Some(value) }),
            (name, value) => self.0.attributes.push(attribute(name, value)),
        }
    }
}

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, Value::StringValue(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::IntValue(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::DoubleValue(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::BoolValue(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, Value::StringValue(format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tracing_subscriber::layer::SubscriberExt;
    use weft_events::{PacketsRefused, PeerLost};

    use super::*;

    #[test]
    fn an_event_is_a_record_with_its_name_and_fields_and_other_entries_are_none() {
        let queue = Arc::new(EventQueue::default());
        let log = tracing_subscriber::registry().with(EventLayer::new(Arc::clone(&queue)));
        tracing::subscriber::with_default(log, || {
            tracing::error!(error = "none", "no event");
            PeerLost { peer: IpAddr::from([10, 0, 0, 2]) }.emit();
            let (cause, count, seconds, per_second) = ("replayed", 7, 10.5, 0.7);
            PacketsRefused { cause, count, seconds, per_second }.emit();
        });
        let records = queue.oldest(9);
        assert_eq!(records.len(), 2);
        let string = |text: &str| Value::StringValue(text.to_owned());
        let [lost, refused] = [&records[0], &records[1]];
        assert_eq!(lost.event_name, "peer-lost");
        assert_eq!(lost.body.clone().unwrap().value, Some(string("a host accepts no connection")));
        assert_eq!(lost.attributes, [attribute("peer", string("10.0.0.2"))]);
        assert_eq!((lost.severity_number, lost.severity_text.as_str()), (13, "WARN"));
        assert!(lost.time_unix_nano > 0 && lost.observed_time_unix_nano > 0);
        let expected = [
            attribute("cause", string("replayed")),
            attribute("count", Value::IntValue(7)),
            attribute("seconds", Value::DoubleValue(10.5)),
            attribute("per_second", Value::DoubleValue(0.7)),
        ];
        assert_eq!(refused.attributes, expected);
    }

    #[test]
    fn a_queue_without_a_collector_has_a_bound_and_keeps_the_oldest() {
        let queue = EventQueue::default();
        for number in 0..MAX_WAITING as u64 + 10 {
            queue.push(LogRecord { time_unix_nano: number, ..LogRecord::default() });
        }
        assert_eq!((queue.records().len(), queue.dropped()), (MAX_WAITING, 10));
        queue.remove(2);
        assert_eq!(queue.oldest(1)[0].time_unix_nano, 2);
        queue.drop_oldest(MAX_WAITING);
        assert!(queue.is_empty());
    }
}
