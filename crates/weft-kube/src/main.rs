//! The program `weft-kube`: a controller of a Kubernetes cluster.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use weft_etcd::{EtcdSettings, EtcdTls};
use weft_kube::{Controller, Election, Fleet, Owner, Readers, Settings};
use weft_vpc::Prefix;

/// Writes a Kubernetes cluster's networks and network policies into the configuration of a fleet of Weft in etcd.
#[derive(Debug, Parser)]
#[command(name = "weft-kube", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the controller
    Run(Box<Run>),
    /// Print the custom resource definitions
    Crd,
}

#[derive(Debug, Args)]
struct Run {
    /// The cluster's name, by which the fleet's objects show their owner: 1 to 12 small letters, digits and hyphens
    #[arg(long, env = "WEFT_KUBE_CLUSTER")]
    cluster: String,
    /// The number of the pods' network, in which network policies apply; without it they are not translated
    #[arg(long, env = "WEFT_KUBE_POD_NETWORK")]
    pod_network: Option<u32>,
    /// The nodes' own addresses in the pods' network, which reach their pods whatever policies say
    #[arg(long, env = "WEFT_KUBE_NODE_ADDRESSES", value_delimiter = ',')]
    node_addresses: Vec<Prefix>,
    /// The client ports of etcd's members
    #[arg(long, env = "WEFT_KUBE_ETCD", value_delimiter = ',', required = true)]
    etcd: Vec<String>,
    /// The certificates of the authorities of etcd's members
    #[arg(long, env = "WEFT_KUBE_ETCD_CA")]
    etcd_ca: Option<PathBuf>,
    /// The certificate by which etcd knows the controller
    #[arg(long, env = "WEFT_KUBE_ETCD_CERTIFICATE", requires = "etcd_ca")]
    etcd_certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, env = "WEFT_KUBE_ETCD_KEY", requires = "etcd_ca")]
    etcd_key: Option<PathBuf>,
    /// The first part of the fleet's keys
    #[arg(long, env = "WEFT_KUBE_PREFIX", default_value = "/weft")]
    prefix: String,
    /// The namespace of the Lease by which controllers elect a leader
    #[arg(long, env = "WEFT_KUBE_NAMESPACE", default_value = "kube-system")]
    namespace: String,
    /// The time after which a leader that is silent is replaced, whole seconds
    #[arg(long, env = "WEFT_KUBE_LEASE_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=3600))]
    lease_seconds: u64,
    /// The address and port of /healthz, /readyz and /metrics; without it there is no page
    #[arg(long, env = "WEFT_KUBE_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A file with a token (`weft adm token FILE`), which other hosts show to read /metrics; the other two need none
    #[arg(long, env = "WEFT_KUBE_TOKEN_FILE", value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Let any client that reaches the address read /metrics, without the token
    #[arg(long, env = "WEFT_KUBE_ANYONE_MAY_READ", requires = "listen")]
    anyone_may_read: bool,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let done = match Arguments::parse().verb {
        Verb::Run(run) => run.run(),
        Verb::Crd => print(&weft_kube::crd_yaml()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-kube: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

impl Run {
    fn run(self: Box<Self>) -> Result<()> {
        let owner = Owner::new(&self.cluster)?;
        let etcd = self.etcd();
        etcd.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stopping, stop) = watch::channel(false);
        stop_on_signals(stopping)?;
        runtime.block_on(async {
            let page = match self.listen {
                Some(address) => {
                    let readers =
                        Readers::at(address, self.token_file.as_deref(), self.anyone_may_read)?;
                    Some((listen(address).await?, readers))
                }
                None => None,
            };
            let client = Client::try_default().await.context("no configuration of a cluster")?;
            let fleet = Fleet::new(weft_etcd::Client::new(&etcd)?, &self.prefix, owner.clone());
            let holder = holder()?;
            let leases = Api::namespaced(client.clone(), &self.namespace);
            let (lease, span) =
                (format!("weft-{}", self.cluster), Duration::from_secs(self.lease_seconds));
            let election = Election::new(leases, &lease, &holder, span);
            let (term, terms) = watch::channel(None);
            let elected = tokio::spawn(election.run(term));
            let node_addresses = self.node_addresses.clone();
            let settings = Settings { owner, pod_network: self.pod_network, node_addresses };
            let controller = Controller::new(client, settings, fleet, &holder);
            if let Some((page, readers)) = page {
                tokio::spawn(controller.health().serve(page, readers));
            }
            controller.run(terms, stop).await;
            elected.await.context("the election ended")
        })
    }

    fn etcd(&self) -> EtcdSettings {
        let endpoints: Vec<_> = self.etcd.iter().map(String::as_str).collect();
        let tls = self.etcd_ca.clone().map(|ca| EtcdTls {
            ca,
            certificate: self.etcd_certificate.clone(),
            key: self.etcd_key.clone(),
            name: None,
        });
        EtcdSettings { tls, ..EtcdSettings::plain(&endpoints) }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let page = bound.with_context(|| format!("cannot listen at {address} (--listen)"))?;
    tracing::info!(address = %page.local_addr()?, "the page is served");
    Ok(page)
}

/// Returns a name that no other process has: a pod that starts again is another holder.
fn holder() -> Result<String> {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "weft-kube".into());
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).context("no random numbers")?;
    Ok(format!("{host}-{:08x}", u32::from_le_bytes(bytes)))
}

fn stop_on_signals(stopping: watch::Sender<bool>) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        if signals.forever().next().is_some() {
            stopping.send_replace(true);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
