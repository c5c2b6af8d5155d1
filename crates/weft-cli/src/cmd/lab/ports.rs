//! Source ports that take each spine.

use anyhow::{Result, bail};
use weft_lab::{Flow, Lab, Paths};
use weft_report::{Cell, Column, Table};

use weft_report::terminal::Output;

/// The first dynamic port (RFC 6335, section 6). Source ports of RoCE begin there too.
const FIRST_DYNAMIC_PORT: u16 = 49_152;
/// The protocols' numbers, assigned by IANA.
const UDP: u8 = 17;
const TCP: u8 = 6;

/// Options of `weft lab ports`.
#[derive(Debug, clap::Args)]
pub(super) struct Ports {
    /// Sending host
    source: String,
    /// Receiving host
    destination: String,
    /// Only ports that take this spine, by number
    #[arg(long)]
    spine: Option<usize>,
    /// Number of ports for each spine
    #[arg(long, default_value_t = 4)]
    count: usize,
    /// Only this source port
    #[arg(long, conflicts_with_all = ["spine", "count"])]
    of: Option<u16>,
    /// Destination port
    #[arg(long, default_value_t = 4791)]
    to_port: u16,
    /// TCP instead of UDP
    #[arg(long)]
    tcp: bool,
}

pub(super) fn show(lab: &Lab, question: &Ports, output: Output) -> Result<()> {
    let fabric = lab.fabric();
    let flow = Flow {
        source: fabric.host(&question.source)?,
        destination: fabric.host(&question.destination)?,
        protocol: if question.tcp { TCP } else { UDP },
        source_port: question.of.unwrap_or(FIRST_DYNAMIC_PORT),
        destination_port: question.to_port,
    };
    if fabric.leaf_of(flow.source) == fabric.leaf_of(flow.destination) {
        bail!(
            "{} and {} are behind the same leaf; no spine between them",
            question.source,
            question.destination
        );
    }
    let paths = lab.paths()?;
    let mut table =
        Table::new(vec![Column::text("spine", "spine"), Column::text("source ports", "ports")]);
    let row = |spine: usize, ports: Vec<u16>| {
        let text: Vec<String> = ports.iter().map(u16::to_string).collect();
        vec![Cell::from(format!("s{spine}")), Cell::new(text.join(" "), ports)]
    };
    if let Some(port) = question.of {
        match paths.spine_of(&flow) {
            Some(spine) => table.push(row(spine, vec![port])),
            None => bail!("every spine between the two leaves is down"),
        }
        return output.table(&table);
    }
    let all = 0..fabric.spines();
    let spines = question.spine.map_or(all, |spine| spine..spine + 1);
    if spines.end > fabric.spines() {
        bail!("no spine {}; there are {}", spines.start, fabric.spines());
    }
    for spine in spines {
        table.push(row(spine, ports_over(&paths, &flow, spine, question.count)));
    }
    output.table(&table)
}

/// Returns the first `count` dynamic source ports that take `flow` over `spine`.
fn ports_over(paths: &Paths, flow: &Flow, spine: usize, count: usize) -> Vec<u16> {
    paths.ports_over(flow, spine, FIRST_DYNAMIC_PORT).take(count).collect()
}
