//! The reader and writer of topology files in the format of the ns-3 RDMA simulators (HPCC, ConWeave):
//!
//! ```text
//! <nodes> <switches> <links>
//! <number of each switch>
//! <node> <node> <rate> <delay> <error rate>     one line for each link
//! ```
//!
//! SimAI's variant has another first line, and lists NVSwitches before the others; they are switches here:
//!
//! ```text
//! <nodes> <GPUs per server> <NVSwitches> <switches> <links> <GPU type>
//! ```
//!
//! Nodes are numbered from 0 in any order; nodes not listed as switches are hosts. Text after the last
//! link is ignored. The reader keeps the file's numbers as [labels](Topology::label).

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;
use core::str::FromStr;

use weft_units::{BitRate, Duration};

use crate::graph::{NodeId, Topology, TopologyBuilder, TopologyError};

/// An error in a topology file. Lines count from 1; nodes have the file's numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ns3Error {
    /// A field has the wrong type or value.
    #[error("line {line}: found {found:?}, expected {expected}")]
    Field {
        /// The line.
        line: usize,
        /// The field's text, at most its first 40 characters.
        found: String,
        /// The expected type or value.
        expected: &'static str,
    },
    /// A line has too few or too many fields.
    #[error("line {line}: found {found} fields, expected {expected}")]
    FieldCount {
        /// The line.
        line: usize,
        /// Number of fields found.
        found: usize,
        /// The expected fields.
        expected: &'static str,
    },
    /// The file ends before all the switches or links that its header announces.
    #[error("line {line}: the file ends with {found} {what}, expected {expected}")]
    Truncated {
        /// The last line.
        line: usize,
        /// "switches" or "links".
        what: &'static str,
        /// Number found.
        found: usize,
        /// Number that the header announces.
        expected: usize,
    },
    /// The file has more switches or links than its header announces.
    #[error("line {line}: found more {what} than the {expected} of the header")]
    Excess {
        /// The line of the first surplus switch or link.
        line: usize,
        /// "switches" or "links".
        what: &'static str,
        /// Number that the header announces.
        expected: usize,
    },
    /// A node number is not below the header's count.
    #[error("line {line}: found node {found}, expected a number below {nodes}")]
    UnknownNode {
        /// The line.
        line: usize,
        /// The number.
        found: u32,
        /// The header's count.
        nodes: u32,
    },
    /// A switch is listed twice.
    #[error("line {line}: found switch {switch} again, expected each switch once")]
    DuplicateSwitch {
        /// The line on which it is listed again.
        line: usize,
        /// The switch.
        switch: u32,
    },
    /// Two links join the same nodes; the format's simulators would keep only the last.
    #[error(
        "line {line}: found a second link of {a} and {b}, expected one (first on line {first})"
    )]
    DuplicateLink {
        /// The line of the second link.
        line: usize,
        /// The line of the first link.
        first: usize,
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
    },
    /// A link joins a node with itself, or two hosts.
    #[error("line {line}: found a link of {a} and {b}, expected two nodes, at least one a switch")]
    BadLink {
        /// The line.
        line: usize,
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
    },
    /// A host has no link, or a switch reaches no host.
    #[error("node {node} is not connected, expected every host and switch to be")]
    Unconnected {
        /// The node.
        node: u32,
    },
}

/// The error for a topology that the format cannot express: two nodes are joined by several cables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nodes {a} and {b} are joined by several cables; the ns-3 format has one for each pair")]
pub struct UnwritableError {
    /// One end.
    pub a: u32,
    /// The other end.
    pub b: u32,
}

/// Reads a topology file. Hosts are numbered in the order of the file's numbers, switches in the
/// order the file lists them, ports in the order of links.
///
/// # Errors
/// Returns the first error with its line. Memory use grows with the text, and with the header's number of nodes
/// only up to [`TopologyBuilder::MAX_NODES`].
pub fn read_ns3(text: &str) -> Result<Topology, Ns3Error> {
    let mut lines = Lines::new(text);
    let header = Header::read(&mut lines)?;
    let numbering = Numbering::read(&mut lines, &header)?;
    let hosts = header.nodes - header.switches;
    let mut network = TopologyBuilder::new(hosts).expect("the header is within the limits");
    let _ = network.add_switches(header.switches).expect("the header is within the limits");
    let mut seen = BTreeMap::new();
    for found in 0..header.links as usize {
        let expected = header.links as usize;
        let Some((line, fields)) = lines.next() else {
            return Err(Ns3Error::Truncated { line: lines.last, what: "links", found, expected });
        };
        read_link(line, &fields, &numbering, &mut seen, &mut network)?;
    }
    let is_link = |fields: &[&str]| {
        fields.len() > 2 && fields[..2].iter().all(|field| field.parse::<u32>().is_ok())
    };
    if let Some((line, _)) = lines.find(|(_, fields)| is_link(fields)) {
        let expected = header.links as usize;
        return Err(Ns3Error::Excess { line, what: "links", expected });
    }
    let labels = numbering.labels;
    network.set_labels(labels.clone());
    network.build().map_err(|error| match error {
        TopologyError::UnconnectedHost { host: node }
        | TopologyError::UnconnectedSwitch { switch: node } => {
            Ns3Error::Unconnected { node: labels[node as usize] }
        }
        other => unreachable!("counts and links were checked line by line: {other}"),
    })
}

