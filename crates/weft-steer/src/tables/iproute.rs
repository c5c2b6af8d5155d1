//! The JSON output of iproute2 (`-j`), as far as forwarding depends on it.

use std::net::IpAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::fault::{AnswerFault, UnreadablePart};
use super::{SEPARATOR, Shown};
use crate::inventory::is_interface;

/// An entry of `ip -j -d link show`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Link {
    pub(crate) ifindex: u32,
    pub(crate) ifname: String,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    #[serde(default)]
    pub(crate) operstate: String,
    #[serde(default)]
    pub(crate) link_type: String,
}

/// A route of `ip -j route show`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RouteEntry {
    pub(crate) dst: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) protocol: String,
    #[serde(default)]
    pub(crate) metric: u32,
    /// The nexthop object of the route, if it uses one.
    #[serde(default)]
    pub(crate) nhid: Option<u32>,
    /// The only next hop of a route that has no list.
    #[serde(flatten)]
    pub(crate) only: NextHop,
    #[serde(default)]
    pub(crate) nexthops: Vec<NextHop>,
}

/// A next hop of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct NextHop {
    #[serde(default)]
    pub(crate) gateway: Option<IpAddr>,
    /// A neighbour of another family: IPv6 for unnumbered BGP sessions.
    #[serde(default)]
    pub(crate) via: Option<Via>,
    #[serde(default)]
    pub(crate) dev: Option<String>,
    #[serde(default = "one")]
    pub(crate) weight: u32,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Via {
    pub(crate) family: String,
    pub(crate) host: IpAddr,
}

const fn one() -> u32 {
    1
}

/// An entry of `ip -j nexthop show`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NextHopObject {
    pub(crate) id: u32,
    #[serde(flatten)]
    pub(crate) hop: NextHop,
    #[serde(default)]
    pub(crate) blackhole: Option<serde_json::Value>,
    #[serde(default)]
    pub(crate) group: Vec<GroupMember>,
    #[serde(rename = "type", default)]
    pub(crate) kind: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GroupMember {
    pub(crate) id: u32,
    #[serde(default = "one")]
    pub(crate) weight: u32,
}

/// An entry of `ip -j nexthop bucket show`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BucketEntry {
    /// The group.
    pub(crate) id: u32,
    pub(crate) bucket: Bucket,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) index: usize,
    pub(crate) nhid: u32,
}

/// An entry of `ip -j neighbour show`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Neighbour {
    pub(crate) dst: IpAddr,
    #[serde(default)]
    pub(crate) dev: String,
    #[serde(default)]
    pub(crate) state: Vec<String>,
}

impl NextHop {
    /// Returns the neighbour's address, of either family.
    pub(crate) fn neighbour(&self) -> Option<IpAddr> {
        self.gateway.or_else(|| self.via.as_ref().map(|via| via.host))
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    /// Returns `true` if all of its words are safe in a shell script.
    pub(crate) fn is_plain(&self) -> bool {
        let family = self.via.as_ref().map_or("inet6", |via| &via.family);
        self.dev.as_deref().is_none_or(is_interface) && matches!(family, "inet" | "inet6")
    }

    /// Returns the words that make `ip route` install the same next hop; `None` without an interface.
    pub(crate) fn words(&self) -> Option<String> {
        let device = self.dev.as_ref()?;
        let via = match (&self.gateway, &self.via) {
            (Some(gateway), _) => format!("via {gateway} "),
            (None, Some(via)) => format!("via {} {} ", via.family, via.host),
            (None, None) => String::new(),
        };
        let onlink = if self.has("onlink") { " onlink" } else { "" };
        Some(format!("{via}dev {device}{onlink}"))
    }
}

impl RouteEntry {
    /// Converts a route of the IPv6 table; `None` for link-local prefixes, which are a different network on each link.
    fn of_ipv6(self) -> Option<Self> {
        let dst = if self.dst == "default" { String::from("::/0") } else { self.dst };
        let is_of_link = dst.starts_with("fe80:");
        (!is_of_link).then_some(Self { dst, ..self })
    }

    /// Returns its next hops in the kernel's order.
    pub(crate) fn hops(&self) -> Vec<NextHop> {
        if !self.nexthops.is_empty() {
            return self.nexthops.clone();
        }
        self.only.dev.iter().map(|_| self.only.clone()).collect()
    }
}

/// Parses the output of the script of the parent module. Returns the tables, and the text after them.
///
/// # Errors
/// Returns the part that cannot be parsed, and the reason.
pub(crate) fn parse(text: &str) -> Result<(Shown, &str), UnreadablePart> {
    let mut parts = text.split(SEPARATOR);
    let mut part = |what| parts.next().ok_or(UnreadablePart { what, fault: AnswerFault::Ends });
    let mut shown = Shown {
        links: list("its links", part("its links")?)?,
        routes: list("its routes", part("its routes")?)?,
        nexthops: list("its nexthop objects", part("its nexthop objects")?)?,
        buckets: list("its buckets", part("its buckets")?)?,
        neighbours: list("its neighbours", part("its neighbours")?)?,
        sysctls: sysctls(part("its sysctls")?)?,
        speeds: part("its speeds")?.lines().filter_map(speed).collect(),
        sysctls6: [None; 3],
        filtered: vec![],
    };
    let routes6: Vec<RouteEntry> = list("its IPv6 routes", part("its IPv6 routes")?)?;
    shown.routes.extend(routes6.into_iter().filter_map(RouteEntry::of_ipv6));
    shown.sysctls6 = sysctls(part("its IPv6 sysctls")?)?;
    Ok((shown, parts.next().unwrap_or_default()))
}

/// Parses a list; iproute2 prints some empty lists as no text.
fn list<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<Vec<T>, UnreadablePart> {
    if text.trim().is_empty() {
        return Ok(vec![]);
    }
    // iproute2 prints an empty object for each entry that the command's filter excludes.
    let wrong = |error: serde_json::Error| UnreadablePart { what, fault: error.into() };
    let values: Vec<serde_json::Value> = serde_json::from_str(text).map_err(wrong)?;
    let full = values.into_iter().filter(|value| value.as_object().is_none_or(|it| !it.is_empty()));
    full.map(|value| serde_json::from_value(value).map_err(wrong)).collect()
}

fn sysctls<const N: usize>(text: &str) -> Result<[Option<u32>; N], UnreadablePart> {
    let wrong = |line: &str| UnreadablePart {
        what: "its sysctls",
        fault: AnswerFault::NoNumber(line.to_owned()),
    };
    let mut lines = text.trim_start_matches('\n').lines();
    let mut numbers = [None; N];
    for number in &mut numbers {
        *number = match lines.next().unwrap_or_default().trim() {
            "" => None,
            line => Some(line.parse().map_err(|_| wrong(line))?),
        };
    }
    Ok(numbers)
}

/// Parses a line such as `eth0 10000`; without carrier or limits the kernel reports no speed or -1.
fn speed(line: &str) -> Option<(String, u64)> {
    let (device, megabits) = line.trim().split_once(' ')?;
    Some((device.to_owned(), megabits.trim().parse().ok().filter(|&rate| rate > 0)?))
}
