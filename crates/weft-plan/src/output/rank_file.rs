//! The order of servers in Open MPI's rank file and host file.

use alloc::format;
use alloc::string::String;

use crate::cluster::{Cluster, ServerId};

/// Returns Open MPI's rank file (`mpirun --rankfile`, `--map-by rankfile:file=`): a process for each GPU,
/// servers in order, ranks of a server adjacent.
pub fn rank_file(cluster: &Cluster, order: &[ServerId]) -> String {
    let gpus = cluster.machine().gpus().len();
    let mut text = String::new();
    for (position, server) in order.iter().enumerate() {
        let name = &cluster.servers()[server.index()].name;
        for slot in 0..gpus {
            text.push_str(&format!("rank {}={name} slot={slot}\n", position * gpus + slot));
        }
    }
    text
}

/// Returns a host file (`mpirun --hostfile`; other launchers read it without `slots=`): servers in order, each
/// with one slot for each GPU.
pub fn host_file(cluster: &Cluster, order: &[ServerId]) -> String {
    let gpus = cluster.machine().gpus().len();
    let line =
        |server: &ServerId| format!("{} slots={gpus}\n", cluster.servers()[server.index()].name);
    order.iter().map(line).collect()
}
