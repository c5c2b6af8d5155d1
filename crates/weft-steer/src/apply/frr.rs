//! FRR's method: an inbound filter removes a destination at the neighbours that must not be used for it. BGP computes
//! the rest, and the kernel gets it. This survives restarts of zebra, and after a link failure BGP finds other paths.

use std::path::Path;

use weft_route::Prefix;
use weft_route::installed::Member;

use super::{Change, Refusal};
use crate::tables::NextHop;
use crate::{RouterEntry, SteerError};

/// The prefixes of the names of our lists and route-maps, by family; the interface's name follows.
const PREFIX: &str = "WEFT-";
const PREFIX6: &str = "WEFT6-";

/// The keywords of an address family in FRR's configuration.
#[derive(Clone, Copy)]
struct Keywords {
    prefix: &'static str,
    /// The keyword of prefix lists and of matches in route-maps.
    ip: &'static str,
    /// The keyword of BGP's address family.
    family: &'static str,
}

const IPV4: Keywords = Keywords { prefix: PREFIX, ip: "ip", family: "ipv4" };
const IPV6: Keywords = Keywords { prefix: PREFIX6, ip: "ipv6", family: "ipv6" };

/// Reads FRR's running configuration.
///
/// # Errors
/// Returns `Command` or `Io` if `vtysh` fails.
pub(super) fn configured(
    router: &RouterEntry,
    vty_socket: Option<&Path>,
) -> Result<String, SteerError> {
    let command = vtysh(vty_socket, &["show running-config".into()]);
    router.run("vtysh", &command)
}

/// Returns the commands of a change, given the running configuration and the next hops of the router's own routing.
/// Returns none if the configuration has the change.
///
/// # Errors
/// Returns the reason why the change is refused.
pub(super) fn commands(
    vty_socket: Option<&Path>,
    configured: &str,
    candidates: &[NextHop],
    change: &Change,
) -> Result<Vec<String>, Refusal> {
    let to = Prefix::host(change.destination);
    let words = if change.destination.is_ipv4() { IPV4 } else { IPV6 };
    let Keywords { prefix, ip, family } = words;
    let as_number = configured.lines().find_map(|line| line.strip_prefix("router bgp "));
    let as_number = as_number.ok_or(Refusal::NoBgp)?;
    let mut lines = vec![String::from("configure terminal")];
    let mut changed = vec![];
    if let Some(members) = &change.members {
        let is_candidate =
            |port: &String| candidates.iter().any(|hop| hop.dev.as_ref() == Some(port));
        if let Some(member) = members.iter().find(|member| !is_candidate(&member.port)) {
            let there = candidates.iter().filter_map(|hop| hop.dev.clone()).collect();
            return Err(Refusal::NoRouteBy { to, port: member.port.clone(), there });
        }
        if members.is_empty() {
            return Err(Refusal::NoNextHop(to));
        }
    }
    for device in candidates.iter().filter_map(|hop| hop.dev.as_deref()) {
        let name = format!("{prefix}{device}");
        let foreign = of_family(configured, family).find(|line| {
            line.starts_with(&format!("neighbor {device} route-map "))
                && line.ends_with(" in")
                && !line.contains(&name)
        });
        if let Some(foreign) = foreign {
            return Err(Refusal::RouteMap { device: device.into(), line: foreign.into() });
        }
        let wanted = |members: &Vec<Member>| members.iter().any(|member| member.port == device);
        let exclude = change.members.as_ref().is_some_and(|members| !wanted(members));
        let listed = is_listed(configured, (ip, &name), to);
        if exclude == listed {
            continue;
        }
        changed.push(device);
        let no = if exclude { "" } else { "no " };
        lines.push(format!("{no}{ip} prefix-list {name} permit {to}"));
        if exclude {
            lines.extend([
                format!("route-map {name} deny 10"),
                format!("match {ip} address prefix-list {name}"),
                format!("route-map {name} permit 20"),
                format!("router bgp {as_number}"),
                format!("address-family {family} unicast"),
                format!("neighbor {device} route-map {name} in"),
                "exit-address-family".into(),
                "exit".into(),
            ]);
        }
    }
    if changed.is_empty() {
        return Ok(vec![]);
    }
    lines.push("end".into());
    lines.extend(
        changed.iter().map(|device| format!("clear bgp {family} unicast {device} soft in")),
    );
    Ok(vec![vtysh(vty_socket, &lines)])
}

/// Returns the lines of one address family; lines outside any family belong to IPv4.
fn of_family<'a>(configured: &'a str, family: &'a str) -> impl Iterator<Item = &'a str> {
    let mut at = "ipv4";
    configured.lines().map(str::trim).filter(move |line| {
        if let Some(name) = line.strip_prefix("address-family ") {
            at = name.split_whitespace().next().unwrap_or_default();
        } else if *line == "exit-address-family" {
            at = "ipv4";
        }
        at == family
    })
}

/// Returns `true` if a prefix is in a list: `ip prefix-list NAME seq 5 permit 10.2.0.2/32`.
fn is_listed(configured: &str, (ip, name): (&str, &str), to: Prefix) -> bool {
    let start = format!("{ip} prefix-list {name} ");
    let last = |line: &str| line.split_whitespace().last().map(str::parse);
    configured.lines().any(|line| line.starts_with(&start) && last(line) == Some(Ok(to)))
}

/// Returns the prefixes in our lists.
pub(crate) fn listed(configured: &str) -> Vec<String> {
    let is_ours = |line: &&str| {
        [IPV4, IPV6].iter().any(|Keywords { prefix, ip, .. }| {
            line.strip_prefix(ip).is_some_and(|rest| {
                rest.strip_prefix(" prefix-list ").is_some_and(|rest| rest.starts_with(prefix))
            })
        })
    };
    let lines = configured.lines().filter(is_ours);
    lines.filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// Returns a `vtysh` command line, quoted for a shell.
pub(crate) fn vtysh(vty_socket: Option<&Path>, lines: &[String]) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let mut command = String::from("vtysh");
    if let Some(folder) = vty_socket {
        command += &format!(" --vty_socket {}", quoted(&folder.to_string_lossy()));
    }
    for line in lines {
        command += &format!(" -c {}", quoted(line));
    }
    command
}
