//! `weft lab`: builds real fabrics of network namespaces.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::json;
use weft_lab::{Direction, Impairment, Lab, LabSpec, Probability, Routing};
use weft_units::{BitRate, ByteCount};

use weft_report::terminal::{Output, render};

mod ports;
mod rates;
mod run;
mod status;

/// Build a real leaf–spine fabric on this machine: network namespaces, kernel ECMP, faults
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  sudo weft lab up --leaves 2 --spines 4 --hosts 1   two hosts, four disjoint paths
  sudo weft lab status                               addresses, link conditions, counters
  sudo weft lab exec h1 -- iperf3 -s                 a program on a host
  sudo weft lab exec h0 -- iperf3 -c 10.2.0.2        another one, across the fabric
  sudo weft lab set l0-s1 --loss 1%                  one path loses packets
  sudo weft lab set l0-s2 --silent                   another drops every packet silently
  sudo weft lab run experiments/hopper-fig6.toml     a scenario of the simulator on real packets
  sudo weft lab down

Hosts are h0, h1, …; leaves l0, …; spines s0, …; a link is named after its ends, as l0-s1."
)]
pub(crate) struct Args {
    /// The lab's name
    #[arg(long, short, global = true, default_value = "lab")]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build a lab; it stays until `weft lab down`
    #[command(after_help = "\
Examples:
  sudo weft lab up                                  two hosts behind two leaves, four spines
  sudo weft lab up --leaves 4 --spines 8 --hosts 2
  sudo weft lab up --spines 6 --hosts 4 --rate 100Mbps --spine-rate 4=10Mbps,5=10Mbps
  sudo weft lab up --routing frr                    routers that speak BGP
  sudo weft lab up --ipv6                           IPv6 beside IPv4
  sudo weft lab up --name other --spines 2          beside the first one")]
    Up(Up),
    /// Run a scenario on real packets, beside the simulator: the same network, flows and engine
    #[command(after_help = "\
Examples:
  sudo weft lab run experiments/hopper-fig6.toml                       its variants, one seed
  sudo weft lab run experiments/hopper-fig6.toml --seeds 5 --json > result.json
  sudo weft lab run scenarios/asymmetry.toml --balancers hopper,flowbender,single

A lab of the scenario's leaf–spine network comes up, and goes when the run ends or is interrupted. Its
machine carries far less than the network would, so the scenario is run in slow motion, in both worlds:
with --slower 100, 10 Gb/s are 100 Mb/s, and 1 us is 100 us. Sizes stay, and so do slowdowns, shares and
loads. The simulator's switches must do ecmp, as a lab's do. Needs root.")]
    Run(run::RunArgs),
    /// Remove a lab and every process in it
    #[command(after_help = "\
Examples:
  sudo weft lab down
  sudo weft lab down --all    every lab, also those that a crash has left")]
    Down {
        /// Every lab on this machine
        #[arg(long)]
        all: bool,
    },
    /// Show hosts and links: addresses, conditions, packets carried and lost
    #[command(after_help = "\
Examples:
  sudo weft lab status
  sudo weft lab status --json | jq '.links[] | select(.dropped > 0)'")]
    Status,
    /// Run a program on a host (or a router); its exit code becomes this command's
    #[command(after_help = "\
Examples:
  sudo weft lab exec h0 -- ping -c 3 10.2.0.2
  sudo weft lab exec l0 -- ip route")]
    Exec {
        /// The node: h0, l1, s3
        node: String,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Change the impairment of a link while traffic runs; options that are not given keep their value
    #[command(after_help = "\
Examples:
  sudo weft lab set l0-s1 --loss 1%               both directions
  sudo weft lab set l0-s1 --from s1 --loss 1%     only packets that leave s1
  sudo weft lab set l0-s2 --rate 1Gbps
  sudo weft lab set l0-s3 --silent                a black hole: both ports stay up
  sudo weft lab set l0-s3 --down                  ports go down; routers notice
  sudo weft lab set l0-s3 --clear                 healthy again")]
    Set(Set),
    /// Take a link down and up again a number of times
    #[command(after_help = "\
Example:
  sudo weft lab flap l0-s1 --down 50ms --up 200ms --times 20")]
    Flap {
        /// The link, such as l0-s1
        link: String,
        /// Time that it is down in each cycle
        #[arg(long, default_value = "100ms")]
        down: weft_units::Duration,
        /// Time that it is up in each cycle
        #[arg(long, default_value = "100ms")]
        up: weft_units::Duration,
        /// Number of cycles
        #[arg(long, default_value_t = 10)]
        times: u32,
    },
    /// Route around links that are down, as a routing protocol would
    #[command(after_help = "\
Example:
  sudo weft lab set l1-s0 --down && sudo weft lab converge")]
    Converge,
    /// Print the source ports that take each spine
    #[command(after_help = "\
Examples:
  weft lab ports h0 h1                four ports for each spine
  weft lab ports h0 h1 --spine 2 --count 16
  weft lab ports h0 h1 --of 49152     the spine of one port")]
    Ports(ports::Ports),
}

#[derive(Debug, clap::Args)]
struct Up {
    /// Leaf switches
    #[arg(long, default_value_t = 2)]
    leaves: usize,
    /// Spine switches: disjoint paths between two leaves
    #[arg(long, default_value_t = 4)]
    spines: usize,
    /// Hosts behind each leaf
    #[arg(long, default_value_t = 1)]
    hosts: usize,
    /// The seed from which the routers' hash seeds are derived
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Largest IP packet, bytes
    #[arg(long, default_value_t = 1500)]
    mtu: u16,
    /// Put single packets on every link instead of large segments: slower, and closer to a cable
    #[arg(long)]
    no_offloads: bool,
    /// The source of routes: `static`, or `frr` for BGP
    #[arg(long, value_name = "static|frr", default_value = "static", value_parser = routing)]
    routing: Routing,
    /// Give nodes IPv6 addresses and routes too
    #[arg(long)]
    ipv6: bool,
    #[command(flatten)]
    rates: rates::Rates,
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The link, such as l0-s1
    link: String,
    /// Only packets that leave this end
    #[arg(long)]
    from: Option<String>,
    /// Share of packets lost at random, such as 1%
    #[arg(long)]
    loss: Option<Probability>,
    /// Share of ECN-capable packets marked at random
    #[arg(long)]
    mark: Option<Probability>,
    /// Rate limit, such as 1Gbps
    #[arg(long)]
    rate: Option<BitRate>,
    /// Bytes that may wait for the rate limit [default: 5 ms at that rate]
    #[arg(long)]
    queue: Option<ByteCount>,
    /// Backlog at the rate limit beyond which ECN-capable packets are marked, such as 30KB
    #[arg(long)]
    mark_above: Option<ByteCount>,
    /// Drop every packet silently
    #[arg(long)]
    silent: bool,
    /// Take the port down, so that both ends detect it
    #[arg(long, conflicts_with_all = ["from", "up"])]
    down: bool,
    /// Bring the port up again
    #[arg(long, conflicts_with = "from")]
    up: bool,
    /// Remove the impairment before the other options apply
    #[arg(long)]
    clear: bool,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let name = arguments.name.as_str();
    match arguments.verb {
        Verb::Up(size) => up(name, &size, output)?,
        Verb::Run(arguments) => run::run(&arguments, output)?,
        Verb::Down { all } => down(name, all, output)?,
        Verb::Status => status::show(&Lab::open(name)?, output)?,
        Verb::Exec { node, command } => return exec(&Lab::open(name)?, &node, &command),
        Verb::Set(change) => set(&mut Lab::open(name)?, &change, output)?,
        Verb::Flap { link, down, up, times } => {
            let std = |span: weft_units::Duration| Duration::from_nanos(span.as_nanos());
            Lab::open(name)?.flap(&link, std(down), std(up), times)?;
        }
        Verb::Converge => Lab::open(name)?.converge()?,
        Verb::Ports(question) => ports::show(&Lab::open(name)?, &question, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn routing(text: &str) -> Result<Routing, String> {
    match text {
        "static" => Ok(Routing::Static),
        "frr" => Ok(Routing::Frr),
        other => Err(format!("{other:?} is neither `static` nor `frr`")),
    }
}

fn up(name: &str, size: &Up, output: Output) -> Result<()> {
    let spec = LabSpec {
        leaves: size.leaves,
        spines: size.spines,
        hosts_per_leaf: size.hosts,
        seed: size.seed,
        mtu: size.mtu,
        offloads: !size.no_offloads,
        routing: size.routing,
        ipv6: size.ipv6,
        ..LabSpec::named(name)
    };
    size.rates.check(&spec)?;
    let mut lab = Lab::up(&spec)?;
    size.rates.apply(&mut lab)?;
    lab.detach()?;
    output.value(&status::describe(&lab)?, || {
        let fabric = lab.fabric();
        let paths = match fabric.leaves() {
            1 => String::from("one leaf"),
            leaves => format!("{leaves} leaves, {} disjoint paths between them", fabric.spines()),
        };
        format!("lab {name} is up: {paths}\n\n{}", render(&status::hosts(fabric)))
    })
}

fn down(name: &str, all: bool, output: Output) -> Result<()> {
    let gone = if all {
        Lab::down_all()?
    } else if Lab::down(name)? {
        vec![name.to_owned()]
    } else {
        // The error lists the labs there are.
        return Lab::open(name).map(drop).map_err(Into::into);
    };
    output.value(&json!({ "down": gone }), || match gone.as_slice() {
        [] => "no lab was up".into(),
        names => format!("removed {}", names.join(", ")),
    })
}

fn exec(lab: &Lab, node: &str, command: &[String]) -> Result<ExitCode> {
    let [program, arguments @ ..] = command else {
        bail!("which program? `weft lab exec {node} -- PROGRAM ARGUMENTS`");
    };
    let mut child = lab.spawn(node, Command::new(program).args(arguments))?;
    let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
    // A program killed by a signal has no exit code of its own.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn set(lab: &mut Lab, change: &Set, output: Output) -> Result<()> {
    let link = lab.fabric().link(&change.link)?;
    let cable = &lab.fabric().links[link];
    let end = |port: &weft_lab::Port| lab.fabric().nodes[port.node].name.clone();
    let (near, far) = (end(&cable.near), end(&cable.far));
    if let Some(from) = change.from.as_ref().filter(|from| **from != near && **from != far) {
        bail!("--from {from}: link {} has the ends {near} and {far}", cable.name);
    }
    for end in [near, far.clone()] {
        if change.from.as_ref().is_some_and(|from| *from != end) {
            continue;
        }
        let state = lab.links()[link];
        let old = if end == far { state.backward } else { state.forward };
        let new = changed(&old, change);
        if new != old {
            lab.impair(&change.link, Direction::From(end), &new)?;
        }
    }
    let state = lab.links()[link];
    if change.down && !state.down {
        lab.set_down(&change.link)?;
    } else if state.down && (change.up || change.clear) {
        lab.set_up(&change.link)?;
    }
    output.value(&status::describe_link(lab, link), || status::condition_line(lab, link))
}

fn changed(old: &Impairment, change: &Set) -> Impairment {
    let base = if change.clear { Impairment::default() } else { *old };
    Impairment {
        loss: change.loss.unwrap_or(base.loss),
        mark: change.mark.unwrap_or(base.mark),
        rate: change.rate.or(base.rate),
        queue: change.queue.or(base.queue),
        mark_above: change.mark_above.or(base.mark_above),
        black_hole: change.silent || base.black_hole,
    }
}
