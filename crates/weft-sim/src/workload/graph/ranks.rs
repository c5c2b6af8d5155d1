//! The places of ranks: hosts, and the links inside their servers.

use weft_topo::NodeId;

use crate::time::{SimSpan, SimTime};
use crate::workload::{ServerConfig, WorkloadError};

/// The hosts of ranks, and the links inside servers.
#[derive(Debug)]
pub(super) struct Ranks {
    hosts: Vec<NodeId>,
    server: Option<ServerConfig>,
    /// The time at which a rank's messages inside its server have left.
    free: Vec<SimTime>,
}

impl Ranks {
    /// Places `ranks` ranks on hosts in their order: one on each host, or, with servers, as many as a host has GPUs.
    ///
    /// # Errors
    /// There are too few hosts.
    pub(super) fn new(
        ranks: u32,
        hosts: &[NodeId],
        server: Option<ServerConfig>,
    ) -> Result<Self, WorkloadError> {
        let per_host = server.as_ref().map_or(1, |server| server.gpus_per_host);
        let min = ranks.div_ceil(per_host);
        if hosts.len() < min as usize {
            return Err(WorkloadError::TooFewHosts { got: hosts.len(), min });
        }
        let hosts = (0..ranks).map(|rank| hosts[(rank / per_host) as usize]).collect();
        Ok(Self { hosts, server, free: vec![SimTime::EPOCH; ranks as usize] })
    }

    /// Returns the host of a rank.
    pub(super) fn host(&self, rank: u32) -> NodeId {
        self.hosts[rank as usize]
    }

    /// Returns the arrival of a message sent now inside a server, behind those that are already on the sender's link;
    /// `None` for a message over the network. A message of a rank to itself takes no time.
    pub(super) fn local_arrival(
        &mut self,
        rank: u32,
        to: u32,
        bytes: u64,
        now: SimTime,
    ) -> Option<SimTime> {
        if rank == to {
            return Some(now);
        }
        let server = self.server.as_ref()?;
        if rank / server.gpus() != to / server.gpus() {
            return None;
        }
        let picos = u128::from(bytes) * 8_000_000_000_000 / u128::from(server.rate.as_bps());
        let span = SimSpan::from_picos(u64::try_from(picos).unwrap_or(u64::MAX));
        let free = &mut self.free[rank as usize];
        *free = now.max(*free) + span;
        Some(*free + SimSpan::from(server.latency))
    }
}
