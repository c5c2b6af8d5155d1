//! The routers of a lab as the route controller's inventory: the command that reaches each router, its ports and their
//! cables.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weft_lab::{Lab, NodeKind, Routing};
use weft_route::installed::{Addresses, Cable};
use weft_steer::{Inventory, Method, PortEntry, RouterEntry, SteerConfig, SteerError};
use weft_units::BitRate;

/// The rate of a veth pair without a rate limit, as Linux reports it.
const UNLIMITED: BitRate = BitRate::gbps(10).expect("ten is not zero");

/// Returns the routers of a controller's configuration; those of the lab if the configuration names one.
///
/// # Errors
/// Returns `Inventory` if the lab cannot be opened.
pub fn inventory(config: &SteerConfig) -> Result<Inventory, SteerError> {
    let Some(name) = &config.lab else { return config.inventory() };
    let lab = Lab::open(name).map_err(|error| SteerError::Inventory(error.into()))?;
    Ok(routers_of(&lab))
}

/// Returns the routers of a lab with their cables and with rate limits as speeds.
pub fn routers_of(lab: &Lab) -> Inventory {
    let fabric = lab.fabric();
    let mut ports: BTreeMap<usize, Vec<PortEntry>> = BTreeMap::new();
    for (link, state) in fabric.links.iter().zip(lab.links()) {
        let ends =
            [(&link.near, &link.far, &state.forward), (&link.far, &link.near, &state.backward)];
        for (port, other, impairment) in ends {
            let node = &fabric.nodes[other.node];
            let to = match node.kind {
                NodeKind::Host => Cable::Host(match other.address6 {
                    Some(address6) => Addresses::both(other.address, address6),
                    None => other.address.into(),
                }),
                _ => Cable::Peer { router: node.name.clone(), port: other.device.clone() },
            };
            ports.entry(port.node).or_default().push(PortEntry {
                name: port.device.clone(),
                speed: Some(impairment.rate.unwrap_or(UNLIMITED)),
                to: Some(to),
            });
        }
    }
    let routers = (fabric.hosts()..fabric.nodes.len()).map(|index| {
        let node = &fabric.nodes[index];
        RouterEntry {
            name: node.name.clone(),
            reach: ["ip", "netns", "exec", &node.namespace].map(String::from).to_vec(),
            agent: agent_of(index).into(),
            // One agent on this machine watches all routers.
            sources: vec![Ipv4Addr::LOCALHOST.into()],
            apply: match lab.spec().routing {
                Routing::Static => Method::Kernel,
                Routing::Frr => Method::Frr { vty_socket: Some(lab.frr_folder(&node.name)) },
            },
            ports: ports.remove(&index).unwrap_or_default(),
        }
    });
    Inventory { routers: routers.collect() }
}

/// Returns the sFlow agent address of a lab's router. It is unique in the lab, and no host has it.
fn agent_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0aff_0000 + u32::try_from(node).expect("a lab has fewer nodes"))
}