/// Returns the topology as a file that [`read_ns3`] and the ns-3 simulators read, with the nodes' labels.
///
/// # Errors
/// Returns [`UnwritableError`] if several cables join the same two nodes.
pub fn write_ns3(topology: &Topology) -> Result<String, UnwritableError> {
    let mut out = String::new();
    let (nodes, switches, links) = (topology.nodes(), topology.switches(), topology.links() / 2);
    let listed: Vec<_> =
        topology.switch_ids().map(|switch| alloc::format!("{}", topology.label(switch))).collect();
    let mut seen = BTreeMap::new();
    writeln!(out, "{nodes} {switches} {links}").expect(INFALLIBLE);
    writeln!(out, "{}", listed.join(" ")).expect(INFALLIBLE);
    for forward in topology.link_ids().step_by(2) {
        let link = topology.link(forward);
        let (a, b) = (topology.label(link.from), topology.label(link.to));
        if seen.insert((a.min(b), a.max(b)), ()).is_some() {
            return Err(UnwritableError { a, b });
        }
        let (rate, delay) = (link.rate, link.propagation.as_nanos());
        let error_rate = topology.error_rate(forward);
        writeln!(out, "{a} {b} {rate} {delay}ns {error_rate}").expect(INFALLIBLE);
    }
    Ok(out)
}

const INFALLIBLE: &str = "writing to a string cannot fail";

/// An iterator over the lines that are not blank, as line number and fields.
struct Lines<'a> {
    rest: core::iter::Enumerate<core::str::Lines<'a>>,
    last: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.lines().enumerate(), last: 1 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, Vec<&'a str>);

    fn next(&mut self) -> Option<Self::Item> {
        for (index, line) in self.rest.by_ref() {
            self.last = index + 1;
            let fields: Vec<_> = line.split_whitespace().collect();
            if !fields.is_empty() {
                return Some((self.last, fields));
            }
        }
        None
    }
}

struct Header {
    nodes: u32,
    switches: u32,
    links: u32,
}

impl Header {
    fn read(lines: &mut Lines<'_>) -> Result<Self, Ns3Error> {
        let expected = "<nodes> <switches> <links>";
        let Some((line, fields)) = lines.next() else {
            return Err(Ns3Error::FieldCount { line: 1, found: 0, expected });
        };
        let (nodes, nvswitches, switches, links) = match fields[..] {
            [nodes, switches, links] => (nodes, "0", switches, links),
            [nodes, _, nvswitches, switches, links, _] => (nodes, nvswitches, switches, links),
            _ => return Err(Ns3Error::FieldCount { line, found: fields.len(), expected }),
        };
        let nvswitch_count: u32 = parse(line, nvswitches, "a number of NVSwitches")?;
        let switch_count: u32 = parse(line, switches, "a number of switches")?;
        let header = Self {
            nodes: parse(line, nodes, "a number of nodes")?,
            switches: switch_count.saturating_add(nvswitch_count),
            links: parse(line, links, "a number of links")?,
        };
        let unless = |holds: bool, found, expected| {
            if holds { Ok(()) } else { Err(field(line, found, expected)) }
        };
        unless(header.nodes <= TopologyBuilder::MAX_NODES, nodes, "at most 2097152 nodes")?;
        unless(header.links <= TopologyBuilder::MAX_CABLES, links, "at most 4194304 links")?;
        unless(header.switches > 0, switches, "at least 1 switch")?;
        unless(header.switches < header.nodes, switches, "fewer switches than nodes")?;
        Ok(header)
    }
}

