//! The daemons' log.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts the log on standard error, at the level of WEFT_LOG; the default is `info`.
///
/// # Panics
/// Panics if the log was started before.
pub(crate) fn start(json: bool) {
    let filter = EnvFilter::builder().with_env_var("WEFT_LOG");
    let filter = filter.with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let log = log.with_ansi(std::io::stderr().is_terminal());
    if json { log.json().init() } else { log.init() }
}
