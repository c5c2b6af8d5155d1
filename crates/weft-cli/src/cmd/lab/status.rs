//! The state of a lab, as text and as JSON.

use anyhow::Result;
use serde::Serialize;
use weft_lab::{Fabric, Impairment, Lab, LabSpec, LinkState, NodeKind, PortCounters, Probability};
use weft_report::{Cell, Column, Table, Unit};

use weft_report::terminal::{Output, render};

/// A lab, as `--json` shows it.
#[derive(Debug, Serialize)]
pub(super) struct Description {
    spec: LabSpec,
    nodes: Vec<NodeDescription>,
    links: Vec<LinkDescription>,
}

#[derive(Debug, Serialize)]
struct NodeDescription {
    name: String,
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<std::net::Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address6: Option<std::net::Ipv6Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_seed: Option<u32>,
}

/// One direction of a link.
#[derive(Debug, Serialize)]
pub(super) struct LinkDescription {
    link: String,
    from: String,
    to: String,
    down: bool,
    #[serde(flatten)]
    impairment: Impairment,
    #[serde(flatten)]
    counters: PortCounters,
}

pub(super) fn show(lab: &Lab, output: Output) -> Result<()> {
    let description = describe(lab)?;
    output.value(&description, || {
        let links = links(&description.links);
        format!("{}\n{}", render(&hosts(lab.fabric())), render(&links))
    })
}

pub(super) fn describe(lab: &Lab) -> Result<Description> {
    let fabric = lab.fabric();
    let nodes = fabric.nodes.iter().enumerate().map(|(index, node)| {
        let host = node.kind == NodeKind::Host;
        NodeDescription {
            name: node.name.clone(),
            namespace: node.namespace.clone(),
            address: host.then(|| fabric.address(index)),
            address6: host.then(|| fabric.address6(index)).flatten(),
            hash_seed: (!host).then_some(node.hash_seed),
        }
    });
    let counters = lab.counters()?;
    let links = counters
        .iter()
        .enumerate()
        .flat_map(|(link, counters)| directions(lab, link, [counters.forward, counters.backward]));
    Ok(Description { spec: lab.spec().clone(), nodes: nodes.collect(), links: links.collect() })
}

/// Returns both directions of one link, without counters.
pub(super) fn describe_link(lab: &Lab, link: usize) -> [LinkDescription; 2] {
    directions(lab, link, [PortCounters::default(); 2])
}

/// Returns a link's condition in one line, such as `l0-s1: loses 1% both ways`.
pub(super) fn condition_line(lab: &Lab, link: usize) -> String {
    let state = &lab.links()[link];
    let name = &lab.fabric().links[link].name;
    let [forward, backward] = describe_link(lab, link);
    if state.forward == state.backward {
        return format!("{name}: {}", condition(state.down, &state.forward));
    }
    let line = |direction: &LinkDescription| {
        let conditions = condition(direction.down, &direction.impairment);
        format!("{name} from {}: {conditions}", direction.from)
    };
    format!("{}\n{}", line(&forward), line(&backward))
}

/// Returns the hosts with their leaf and address.
pub(super) fn hosts(fabric: &Fabric) -> Table {
    let mut table = Table::new(vec![
        Column::text("host", "host"),
        Column::text("leaf", "leaf"),
        Column::text("address", "address"),
        Column::text("namespace", "namespace"),
    ]);
    for host in 0..fabric.hosts() {
        let node = &fabric.nodes[host];
        let leaf = fabric.leaf(fabric.leaf_of(host));
        let address = match (fabric.address(host), fabric.address6(host)) {
            (v4, Some(v6)) => format!("{v4}, {v6}"),
            (v4, None) => v4.to_string(),
        };
        table.push(vec![
            node.name.clone().into(),
            leaf.name.clone().into(),
            address.into(),
            node.namespace.clone().into(),
        ]);
    }
    table
}

fn directions(lab: &Lab, link: usize, counters: [PortCounters; 2]) -> [LinkDescription; 2] {
    let fabric = lab.fabric();
    let (cable, state): (_, &LinkState) = (&fabric.links[link], &lab.links()[link]);
    let direction = |from: usize, to: usize, impairment, counters| LinkDescription {
        link: cable.name.clone(),
        from: fabric.nodes[from].name.clone(),
        to: fabric.nodes[to].name.clone(),
        down: state.down,
        impairment,
        counters,
    };
    let (near, far) = (cable.near.node, cable.far.node);
    [
        direction(near, far, state.forward, counters[0]),
        direction(far, near, state.backward, counters[1]),
    ]
}

fn links(directions: &[LinkDescription]) -> Table {
    let mut table = Table::new(vec![
        Column::text("from", "from"),
        Column::text("to", "to"),
        Column::text("condition", "condition"),
        Column::number("sent", "bytes"),
        Column::number("packets", "packets"),
        Column::number("dropped", "dropped"),
        Column::number("marked", "marked"),
        Column::number("queue full", "queue_dropped"),
    ]);
    for LinkDescription { from, to, down, impairment, counters, .. } in directions {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let bytes = Cell::new(Unit::Bytes.format(counters.bytes as f64), counters.bytes);
        table.push(vec![
            from.clone().into(),
            to.clone().into(),
            condition(*down, impairment).into(),
            bytes,
            counters.packets.into(),
            counters.dropped.into(),
            counters.marked.into(),
            counters.queue_dropped.into(),
        ]);
    }
    table
}

fn condition(down: bool, impairment: &Impairment) -> String {
    let mut conditions = vec![];
    if down {
        conditions.push("down".to_owned());
    }
    if impairment.black_hole {
        conditions.push("swallows everything".into());
    }
    if impairment.loss != Probability::NONE {
        conditions.push(format!("loses {}", impairment.loss));
    }
    if impairment.mark != Probability::NONE {
        conditions.push(format!("marks {}", impairment.mark));
    }
    if let Some(rate) = impairment.rate {
        let queue =
            impairment.queue.map_or_else(String::new, |queue| format!(", {queue} may wait"));
        conditions.push(format!("limited to {rate}{queue}"));
        if let Some(backlog) = impairment.mark_above {
            conditions.push(format!("marks above {backlog}"));
        }
    }
    if conditions.is_empty() { "healthy".into() } else { conditions.join(", ") }
}
