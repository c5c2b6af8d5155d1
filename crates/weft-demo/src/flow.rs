//! One running flow of a contender: a thread for each end, and the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use weft_perf::{Client, LatencyMicros, Plan, Server};
use weft_transport::TransportConfig;

use super::goodput::Goodput;

/// The settings of a flow to be opened.
#[derive(Clone, Debug)]
pub(crate) struct FlowConfig {
    pub(super) transport: TransportConfig,
    pub(super) plan: Plan,
    pub(super) span: Duration,
}

impl FlowConfig {
    pub(super) fn duration(&self) -> weft_units::Duration {
        let nanos = u64::try_from(self.span.as_nanos()).expect("an act lasts seconds");
        weft_units::Duration::from_nanos(nanos)
    }
}

/// The result of a flow.
#[derive(Debug)]
pub(super) struct Finished {
    /// Bytes received over time.
    pub(super) goodput: Goodput,
    /// Latency of each message or request.
    pub(super) latency: LatencyMicros,
    /// The cipher of its packets; `None` without encryption.
    pub(super) cipher: Option<String>,
}

/// A running flow.
#[derive(Debug)]
pub(super) struct Running {
    sender: JoinHandle<Result<Finished>>,
}

impl Running {
    pub(super) fn new(sender: JoinHandle<Result<Finished>>) -> Self {
        Self { sender }
    }

    /// Waits for the end of the flow and returns the result.
    ///
    /// # Errors
    /// Returns an error if a client, a server or a thread failed.
    pub(super) fn finish(self) -> Result<Finished> {
        self.sender.join().map_err(|_| anyhow!("the flow's thread panicked"))?
    }
}

/// Starts both ends, each on its own thread, and returns the running flow.
pub(super) fn start(client: Client, mut server: Server) -> Running {
    Running::new(thread::spawn(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serving = thread::spawn(move || server.run(&stopped));
        let outcome = client.run(|_| ());
        stop.store(true, Ordering::Relaxed);
        serving.join().map_err(|_| anyhow!("the server's thread panicked"))?;
        let report = outcome?;
        let (goodput, cipher) = (Goodput::of(&report.placed), report.encryption.cipher);
        Ok(Finished { goodput, latency: report.latency_us, cipher })
    }))
}
