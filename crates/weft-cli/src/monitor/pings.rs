//! The matrix of `weft ping`, which it sends to the monitor (X-RDMA's XR-Ping, section VI.B).

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weft_perf::LatencyMicros;

use crate::http::{Credentials, Server, block_on};

/// The results of all pairs of hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PingReport {
    pub(crate) pairs: Vec<PingPair>,
    pub(crate) unreachable: Vec<UnreachableHost>,
}

/// The pings from one host to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PingPair {
    pub(crate) from: String,
    pub(crate) from_tor: String,
    pub(crate) to: String,
    pub(crate) to_tor: String,
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) loss: f64,
    pub(crate) round_trip_us: Option<LatencyMicros>,
    pub(crate) error: Option<String>,
    pub(crate) outlier: bool,
}

/// A host that the coordinator did not reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnreachableHost {
    pub(crate) host: String,
    pub(crate) why: String,
}

/// The last matrix that the monitor received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    /// The time of its arrival, ms since 1970.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) report: PingReport,
}

/// The path at which a monitor takes the matrix.
pub(super) const PATH: &str = "/v1/pings";
/// The longest matrix in bytes: that of about 200 hosts.
pub(crate) const MAX_PINGS: usize = 16 << 20;

impl PingReport {
    /// Sends the matrix to the monitor at `host`.
    ///
    /// # Errors
    /// The monitor does not answer, or refuses.
    pub(crate) fn send(&self, host: &str, credentials: &Credentials) -> Result<()> {
        let body = serde_json::to_vec(self).context("writing the matrix as JSON")?;
        let server = Server { command: "weft monitor serve", ..Server::agent(host) };
        let sent = block_on(server.fetch(PATH, Some(body), credentials))?;
        sent.with_context(|| format!("sending the matrix to the monitor at {host}")).map(drop)
    }
}
