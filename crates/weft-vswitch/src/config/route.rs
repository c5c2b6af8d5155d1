//! The configured routes of a host's networks: the host of each machine, and the next hop of each
//! prefix. The host need not learn them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use weft_vpc::{ParsePrefixError, Prefix};

use super::{Config, Mac, ParseMacError};

/// A row of a network's table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Route {
    /// The network's number.
    pub vni: u32,
    /// The row's content.
    pub row: Row,
}

/// The content of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// The place of a machine.
    Machine {
        /// The machine's Ethernet address.
        mac: Mac,
        /// The host that has it.
        peer: IpAddr,
        /// Its own IP addresses: this host answers address resolution for them, and the gateway finds the
        /// machine by them.
        addresses: BTreeSet<IpAddr>,
    },
    /// The gateway's next hop for a prefix.
    Prefix {
        /// The destinations.
        to: Prefix,
        /// The address of a machine in this network.
        via: IpAddr,
    },
}

/// The destination of a row; a network has at most one row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Destination {
    /// A machine.
    Machine(Mac),
    /// A prefix.
    Prefix(Prefix),
}

/// Routes by network and destination.
pub(crate) type Routes = BTreeMap<(u32, Destination), Route>;

impl Config {
    /// Returns a copy without the routes, of which there may be many.
    pub(crate) fn without_routes(&self) -> Self {
        let Self {
            host,
            networks,
            ports,
            routes: _,
            policies,
            flow_log,
            fleet,
            evpn,
            port_policies,
        } = self;
        Self {
            host: host.clone(),
            networks: networks.clone(),
            ports: ports.clone(),
            routes: vec![],
            policies: policies.clone(),
            flow_log: flow_log.clone(),
            fleet: fleet.clone(),
            evpn: evpn.clone(),
            port_policies: port_policies.clone(),
        }
    }
}

impl Route {
    /// Returns the row of a machine of which only the Ethernet address is known.
    pub fn to_machine(vni: u32, mac: Mac, peer: IpAddr) -> Self {
        Self { vni, row: Row::Machine { mac, peer, addresses: BTreeSet::new() } }
    }

    /// Returns the row's destination.
    pub fn destination(&self) -> Destination {
        match self.row {
            Row::Machine { mac, .. } => Destination::Machine(mac),
            Row::Prefix { to, .. } => Destination::Prefix(to),
        }
    }
}

impl From<Prefix> for Destination {
    fn from(prefix: Prefix) -> Self {
        Self::Prefix(prefix)
    }
}

/// The error of a text that is neither an Ethernet address nor a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDestinationError {
    /// It has the form of an Ethernet address, but is not one.
    #[error(transparent)]
    Mac(#[from] ParseMacError),
    /// It is not a prefix.
    #[error("{0}, and no Ethernet address such as 02:00:00:00:00:01")]
    Prefix(ParsePrefixError),
}

impl FromStr for Destination {
    type Err = ParseDestinationError;

    fn from_str(text: &str) -> Result<Self, ParseDestinationError> {
        if text.split([':', '-']).count() == 6 && !text.contains('/') {
            return Ok(Self::Machine(text.parse()?));
        }
        text.parse().map(Self::Prefix).map_err(ParseDestinationError::Prefix)
    }
}

impl TryFrom<String> for Destination {
    type Error = ParseDestinationError;

    fn try_from(text: String) -> Result<Self, ParseDestinationError> {
        text.parse()
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(mac) => mac.fmt(out),
            Self::Prefix(prefix) => prefix.fmt(out),
        }
    }
}

/// The form of a row in a file: `mac` and `peer`, or `to` and `via`.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Fields {
    /// The network's number.
    vni: u32,
    /// A machine's Ethernet address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<Mac>,
    /// The host that has the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    /// The machine's own IP addresses.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    addresses: BTreeSet<IpAddr>,
    /// The destinations of the gateway's packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Prefix>,
    /// The address of the machine that is their next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    via: Option<IpAddr>,
}

impl JsonSchema for Route {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Route".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Fields::json_schema(generator)
    }
}

/// The error of a row whose fields do not belong together.
#[derive(Debug, thiserror::Error)]
#[error(
    "a route of network {vni}: expected either `mac` and `peer`, perhaps with `addresses`, or `to` and `via`"
)]
struct FieldsError {
    vni: u32,
}

impl TryFrom<Fields> for Route {
    type Error = FieldsError;

    fn try_from(fields: Fields) -> Result<Self, FieldsError> {
        let Fields { vni, mac, peer, addresses, to, via } = fields;
        let row = match (mac, peer, to, via) {
            (Some(mac), Some(peer), None, None) => Row::Machine { mac, peer, addresses },
            (None, None, Some(to), Some(via)) if addresses.is_empty() => Row::Prefix { to, via },
            _ => return Err(FieldsError { vni }),
        };
        Ok(Self { vni, row })
    }
}

impl From<Route> for Fields {
    fn from(Route { vni, row }: Route) -> Self {
        let fields = Self { vni, ..Self::default() };
        match row {
            Row::Machine { mac, peer, addresses } => {
                Self { mac: Some(mac), peer: Some(peer), addresses, ..fields }
            }
            Row::Prefix { to, via } => Self { to: Some(to), via: Some(via), ..fields },
        }
    }
}
