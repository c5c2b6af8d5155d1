//! The port table: the source port of every queue pair, in the forms that NICs accept.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::cluster::Cluster;
use crate::ports::{Fabric, Flow};
use crate::traffic::QueuePair;

/// The row of one queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PortRow {
    /// The sending server.
    pub from: String,
    /// The receiving server.
    pub to: String,
    /// The sender's rail.
    pub rail: usize,
    /// The receiver's rail.
    pub to_rail: usize,
    /// The queue pair's number within its connection, from 0.
    pub queue_pair: usize,
    /// The number of the sending NIC's port.
    pub nic_port: usize,
    /// Address of the sending NIC.
    pub source: Ipv4Addr,
    /// Address of the receiving NIC.
    pub destination: Ipv4Addr,
    /// UDP source port (`mlx5dv_modify_qp_udp_sport`).
    pub source_port: u16,
    /// The IPv6 flow label of the address handle that makes kernel drivers send from this port
    /// (`rdma_flow_label_to_udp_sport`): the port's low 14 bits. If those are zero it has more bits, because a
    /// label of zero requests a random one.
    pub flow_label: u32,
    /// Names of the switches on the path.
    pub path: Vec<String>,
}

impl PortRow {
    /// Sets the source port and the corresponding flow label.
    pub const fn set_port(&mut self, port: u16) {
        self.source_port = port;
        self.flow_label = flow_label(port);
    }
}

/// The separator between the switches of a path.
pub(super) const PATH_SEPARATOR: &str = " > ";

/// Returns the table of flows with these ports.
///
/// # Panics
/// If the numbers of ports, flows and queue pairs differ, or the cluster has no network.
pub fn port_rows(
    cluster: &Cluster,
    fabric: &Fabric<'_>,
    pairs: &[QueuePair],
    flows: &[Flow],
    ports: &[u16],
) -> Vec<PortRow> {
    assert!(pairs.len() == flows.len() && flows.len() == ports.len(), "a row a queue pair");
    let network = cluster.network().expect("only a network has ports");
    let topology = &network.topology;
    let name = |server: crate::cluster::ServerId| cluster.servers()[server.index()].name.clone();
    let row = |((pair, &flow), &source_port): ((&QueuePair, &Flow), &u16)| {
        let source = topology.link(flow.first).from;
        let path = fabric.path(flow, source_port);
        let switches = path.iter().take(path.len().saturating_sub(1));
        PortRow {
            from: name(pair.from.0),
            to: name(pair.to.0),
            rail: pair.from.1,
            to_rail: pair.to.1,
            queue_pair: pair.number,
            nic_port: pair.nic_port,
            source: Ipv4Addr::from(network.addresses[source.index()]),
            destination: Ipv4Addr::from(network.addresses[flow.destination.index()]),
            source_port,
            flow_label: flow_label(source_port),
            path: switches.map(|&link| network.name(topology.link(link).to)).collect(),
        }
    };
    pairs.iter().zip(flows).zip(ports).map(row).collect()
}

/// Returns the flow label that RoCE drivers convert into this port:
/// `port = (label & 0x3fff) ^ (label >> 14) | 0xc000` (Linux, `include/rdma/ib_verbs.h`).
const fn flow_label(port: u16) -> u32 {
    match port & 0x3fff {
        // The 1 in both halves cancels out.
        0 => 1 | 1 << 14,
        low => low as u32,
    }
}

/// Returns the table as CSV with a heading.
pub fn port_csv(rows: &[PortRow]) -> String {
    let mut text = String::from(
        "from,to,rail,to_rail,queue_pair,nic_port,source,destination,source_port,flow_label,path\n",
    );
    for row in rows {
        text.push_str(&format!(
            "{},{},{},{},{},{},{},{},{},{},{}\n",
            quoted(&row.from),
            quoted(&row.to),
            row.rail,
            row.to_rail,
            row.queue_pair,
            row.nic_port,
            row.source,
            row.destination,
            row.source_port,
            row.flow_label,
            quoted(&row.path.join(PATH_SEPARATOR)),
        ));
    }
    text
}

/// Quotes a field if RFC 4180 requires it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}
