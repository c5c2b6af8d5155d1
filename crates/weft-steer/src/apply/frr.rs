//! FRR's way: neighbours that shall not be used for a destination have it filtered out as it comes in. BGP
//! then computes, and the kernel gets, what is left; it holds through restarts of zebra, and a link's
//! failure finds other ways by itself.

use std::path::Path;

use weft_route::installed::Member;

use super::Change;
use crate::tables::NextHop;
use crate::{RouterEntry, SteerError};

/// What our lists and route-maps begin with; the interface's name follows.
const PREFIX: &str = "WEFT-";

/// bgpd's running configuration.
pub(super) fn configured(
    router: &RouterEntry,
    vty_socket: Option<&Path>,
) -> Result<String, SteerError> {
    let command = vtysh(vty_socket, &["show running-config".into()]);
    router.run("vtysh", &command)
}

pub(super) fn commands(
    vty_socket: Option<&Path>,
    configured: &str,
    ways: &[NextHop],
    change: &Change,
) -> Result<Vec<String>, String> {
    let to = format!("{}/32", change.destination);
    let autonomous = configured.lines().find_map(|line| line.strip_prefix("router bgp "));
    let autonomous = autonomous.ok_or("FRR runs no BGP: use apply = \"kernel\"")?;
    let mut lines = vec![String::from("configure terminal")];
    let mut changed = vec![];
    let devices = ways.iter().filter_map(|way| way.dev.as_deref());
    if let Some(members) = &change.members {
        let is_way = |port: &String| ways.iter().any(|way| way.dev.as_ref() == Some(port));
        if let Some(member) = members.iter().find(|member| !is_way(&member.port)) {
            let there: Vec<&str> = devices.collect();
            let there = there.join(", ");
            return Err(format!("no route to {to} by {}, only by {there}", member.port));
        }
        if members.is_empty() {
            return Err(format!("{to} would have no way at all"));
        }
    }
    for device in ways.iter().filter_map(|way| way.dev.as_deref()) {
        let name = format!("{PREFIX}{device}");
        let others = configured.lines().map(str::trim).find(|line| {
            line.starts_with(&format!("neighbor {device} route-map "))
                && line.ends_with(" in")
                && !line.contains(&name)
        });
        if let Some(others) = others {
            return Err(format!("{device} has a route-map of the operator's: {others}"));
        }
        let wanted = |members: &Vec<Member>| members.iter().any(|member| member.port == device);
        let exclude = change.members.as_ref().is_some_and(|members| !wanted(members));
        let listed = is_listed(configured, &name, &to);
        if exclude == listed {
            continue;
        }
        changed.push(device);
        let no = if exclude { "" } else { "no " };
        lines.push(format!("{no}ip prefix-list {name} permit {to}"));
        if exclude {
            lines.extend([
                format!("route-map {name} deny 10"),
                format!("match ip address prefix-list {name}"),
                format!("route-map {name} permit 20"),
                format!("router bgp {autonomous}"),
                "address-family ipv4 unicast".into(),
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
    lines.extend(changed.iter().map(|device| format!("clear bgp ipv4 unicast {device} soft in")));
    Ok(vec![vtysh(vty_socket, &lines)])
}

/// Whether a prefix is in a list: `ip prefix-list NAME seq 5 permit 10.2.0.2/32`.
fn is_listed(configured: &str, name: &str, to: &str) -> bool {
    let start = format!("ip prefix-list {name} ");
    configured.lines().any(|line| line.starts_with(&start) && line.trim_end().ends_with(to))
}

/// Prefixes in lists of ours.
pub(crate) fn listed(configured: &str) -> Vec<String> {
    let start = format!("ip prefix-list {PREFIX}");
    let lines = configured.lines().filter(|line| line.starts_with(&start));
    lines.filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// A command line for a shell, whatever the router's names are.
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