/// A mapping between the file's node numbers and [`NodeId`]s.
struct Numbering {
    /// The file's number of each node, by [`NodeId`].
    labels: Vec<u32>,
    /// The [`NodeId`] of each node, by the file's number.
    ids: Vec<NodeId>,
    hosts: u32,
}

impl Numbering {
    fn read(lines: &mut Lines<'_>, header: &Header) -> Result<Self, Ns3Error> {
        let (nodes, expected) = (header.nodes, header.switches as usize);
        let mut is_switch = vec![false; nodes as usize];
        let mut switches = Vec::new();
        while switches.len() < expected {
            let Some((line, fields)) = lines.next() else {
                let (found, what) = (switches.len(), "switches");
                return Err(Ns3Error::Truncated { line: lines.last, what, found, expected });
            };
            for text in fields {
                let switch: u32 = parse(line, text, "the number of a switch")?;
                if switches.len() == expected {
                    return Err(Ns3Error::Excess { line, what: "switches", expected });
                }
                match is_switch.get_mut(switch as usize) {
                    None => return Err(Ns3Error::UnknownNode { line, found: switch, nodes }),
                    Some(true) => return Err(Ns3Error::DuplicateSwitch { line, switch }),
                    Some(unlisted) => *unlisted = true,
                }
                switches.push(switch);
            }
        }
        let hosts = (0..nodes).filter(|&label| !is_switch[label as usize]);
        let labels: Vec<u32> = hosts.chain(switches).collect();
        let mut ids = vec![NodeId(0); nodes as usize];
        for (id, &label) in (0..).map(NodeId).zip(&labels) {
            ids[label as usize] = id;
        }
        Ok(Self { labels, ids, hosts: nodes - header.switches })
    }

    fn id(&self, line: usize, text: &str) -> Result<NodeId, Ns3Error> {
        let found: u32 = parse(line, text, "the number of a node")?;
        let nodes = crate::graph::narrow(self.ids.len());
        self.ids.get(found as usize).copied().ok_or(Ns3Error::UnknownNode { line, found, nodes })
    }
}

fn read_link(
    line: usize,
    fields: &[&str],
    numbering: &Numbering,
    seen: &mut BTreeMap<(NodeId, NodeId), usize>,
    network: &mut TopologyBuilder,
) -> Result<(), Ns3Error> {
    let &[from, to, rate, delay, error_rate] = fields else {
        let expected = "<node> <node> <rate> <delay> <error rate>";
        return Err(Ns3Error::FieldCount { line, found: fields.len(), expected });
    };
    let (from, to) = (numbering.id(line, from)?, numbering.id(line, to)?);
    let (rate, delay) = (parse_rate(line, rate)?, parse_delay(line, delay)?);
    let loss: f64 = parse(line, error_rate, "an error rate")?;
    if !(0.0..=1.0).contains(&loss) {
        return Err(field(line, error_rate, "an error rate between 0 and 1"));
    }
    let (a, b) = (numbering.labels[from.index()], numbering.labels[to.index()]);
    if from == to || (from.0 < numbering.hosts && to.0 < numbering.hosts) {
        return Err(Ns3Error::BadLink { line, a, b });
    }
    match seen.entry((from.min(to), from.max(to))) {
        Entry::Occupied(first) => {
            return Err(Ns3Error::DuplicateLink { line, first: *first.get(), a, b });
        }
        Entry::Vacant(pair) => pair.insert(line),
    };
    let link = network.connect(from, to, rate, delay).expect("every part was checked");
    network.set_error_rate(link, loss);
    Ok(())
}

fn parse_rate(line: usize, text: &str) -> Result<BitRate, Ns3Error> {
    let rate = parse(line, text, "a rate above zero such as 100Gbps")?;
    let fits = rate <= TopologyBuilder::MAX_RATE;
    if fits { Ok(rate) } else { Err(field(line, text, "a rate of at most 100000Gbps")) }
}

fn parse_delay(line: usize, text: &str) -> Result<Duration, Ns3Error> {
    let delay = parse(line, text, "a delay such as 1000ns")?;
    let fits = delay <= TopologyBuilder::MAX_PROPAGATION;
    if fits { Ok(delay) } else { Err(field(line, text, "a delay of at most 1s")) }
}

fn parse<T: FromStr>(line: usize, text: &str, expected: &'static str) -> Result<T, Ns3Error> {
    text.parse().map_err(|_| field(line, text, expected))
}

fn field(line: usize, found: &str, expected: &'static str) -> Ns3Error {
    Ns3Error::Field { line, found: found.chars().take(40).collect(), expected }
}

#[cfg(test)]
mod tests;
