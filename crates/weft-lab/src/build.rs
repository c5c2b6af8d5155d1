//! Makes the namespaces, cables, addresses and routes of a fabric.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use weft_topo::hash::linux::Fields;

use crate::fabric::{Fabric, Family, Link, Node, NodeKind, Port};
use crate::namespace::{enter, write_sysctl};
use crate::tool::{ETHTOOL, IP};
use crate::{LabError, LabSpec, Routing, frr, routes};

/// `net.ipv4.fib_multipath_hash_policy`: fields of our choice, always dissected from the packet.
/// Policy 1 would believe the random hash that a connected socket stamps on its packets.
pub(crate) const HASH_POLICY: u8 = 3;
/// Source and destination address, protocol, source and destination port.
pub(crate) const HASH_FIELDS: u32 = Fields::FIVE_TUPLE.0;
/// Per namespace since Linux 6.11.
const HASH_SEED: &str = "ipv4/fib_multipath_hash_seed";

/// What every node of a lab with IPv6 has below `net.ipv6.conf`.
const IPV6: [(&str, &str); 5] = [
    // Addresses are the lab's, unique, and there at once.
    ("accept_ra", "0"),
    ("accept_dad", "0"),
    ("router_solicitations", "0"),
    // Without this a port that is shut loses its address, as it does not with IPv4.
    ("keep_addr_on_down", "1"),
    ("ignore_routes_with_linkdown", "1"),
];

/// Builds everything. On an error what was made so far stays, for the caller to remove.
///
/// # Errors
/// `Command`, `MissingTool` or `Io` from the first step that failed.
pub(crate) fn build(spec: &LabSpec, fabric: &Fabric) -> Result<(), LabError> {
    let namespaces: String =
        fabric.nodes.iter().map(|node| format!("netns add {}\n", node.namespace)).collect();
    IP.run(&["-batch", "-"], &namespaces)?;
    // Before any device exists: ignore_routes_with_linkdown set after a failure does not rebalance.
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
    fabric.nodes.iter().try_for_each(await_carrier)?;
    match spec.routing {
        Routing::Static => Ok(()),
        Routing::Frr => frr::start(spec, fabric),
    }
}

/// Waits until every device of a node has its carrier. The kernel notices it some time after the
/// cable is plugged in, and until then routes over it are ignored.
///
/// # Errors
/// `Command` with the devices that have none after [`CARRIER_PATIENCE`].
fn await_carrier(node: &Node) -> Result<(), LabError> {
    let show = ["-n", &node.namespace, "-o", "link", "show", "up"];
    let mut waited = Duration::ZERO;
    loop {
        let links = IP.run(&show, "")?;
        let dark = |line: &&str| line.contains("LOWERLAYERDOWN") || line.contains("NO-CARRIER");
        let dark: Vec<_> = links.lines().filter(dark).collect();
        if dark.is_empty() {
            return Ok(());
        }
        if waited >= CARRIER_PATIENCE {
            let stderr = format!("no carrier after {CARRIER_PATIENCE:?}: {}", dark.join("; "));
            return Err(LabError::Command { command: format!("ip {}", show.join(" ")), stderr });
        }
        thread::sleep(CARRIER_POLL);
        waited += CARRIER_POLL;
    }
}

const CARRIER_PATIENCE: Duration = Duration::from_secs(5);
const CARRIER_POLL: Duration = Duration::from_millis(5);

/// Whether this kernel lets a lab choose the multipath hash seed.
pub(crate) fn hash_seed_supported() -> bool {
    Path::new("/proc/sys/net").join(HASH_SEED).exists()
}

/// Turns sending of segments above the MTU on or off at one port.
///
/// # Errors
/// `MissingTool` without ethtool; `Command` when the device refuses.
pub(crate) fn set_segmentation(fabric: &Fabric, port: &Port, on: bool) -> Result<(), LabError> {
    let value = if on { "on" } else { "off" };
    let node = &fabric.nodes[port.node];
    let mut arguments = vec!["-K", &port.device];
    for feature in ["tso", "gso", "tx-udp-segmentation"] {
        arguments.extend([feature, value]);
    }
    // Receive offload would glue single packets together again before the loss is applied; a veth
    // device has it off unless somebody asked for it.
    arguments.extend(["gro", "off"]);
    enter(&node.namespace, || ETHTOOL.run(&arguments, ""))??;
    Ok(())
}

fn configure_kernel(node: &Node, spec: &LabSpec) -> Result<(), LabError> {
    // FRR's sessions go over link-local addresses, and its routes' next hops are such.
    let is_of_frr = node.kind != NodeKind::Host && spec.routing == Routing::Frr;
    let disable_ipv6 = !spec.ipv6 && !is_of_frr;
    for scope in ["all", "default"] {
        // Neighbour discovery and router solicitations would be the only traffic on idle links.
        let ipv6 = format!("ipv6/conf/{scope}/disable_ipv6");
        if Path::new("/proc/sys/net").join(&ipv6).exists() {
            write_sysctl(&ipv6, if disable_ipv6 { "1" } else { "0" })?;
        }
        if spec.ipv6 {
            for (name, value) in IPV6 {
                write_sysctl(&format!("ipv6/conf/{scope}/{name}"), value)?;
            }
        }
        // Replies may come back over another spine than the one a packet left by.
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
