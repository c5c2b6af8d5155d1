//! `weft route agent`: samples the packets of Linux routers, and sends sFlow.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use serde_json::json;
use weft_lab::Lab;
use weft_steer::agent::{Agent as Sampler, AgentPlan, Watched};
use weft_trial::routers_of;
use weft_units::Duration;

use crate::interrupt::until_interrupted;
use crate::log::LogOptions;
use crate::otlp::CountedSince;
use crate::supervision::Supervision;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft route agent --address 10.0.0.1 --collector 10.9.0.1:6343    on a router
  sudo weft route agent --address 10.0.0.1 --source 10.9.0.11 --collector 10.9.0.1:6343
  sudo weft route agent --lab lab                                       all routers of a lab
  sudo weft route agent --lab lab --rate 8 --counters 200ms             more, and sooner

Needs CAP_NET_RAW. The kernel samples packets in both directions; a packet that is not sampled costs a few instructions. \
Any collector of sFlow version 5 understands the datagrams. The marks that ports' queues count (`tc -s qdisc`) are in a \
record of Weft's own, which other collectors skip.")]
pub(super) struct Agent {
    /// The router's own address in sFlow
    #[arg(long, value_name = "ADDRESS", required_unless_present = "lab")]
    address: Option<IpAddr>,
    /// Sample all routers of this lab
    #[arg(long, value_name = "NAME", visible_alias = "from-lab", conflicts_with = "address")]
    lab: Option<String>,
    /// The address that sFlow is sent to; several addresses if several controllers share a store
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:6343",
        value_delimiter = ','
    )]
    collector: Vec<SocketAddr>,
    /// The address of this host that datagrams come from; the controller accepts them from the router's `agent` alone, or
    /// from its `sources` [default: --address]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Sample one of this number of packets
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Time between two reports of the counters
    #[arg(long, value_name = "INTERVAL", default_value = "2s")]
    counters: Duration,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) fn run(arguments: &Agent, output: Output) -> Result<ExitCode> {
    if arguments.counters < Duration::from_millis(50) {
        bail!("--counters {} is too often: 50ms at least", arguments.counters);
    }
    let routers = match (&arguments.lab, arguments.address) {
        (Some(name), _) => of_lab(&Lab::open(name)?)?,
        (None, Some(address)) => vec![Watched { address, namespace: None }],
        (None, None) => bail!("which router? --address ADDRESS or --lab NAME"),
    };
    let supervision = Supervision::start()?;
    supervision.check_sockets()?;
    let telemetry = arguments.log.start("weft-route-agent")?;
    // It serves no metrics; its events are sent.
    telemetry.begin(CountedSince::Start, Box::new(|| None))?;
    let count = routers.len();
    let mut agent = Sampler::open(AgentPlan {
        routers,
        collectors: arguments.collector.clone(),
        source: arguments.source.or(arguments.address),
        rate: arguments.rate,
        flush: std::time::Duration::from_millis(100),
        counters: std::time::Duration::from_nanos(arguments.counters.as_nanos()),
    })?;
    let stop = until_interrupted()?;
    let (collectors, rate) = (&arguments.collector, arguments.rate);
    let collector: Vec<String> = collectors.iter().map(ToString::to_string).collect();
    let collector = collector.join(", ");
    let status = format!("sampling 1 packet in {rate} of {count} routers, sending to {collector}");
    output.value(&json!({ "routers": count, "collectors": collectors, "rate": rate }), || {
        status.clone()
    })?;
    let run = agent.run(|| {
        supervision.on_turn(|| status.clone());
        stop.load(Ordering::Relaxed)
    });
    supervision.on_stop();
    run?;
    let counters = agent.counters();
    tracing::info!(
        samples = counters.samples,
        datagrams = counters.datagrams,
        dropped = counters.dropped,
        unsent = counters.unsent,
        "the agent ends"
    );
    telemetry.stop();
    Ok(ExitCode::SUCCESS)
}

fn of_lab(lab: &Lab) -> Result<Vec<Watched>> {
    let watched = routers_of(lab).routers.into_iter().map(|router| {
        let namespace = Some(lab.fabric().node(&router.name)?.namespace.clone());
        Ok(Watched { address: router.agent, namespace })
    });
    watched.collect()
}
