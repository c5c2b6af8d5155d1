//! The program `weft-dra`: a driver of Kubernetes for dynamic resource allocation (DRA). It publishes the node's RDMA device,
//! that of `weft device serve`, as a ResourceSlice. For each claim that a pod of the node has, it makes a device of the
//! daemon's with the claim's limit of queue pairs, and tells the container runtime by CDI what a container needs to use it.
#![forbid(unsafe_code)]

mod api;
mod cdi;
mod claim;
mod devices;
mod driver;
mod proto;
mod serve;
mod slice;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

/// The name of the driver, in ResourceSlices, device classes and claims.
const DRIVER: &str = "weft.dev";

/// Give pods shares of this node's RDMA device, by dynamic resource allocation
#[derive(Debug, Parser)]
#[command(name = "weft-dra", version)]
struct Args {
    /// The name of the node
    #[arg(long, env = "NODE_NAME")]
    node: String,
    /// The socket of `weft device serve`. Containers get its folder at the same place
    #[arg(long, value_name = "PATH", default_value = "/run/weft-device/device.sock")]
    socket: PathBuf,
    /// The folder on the node with the libraries of `weft run`
    #[arg(long, value_name = "DIR", default_value = "/opt/weft/verbs")]
    libraries: PathBuf,
    /// The folder for descriptions of containers' devices, which the runtime reads. Kubelet does not have claims prepared
    /// again after a reboot, so it must outlive one
    #[arg(long, value_name = "DIR", default_value = "/etc/cdi")]
    cdi: PathBuf,
    /// Kubelet's folder
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet: PathBuf,
    /// Queue pairs of the device, which claims share
    #[arg(long, value_name = "N", default_value_t = 32_000)]
    queue_pairs: u32,
    /// The queue pairs of a claim that names no number
    #[arg(long, value_name = "N", default_value_t = 64)]
    default_queue_pairs: u32,
    /// The host of the API server
    #[arg(long, env = "KUBERNETES_SERVICE_HOST")]
    api_host: String,
    /// The port of the API server
    #[arg(long, env = "KUBERNETES_SERVICE_PORT", default_value_t = 443)]
    api_port: u16,
    /// The folder with the service account's `token` and `ca.crt`
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    account: PathBuf,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-dra: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Args) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("cannot start threads")?.block_on(serve::serve(arguments))
}
