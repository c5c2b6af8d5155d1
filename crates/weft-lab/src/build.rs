//! Creation of the namespaces, cables, addresses and routes of a fabric.

use std::fmt::Write as _;
use std::path::Path;

use weft_topo::hash::linux::Fields;

use crate::carrier::await_carrier;
use crate::fabric::{Fabric, Family, Link, Node, NodeKind, Port};
use crate::namespace::{enter, write_sysctl};
use crate::tool::{ETHTOOL, IP};
use crate::{LabError, LabSpec, Routing, frr, routes};

/// The value of `net.ipv4.fib_multipath_hash_policy`: selected fields, always parsed from the packet. Policy 1 would
/// use the random hash that a connected socket attaches to its packets.
pub(crate) const HASH_POLICY: u8 = 3;
/// The hashed fields: source and destination address, protocol, source and destination port.
pub(crate) const HASH_FIELDS: u32 = Fields::FIVE_TUPLE.0;
/// The sysctl of the hash seed, per namespace since Linux 6.11.
const HASH_SEED: &str = "ipv4/fib_multipath_hash_seed";

/// The settings below `net.ipv6.conf` of every node of a lab with IPv6.
const IPV6: [(&str, &str); 5] = [
    // The lab sets unique addresses, which need no duplicate detection and no router advertisements.
    ("accept_ra", "0"),
    ("accept_dad", "0"),
    ("router_solicitations", "0"),
    // Without this a port that is shut down loses its IPv6 address, unlike its IPv4 address.
    ("keep_addr_on_down", "1"),
    ("ignore_routes_with_linkdown", "1"),
];

/// Builds namespaces, cables, addresses and routes. After an error the finished parts stay, and the caller removes
/// them.
///
/// # Errors
/// Returns `Command`, `MissingTool` or `Io` from the first step that failed.
pub(crate) fn build(spec: &LabSpec, fabric: &Fabric) -> Result<(), LabError> {
    let namespaces: String =
        fabric.nodes.iter().map(|node| format!("netns add {}\n", node.namespace)).collect();
    IP.run(&["-batch", "-"], &namespaces)?;
    // The settings precede all devices: ignore_routes_with_linkdown does not rebalance routes if it is set after a
    // failure.
    for node in &fabric.nodes {
        enter(&node.namespace, || configure_kernel(node, spec))??;
    }
    let cables: String = fabric.links.iter().map(|link| cable(fabric, spec, link)).collect();
    IP.run(&["-batch", "-"], &cables)?;
    for (index, node) in fabric.nodes.iter().enumerate() {
        for family in fabric.families() {
            let mut setup = addresses(fabric, index, family);
            if spec.routing == Routing::Static || node.kind == NodeKind::Host {
                setup += &routes::initial(fabric, index, family);
            }
            enter(&node.namespace, || IP.run(&[family.flag(), "-batch", "-"], &setup))??;
        }
    }
    if !spec.offloads {
        for port in fabric.links.iter().flat_map(|link| [&link.near, &link.far]) {
            set_segmentation(fabric, port, false)?;
        }
    }
    fabric.nodes.iter().try_for_each(|node| await_carrier(node, "up", true))?;
    match spec.routing {
        Routing::Static => Ok(()),
        Routing::Frr => frr::start(spec, fabric),
    }
}

/// Returns `true` if the kernel's multipath hash seed can be set.
pub(crate) fn hash_seed_supported() -> bool {
    Path::new("/proc/sys/net").join(HASH_SEED).exists()
}

/// Enables or disables the sending of segments larger than the MTU at one port.
///
/// # Errors
/// Returns `MissingTool` without ethtool, `Command` if the device refuses.
pub(crate) fn set_segmentation(fabric: &Fabric, port: &Port, on: bool) -> Result<(), LabError> {
    let value = if on { "on" } else { "off" };
    let node = &fabric.nodes[port.node];
    let mut arguments = vec!["-K", &port.device];
    for feature in ["tso", "gso", "tx-udp-segmentation"] {
        arguments.extend([feature, value]);
    }
    // Receive offload would merge single packets again before the loss is applied. Veth devices have it off by default.
    arguments.extend(["gro", "off"]);
    enter(&node.namespace, || ETHTOOL.run(&arguments, ""))??;
    Ok(())
}

fn configure_kernel(node: &Node, spec: &LabSpec) -> Result<(), LabError> {
    // FRR's sessions use link-local addresses, which are also the next hops of its routes.
    let is_of_frr = node.kind != NodeKind::Host && spec.routing == Routing::Frr;
    let disable_ipv6 = !spec.ipv6 && !is_of_frr;
    for scope in ["all", "default"] {
        // Without IPv6, idle links carry no neighbour discovery and no router solicitations.
        let ipv6 = format!("ipv6/conf/{scope}/disable_ipv6");
        if Path::new("/proc/sys/net").join(&ipv6).exists() {
            write_sysctl(&ipv6, if disable_ipv6 { "1" } else { "0" })?;
        }
        if spec.ipv6 {
            for (name, value) in IPV6 {
                write_sysctl(&format!("ipv6/conf/{scope}/{name}"), value)?;
            }
        }
        // Replies may return over another spine than that of the request.
        write_sysctl(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        write_sysctl(&format!("ipv4/conf/{scope}/ignore_routes_with_linkdown"), "1")?;
    }
    if node.kind == NodeKind::Host {
        return Ok(());
    }
    write_sysctl("ipv4/ip_forward", "1")?;
    if spec.ipv6 {
        write_sysctl("ipv6/conf/all/forwarding", "1")?;
        write_sysctl("ipv6/fib_multipath_hash_policy", &HASH_POLICY.to_string())?;
        write_sysctl("ipv6/fib_multipath_hash_fields", &HASH_FIELDS.to_string())?;
    }
    write_sysctl("ipv4/fib_multipath_hash_policy", &HASH_POLICY.to_string())?;
    write_sysctl("ipv4/fib_multipath_hash_fields", &HASH_FIELDS.to_string())?;
    if hash_seed_supported() {
        write_sysctl(HASH_SEED, &node.hash_seed.to_string())?;
    }
    Ok(())
}

fn cable(fabric: &Fabric, spec: &LabSpec, link: &Link) -> String {
    let namespace = |port: &Port| &fabric.nodes[port.node].namespace;
    format!(
        "link add name {} netns {} mtu {mtu} type veth peer name {} netns {} mtu {mtu}\n",
        link.near.device,
        namespace(&link.near),
        link.far.device,
        namespace(&link.far),
        mtu = spec.mtu,
    )
}

fn addresses(fabric: &Fabric, node: usize, family: Family) -> String {
    let mut batch = String::from("link set lo up\n");
    let ports = fabric.links.iter().flat_map(|link| [&link.near, &link.far]);
    for port in ports.filter(|port| port.node == node) {
        let (address, device) = (port.of(family), &port.device);
        let (prefix_len, nodad) = match family {
            Family::V4 => (port.prefix_len, ""),
            Family::V6 => (64, " nodad"),
        };
        writeln!(
            batch,
            "addr add {address}/{prefix_len} dev {device}{nodad}\nlink set {device} up"
        )
        .expect("writing to a string cannot fail");
    }
    batch
}
