//! A daemon's metrics and events for an OpenTelemetry collector, by OTLP over HTTP: the registry that `/metrics` serves, and the
//! events of its log.
//!
//! | task | file |
//! | --- | --- |
//! | options and standard variables | `settings.rs` |
//! | metrics as OTLP's messages | `metrics.rs` |
//! | events as OTLP's messages, until they are sent | `events.rs` |
//! | when to send, and what after a failure | `exporter.rs` |
//! | a request to the collector | `collector.rs` |
//!
//! A thread of its own sends. No thread of the daemon waits for it: an event is put into a queue of limited length, and metrics are
//! asked for as Prometheus asks for them.

mod collector;
mod events;
mod exporter;
mod metrics;
mod settings;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use prometheus_client::registry::Registry;

pub(crate) use events::EventLayer;
use events::EventQueue;
use exporter::Exporter;
pub(crate) use settings::OtlpOptions;
use settings::Settings;

use crate::http::block_on;

/// The time for the last export when the daemon ends.
const LAST_EXPORT: Duration = Duration::from_secs(5);
/// The time after it for the thread to end.
const THREAD_END: Duration = Duration::from_secs(1);

/// A function that returns the metrics now; `None` if the daemon does not answer. It may take seconds.
pub(crate) type Metrics = Box<dyn Fn() -> Option<Registry> + Send + Sync>;

/// The time since which counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedSince {
    /// The daemon's start: they are its own.
    Start,
    /// Unknown: they are those of programs that began before.
    Unknown,
}

/// The export of a daemon; it does nothing without a collector.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    collector: Option<(Settings, Arc<EventQueue>)>,
    running: Mutex<Option<Running>>,
}

/// The running thread.
#[derive(Debug)]
struct Running {
    exporter: Arc<Exporter>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Telemetry {
    /// Reads the options and variables. Events wait from now on, and are sent once [`begin`](Self::begin) was called.
    ///
    /// # Errors
    /// An option or a variable has a value that it cannot have.
    pub(crate) fn new(options: &OtlpOptions, service: &'static str) -> Result<Self> {
        let settings = Settings::read(options, service)?;
        let collector = settings.map(|settings| (settings, Arc::default()));
        Ok(Self { collector, running: Mutex::default() })
    }

    /// Returns the layer of the log that takes events, if there is a collector.
    pub(crate) fn layer(&self) -> Option<EventLayer> {
        self.collector.as_ref().map(|(_, queue)| EventLayer::new(Arc::clone(queue)))
    }

    /// Starts to send, metrics too.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn begin(&self, since: CountedSince, metrics: Metrics) -> Result<()> {
        let Some((settings, queue)) = &self.collector else { return Ok(()) };
        let exporter = Exporter::new(settings.clone(), Arc::clone(queue), since, metrics);
        let (of_thread, (ends, ended)) = (Arc::clone(&exporter), channel());
        let send = move || {
            let sent = block_on(of_thread.run());
            if let Err(error) = sent {
                tracing::error!(error = format!("{error:#}"), "nothing is exported");
            }
            drop(ends);
        };
        let thread = thread::Builder::new().name("otlp".into()).spawn(send);
        thread.context("cannot start a thread")?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Running { exporter, ended });
        Ok(())
    }

    /// Takes the metrics of the last export now: the daemon will not answer when it has ended.
    pub(crate) fn take_last(&self, metrics: Option<&Registry>) {
        if let Some(running) = &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            running.exporter.take_last(metrics);
        }
    }

    /// Sends what was not sent, within 5 s.
    pub(crate) fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { exporter, ended }) = running {
            exporter.stop();
            // A thread that waits for more than it may is left behind.
            let _ = ended.recv_timeout(LAST_EXPORT + THREAD_END);
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.stop();
    }
}
