//! `weft route explain`: prints the path of a flow, and its reasons.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use weft_route::{Explanation, Fabric, Flow, Start};

use super::source::Source;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft route explain '10.1.0.2:49152>10.2.0.2:4791/udp' --lab lab
  sudo weft route explain '10.1.0.2>10.2.0.2' --lab lab           RoCE, from port 49152
  sudo weft route explain '[fd00:1::2]:49152>[fd00:2::2]:4791/udp' --lab lab
  weft route explain '10.1.0.2:5000>10.2.0.2:80/tcp' --installed installed.toml --json

Each router's line has its route, the number that the packet hashes to, and each next hop's share of all numbers; the \
one that is taken is marked.")]
pub(super) struct Explain {
    /// The flow: SOURCE:PORT>DESTINATION:PORT/udp or /tcp; IPv6 addresses in brackets, a flow label as /udp/0x1234
    flow: Flow,
    /// The router at which it begins, for a host that has several cables
    #[arg(long, value_name = "ROUTER")]
    at: Option<String>,
    #[command(flatten)]
    source: Source,
}

pub(super) fn run(arguments: &Explain, output: Output) -> Result<ExitCode> {
    let fabric = arguments.source.fabric()?;
    let start = start(&fabric, arguments)?;
    let (_, explanation) = fabric.explain(start, &arguments.flow);
    let arrives = explanation.arrives;
    output.value(&explanation, || text(&arguments.flow, &explanation))?;
    Ok(if arrives { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the start of the flow: the router that was named, or the only link of its host.
fn start(fabric: &Fabric, arguments: &Explain) -> Result<Start> {
    if let Some(name) = &arguments.at {
        let Some(router) = fabric.find(name) else { bail!("no router {name:?} in these tables") };
        return Ok(Start::Router(router));
    }
    let source = arguments.flow.src();
    let links = fabric.host(source).map(|host| fabric.links_of_host(host)).unwrap_or_default();
    match links {
        [only] => Ok(Start::Link(*only)),
        [] => bail!(
            "no port of these tables leads to {source}: name the router it comes in by, --at ROUTER"
        ),
        several => {
            let names: Vec<String> =
                several.iter().map(|&link| fabric.name(link).to_string()).collect();
            bail!("the source has several cables ({}): --at ROUTER", names.join(", "))
        }
    }
}

fn text(flow: &Flow, explanation: &Explanation) -> String {
    let mut text = format!("{flow}\n");
    let mut line = |it: String| writeln!(text, "{it}").expect("writing to a string cannot fail");
    for hop in &explanation.hops {
        let prefix = hop.prefix.map_or_else(|| "no route".into(), |prefix| prefix.to_string());
        let hash = hop.hash.map(|hash| format!(", hash {hash}")).unwrap_or_default();
        let kind = if hop.kind.is_empty() { &hop.group } else { hop.kind };
        line(format!("  {:<12} {prefix:<18} {kind}{hash}", hop.router));
        for share in &hop.members {
            let mark = if share.taken { "→" } else { " " };
            let percent = f64::from(share.per_million) / 10_000.0;
            line(format!("    {mark} {:<10} {percent:>6.2} %  {}", share.port, share.to));
        }
    }
    line(format!("  {}", explanation.outcome));
    text
}
