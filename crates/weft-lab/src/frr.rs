//! Routers that run BGP: FRR's zebra and bgpd in each router, sessions over link-local addresses ("unnumbered"), a
//! private AS number for each router, as in RFC 7938.
//!
//! Leaves announce each host's network and, for control by destination, each host's address as a /32 or /128. The
//! routes that FRR computes may differ from those in the kernel, whose tables are authoritative. FRR 8.4 lost members
//! of nexthop objects permanently when a link flapped (FRR issue 14481), so zebra is configured not to use objects.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use weft_route::Prefix;

use crate::fabric::{Fabric, Family, Node};
use crate::namespace::enter;
use crate::state::folder_of;
use crate::tool::{IP, Tool};
use crate::{LabError, LabSpec};

/// The folder of the daemons in Debian's package.
const DAEMONS: &str = "/usr/lib/frr";
/// The program that sends commands to the daemons.
pub(crate) const VTYSH: Tool = Tool { name: "vtysh", package: "frr" };

const CHOWN: Tool = Tool { name: "chown", package: "coreutils" };

/// The first of the AS numbers for private use (RFC 6996).
const FIRST_AS: usize = 64_512;

/// Maximum time until all routes are installed. Debian's FRR 8.4 takes up to 6 s for router advertisements, from which
/// unnumbered sessions learn their neighbours.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(40);
/// Interval between two checks of the routes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Checks that FRR is installed.
///
/// # Errors
/// Returns `MissingTool` without FRR.
pub(crate) fn check() -> Result<(), LabError> {
    if is_installed() {
        Ok(())
    } else {
        Err(LabError::MissingTool { tool: "bgpd", package: "frr" })
    }
}

/// Returns `true` if zebra, bgpd and vtysh are installed.
pub(crate) fn is_installed() -> bool {
    VTYSH.is_installed()
        && ["zebra", "bgpd"].iter().all(|name| Path::new(DAEMONS).join(name).is_file())
}

/// Starts the daemons of every router and waits until all routes are installed.
///
/// # Errors
/// Returns `Io` or `Command` if a daemon does not start, or if routes are missing after [`CONVERGENCE_TIMEOUT`].
pub(crate) fn start(spec: &LabSpec, fabric: &Fabric) -> Result<(), LabError> {
    for index in fabric.hosts()..fabric.nodes.len() {
        let node = &fabric.nodes[index];
        let folder = folder(&spec.name, &node.name);
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(LabError::io(format!("write {}", path.display())))
        };
        fs::create_dir_all(&folder).map_err(LabError::io(format!("make {}", folder.display())))?;
        write("zebra.conf", &zebra_configuration(node))?;
        write("bgpd.conf", &bgpd_configuration(fabric, index))?;
        // The daemons of Debian's package change from root to this user.
        CHOWN.run(&["-R", "frr:frr", &folder.to_string_lossy()], "")?;
        for daemon in ["zebra", "bgpd"] {
            start_daemon(daemon, node, &folder)?;
        }
    }
    await_routes(fabric, |_| true)
}

/// Returns the folder of the files and sockets of a router's daemons.
pub(crate) fn folder(lab: &str, node: &str) -> PathBuf {
    folder_of(lab).join(node)
}

fn start_daemon(name: &str, node: &Node, folder: &Path) -> Result<(), LabError> {
    let path = |file: &str| folder.join(file).to_string_lossy().into_owned();
    let mut command = Command::new(Path::new(DAEMONS).join(name));
    // The daemons get no TCP port for vtysh: the socket in the folder is enough.
    command.args(["--daemon", "--vty_port", "0"]);
    command.args(["--config_file".into(), path(&format!("{name}.conf"))]);
    command.args(["--pid_file".into(), path(&format!("{name}.pid"))]);
    command.args(["--vty_socket".into(), folder.to_string_lossy().into_owned()]);
    command.args(["--socket".into(), path("zserv.api")]);
    command.stdin(Stdio::null());
    let output = enter(&node.namespace, || command.output())?
        .map_err(LabError::io(format!("run {name} in {}", node.namespace)))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Command { command: format!("{name} in {}", node.namespace), stderr })
}

fn zebra_configuration(node: &Node) -> String {
    format!("hostname {}\nno zebra nexthop kernel enable\n", node.name)
}

