//! Jobs: their servers, their flows, and the duration of their collectives.

use alloc::vec::Vec;

use weft_plan::collective::Collective;
use weft_plan::ports::Flow;
use weft_topo::{NodeId, Topology};
use weft_units::{ByteCount, Rng, Seed};

use super::Setup;
use super::numbers::to_f64;

/// Number of NICs of a server.
pub(super) const NICS: u32 = 8;
/// Number of queue pairs of a connection in a ring: Astral, section 3.4, uses four.
const QUEUE_PAIRS: usize = 4;
/// The latency of one step of a collective in seconds: that of RoCE in Astral, section 3.3.
const STEP_SECONDS: f64 = 4e-6;

/// A job: servers that work together.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its number: no other job of the run has it.
    pub(super) id: u64,
    pub(super) servers: Vec<u32>,
    pub(super) is_planned: bool,
}

/// The jobs, and the random generator that places them.
#[derive(Debug)]
pub(super) struct Jobs {
    rng: Rng,
    next_id: u64,
    pub(super) running: Vec<Job>,
}

impl Jobs {
    /// Creates as many jobs as fit into the setup's share of servers.
    pub(super) fn draw(setup: &Setup) -> Self {
        let rng = Seed(setup.seed).child("jobs", 0).rng();
        let mut jobs = Self { rng, next_id: 0, running: Vec::new() };
        let servers = setup.gpus / NICS;
        let free = (0..servers).collect();
        let count = u64::from(servers) * u64::from(setup.busy_percent) / 100;
        jobs.place(setup, free, (count / u64::from(setup.job_servers)).max(1));
        jobs
    }

    /// Ends a quarter of the jobs and starts as many on the servers that are then free.
    pub(super) fn change(&mut self, setup: &Setup) {
        let count = (self.running.len() / 4).max(1);
        for _ in 0..count {
            let place = self.rng.index(self.running.len());
            self.running.swap_remove(place);
        }
        let mut is_free = alloc::vec![true; (setup.gpus / NICS) as usize];
        for &server in self.running.iter().flat_map(|job| &job.servers) {
            is_free[server as usize] = false;
        }
        let free = (0..setup.gpus / NICS).filter(|&server| is_free[server as usize]).collect();
        self.place(setup, free, count as u64);
    }

    fn place(&mut self, setup: &Setup, free: Vec<u32>, count: u64) {
        let mut runs: Vec<Vec<u32>> = Vec::new();
        for server in free {
            let side_by_side = setup.side_by_side as usize;
            match runs.last_mut() {
                // A run of adjacent servers does not cross a boundary between aligned blocks.
                Some(run)
                    if run.len() < side_by_side
                        && run[0] / setup.side_by_side == server / setup.side_by_side =>
                {
                    run.push(server);
                }
                _ => runs.push(alloc::vec![server]),
            }
        }
        self.rng.shuffle(&mut runs);
        let mut servers = runs.into_iter().flatten();
        for _ in 0..count {
            let mut of_job: Vec<u32> = servers.by_ref().take(setup.job_servers as usize).collect();
            if of_job.len() < 2 {
                return;
            }
            // Sorted by position, thus by block, as `weft plan ring` does.
            of_job.sort_unstable();
            let is_planned = !self.rng.chance(setup.unplanned_percent.into(), 100);
            self.running.push(Job { id: self.next_id, servers: of_job, is_planned });
            self.next_id += 1;
        }
    }
}

/// Returns the flows of a job, connection by connection.
pub(super) fn flows(topology: &Topology, job: &Job, collective: Collective) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut connect = |from: u32, to: u32, queue_pairs: usize| {
        for rail in 0..NICS {
            let ports = topology.ports(NodeId(from * NICS + rail));
            let destination = NodeId(to * NICS + rail);
            let count = queue_pairs.max(ports.len());
            flows.extend((0..count).map(|it| Flow { first: ports[it % ports.len()], destination }));
        }
    };
    let servers = &job.servers;
    if is_all_to_all(collective) {
        for &from in servers {
            servers.iter().filter(|&&to| to != from).for_each(|&to| connect(from, to, 1));
        }
    } else {
        for (place, &server) in servers.iter().enumerate() {
            connect(server, servers[(place + 1) % servers.len()], QUEUE_PAIRS);
        }
    }
    flows
}

/// Returns the duration in seconds of a collective of this size on a job of `servers` servers whose slowest flow sends
/// `slowest` bits per second; each connection has `flows` flows.
pub(super) fn seconds(
    collective: Collective,
    servers: usize,
    flows: usize,
    slowest: f64,
    size: ByteCount,
) -> f64 {
    let count = to_f64(servers as u64);
    let bits = 8.0 * to_f64(size.0);
    let connection = to_f64(flows as u64) * slowest;
    if is_all_to_all(collective) {
        // Each GPU has 1/n of its data for each server, over a separate connection.
        bits / count / connection + STEP_SECONDS
    } else {
        // Each of eight rings carries an eighth of a server's data, 2(n-1)/n times.
        let steps = 2.0 * (count - 1.0);
        steps / count * bits / connection + steps * STEP_SECONDS
    }
}

/// Returns `true` for the all-to-all, `false` for the all-reduce; [`Setup::check`] admits no other collective.
pub(super) fn is_all_to_all(collective: Collective) -> bool {
    collective == Collective::AllToAll
}

/// Returns the bus bandwidth of one GPU in bytes per second, as nccl-tests computes it.
pub(super) fn bus_bandwidth(
    collective: Collective,
    servers: usize,
    size: ByteCount,
    seconds: f64,
) -> f64 {
    collective.bus_factor(servers) * to_f64(size.0) / seconds
}
