//! The daemons' log: text or JSON on standard error, or the journal of systemd. `weft-events` has the events in it.

use std::io::IsTerminal;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::otlp::{EventLayer, OtlpOptions, Telemetry};

/// The variable with the form of the log, if `--log` is not given.
const FORMAT: &str = "WEFT_LOG_FORMAT";
/// The beginning of the names of fields in the journal, before `_` and the name in capitals.
const JOURNAL_PREFIX: &str = "WEFT";

/// The form of a daemon's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people, on standard error
    #[default]
    Text,
    /// A JSON object on each line, on standard error
    Json,
    /// Entries with fields in systemd's journal
    Journald,
}

/// The command-line options of a daemon's log, and of its export.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LogOptions {
    /// The form of the log [default: that of WEFT_LOG_FORMAT, else text]
    #[arg(long = "log", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    otlp: OtlpOptions,
}

impl LogOptions {
    /// Starts the log at the level of WEFT_LOG; the default is `info`. Without a journal, a log for it is text on standard
    /// error, because a daemon must not fail for want of a log. Returns the export of the daemon `service`, which has the
    /// log's events.
    ///
    /// # Errors
    /// Returns an error if WEFT_LOG_FORMAT names no form, or if the collector's address cannot be one.
    ///
    /// # Panics
    /// Panics if the log was started before.
    pub(crate) fn start(&self, service: &'static str) -> Result<Telemetry> {
        let telemetry = Telemetry::new(&self.otlp, service)?;
        self.start_with(telemetry.layer())?;
        Ok(telemetry)
    }

    /// Starts the log of a program that is no daemon: its events are not exported.
    ///
    /// # Errors
    /// Returns an error if WEFT_LOG_FORMAT names no form.
    ///
    /// # Panics
    /// Panics if the log was started before.
    pub(crate) fn start_alone(&self) -> Result<()> {
        self.start_with(None)
    }

    fn start_with(&self, events: Option<EventLayer>) -> Result<()> {
        let format = self.format.map_or_else(from_environment, Ok)?;
        let (layer, fault) = match format {
            Format::Text => (text(), None),
            Format::Json => (fmt::layer().json().with_writer(std::io::stderr).boxed(), None),
            Format::Journald => match tracing_journald::layer() {
                Ok(journal) => {
                    (journal.with_field_prefix(Some(JOURNAL_PREFIX.to_owned())).boxed(), None)
                }
                Err(error) => (text(), Some(error)),
            },
        };
        let filter = EnvFilter::builder().with_env_var("WEFT_LOG");
        let filter = filter.with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
        let events = events.with_filter(LevelFilter::INFO);
        tracing_subscriber::registry().with(layer.with_filter(filter)).with(events).init();
        if let Some(error) = fault {
            tracing::warn!(%error, "no journal: the log is on standard error");
        }
        Ok(())
    }
}

/// Returns lines for people, in colour on a terminal.
fn text() -> Box<dyn Layer<Registry> + Send + Sync> {
    let is_terminal = std::io::stderr().is_terminal();
    fmt::layer().with_writer(std::io::stderr).with_ansi(is_terminal).boxed()
}

/// Returns the form that WEFT_LOG_FORMAT names.
fn from_environment() -> Result<Format> {
    match std::env::var(FORMAT) {
        Ok(name) if !name.is_empty() => Format::from_str(&name, false)
            .map_err(|_| anyhow!("{FORMAT}={name} is no form of a log: text, json or journald")),
        _ => Ok(Format::default()),
    }
}