fn bgpd_configuration(fabric: &Fabric, index: usize) -> String {
    let node = &fabric.nodes[index];
    let mut text = format!("hostname {}\n", node.name);
    let mut line =
        |line: String| writeln!(text, "{line}").expect("writing to a string cannot fail");
    line(format!("router bgp {}", FIRST_AS + index - fabric.hosts()));
    let router_id = Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(index + 1).unwrap_or(1));
    line(format!(" bgp router-id {router_id}"));
    // All neighbours are trusted. The AS paths of equal-cost routes differ, because each spine has its own AS number.
    line(" no bgp ebgp-requires-policy".into());
    line(" no bgp network import-check".into());
    line(" bgp bestpath as-path multipath-relax".into());
    line(" timers bgp 1 3".into());
    let ports = |link: &&crate::Link| [link.near.node, link.far.node].contains(&index);
    let (hosts, routers): (Vec<_>, Vec<_>) =
        fabric.links.iter().filter(ports).partition(|link| link.near.node < fabric.hosts());
    for link in &routers {
        let device = if link.near.node == index { &link.near.device } else { &link.far.device };
        line(format!(" neighbor {device} interface v6only remote-as external"));
        line(format!(" neighbor {device} timers connect 1"));
        line(format!(" neighbor {device} advertisement-interval 0"));
    }
    for family in fabric.families() {
        let name = if family == Family::V4 { "ipv4" } else { "ipv6" };
        line(format!(" address-family {name} unicast"));
        for link in &hosts {
            let address = link.near.of(family);
            let len = if family == Family::V4 { 24 } else { 64 };
            let network = Prefix::new(address, len).expect("of its family");
            line(format!("  network {network}"));
            line(format!("  network {}", Prefix::host(address)));
        }
        line("  maximum-paths 256".into());
        for link in &routers {
            let device = if link.near.node == index { &link.near.device } else { &link.far.device };
            // FRR activates only IPv4 by default.
            if family == Family::V6 {
                line(format!("  neighbor {device} activate"));
            }
            line(format!("  neighbor {device} soft-reconfiguration inbound"));
        }
        line(" exit-address-family".into());
    }
    text
}

/// Waits until every leaf reaches every host of the others over all spines whose links are `usable`.
///
/// # Errors
/// Returns `Command` with a leaf that lacks routes after [`CONVERGENCE_TIMEOUT`].
pub(crate) fn await_routes(
    fabric: &Fabric,
    usable: impl Fn(usize) -> bool,
) -> Result<(), LabError> {
    let deadline = Instant::now() + CONVERGENCE_TIMEOUT;
    let of_leaf = |leaf| fabric.families().map(move |family| (leaf, family));
    for (leaf, family) in (0..fabric.leaves()).flat_map(of_leaf) {
        while let Some(missing) = missing_route(fabric, (leaf, family), &usable)? {
            if Instant::now() >= deadline {
                let command = format!("bgpd in {}", fabric.leaf(leaf).namespace);
                let stderr = format!("{missing} after {CONVERGENCE_TIMEOUT:?}");
                return Err(LabError::Command { command, stderr });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Returns the first route of a leaf with a wrong number of next hops, as text; `None` if there is none.
fn missing_route(
    fabric: &Fabric,
    (leaf, family): (usize, Family),
    usable: &impl Fn(usize) -> bool,
) -> Result<Option<String>, LabError> {
    let shown =
        enter(&fabric.leaf(leaf).namespace, || IP.run(&[family.flag(), "-j", "route"], ""))??;
    let routes: Value = serde_json::from_str(&shown).unwrap_or(Value::Null);
    let next_hops = |address: IpAddr| {
        let route = routes.as_array()?.iter().find(|route| route["dst"] == address.to_string())?;
        Some(route["nexthops"].as_array().map_or(1, Vec::len))
    };
    let missing =
        (0..fabric.hosts()).filter(|&host| fabric.leaf_of(host) != leaf).find_map(|host| {
            let other = fabric.leaf_of(host);
            let link = |leaf, spine| usable(fabric.spine_link_index(leaf, spine));
            let wanted = (0..fabric.spines()).filter(|&s| link(leaf, s) && link(other, s)).count();
            let address = fabric.links[host].near.of(family);
            let found = next_hops(address).unwrap_or(0);
            (found != wanted).then(|| format!("{found} of {wanted} next hops for {address}"))
        });
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_announces_its_hosts_and_a_spine_announces_nothing() {
        let fabric = Fabric::new(&LabSpec { hosts_per_leaf: 2, ..LabSpec::named("t") }).unwrap();
        let leaf = bgpd_configuration(&fabric, 5);
        for wanted in ["router bgp 64513", "network 10.2.1.0/24", "network 10.2.1.2/32"] {
            assert!(leaf.contains(wanted), "{leaf}");
        }
        assert!(leaf.contains("neighbor s3 interface v6only remote-as external"), "{leaf}");
        assert!(!leaf.contains("neighbor h3") && !leaf.contains("ipv6 unicast"), "{leaf}");
        let spine = bgpd_configuration(&fabric, 6);
        assert!(!spine.contains("network 10"), "{spine}");
        assert!(spine.contains("neighbor l1 interface v6only"), "{spine}");
        let both = LabSpec { hosts_per_leaf: 2, ipv6: true, ..LabSpec::named("t") };
        let leaf = bgpd_configuration(&Fabric::new(&both).unwrap(), 5);
        for wanted in ["network fd00:2:1::/64", "network fd00:2:1::2/128", "neighbor s3 activate"] {
            assert!(leaf.contains(wanted), "{leaf}");
        }
    }
}
