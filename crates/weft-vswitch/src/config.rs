//! The configuration of a daemon, a TOML file.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use weft_evpn::{ParseRouteTargetError, RouteTarget};
use weft_vpc::{NetworkConfig, Policies, Vni};

use crate::evpn::EvpnSettings;
use crate::fleet::{FleetSettings, PortPoliciesObject};
use crate::flow_log::FlowLogSettings;

mod claim;
mod encryption;
mod error;
mod host;
mod line;
mod mac;
mod port;
mod route;

pub(crate) use claim::Claim;
pub use encryption::Encryption;
pub use error::ConfigError;
pub(crate) use error::value;
pub use host::Host;
pub use mac::{Mac, ParseMacError};
pub use port::{Port, Tap, VhostUser};
pub(crate) use route::Routes;
pub use route::{Destination, ParseDestinationError, Route, Row};

/// The default control socket of a daemon.
pub const CONTROL: &str = "/run/weft/vpc.sock";

/// The default file of changes made by command, for a daemon at [`CONTROL`].
pub const STATE: &str = "/var/lib/weft/vpc.json";

/// The configuration of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// This host.
    pub host: Host,
    /// Tenants' networks.
    #[serde(default, rename = "network")]
    pub networks: Vec<Network>,
    /// Tenants' interfaces.
    #[serde(default, rename = "port")]
    pub ports: Vec<Port>,
    /// The places of machines and the next hops of prefixes.
    #[serde(default, rename = "route")]
    pub routes: Vec<Route>,
    /// Access lists and security groups that ports name.
    #[serde(flatten)]
    pub policies: Policies,
    /// The flow logs of its ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_log: Option<FlowLogSettings>,
    /// The fleet in etcd that this host belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSettings>,
    /// This host as a BGP speaker, which shares networks with routers by EVPN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evpn: Option<EvpnSettings>,
    /// The security groups of ports added by command, which only the fleet has.
    #[serde(skip)]
    pub port_policies: Vec<PortPoliciesObject>,
}

/// A tenant's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    /// The network's number, 24 bits.
    pub vni: u32,
    /// `true` if lost frames are retransmitted.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// `true` if tenants see frames in the order they were sent.
    #[serde(default = "yes")]
    pub in_order: bool,
    /// `false` to drop frames for machines whose place is unknown, instead of sending them to all `peers`: for networks whose
    /// machines all have a `[[route]]` or a port.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub flood: bool,
    /// The other hosts that have ports of the network.
    #[serde(default)]
    pub peers: BTreeSet<IpAddr>,
    /// The gateway's address in each subnet, with its prefix length: `192.168.7.254/24`. Every host answers
    /// for it, and forwards packets for other subnets. All hosts need the same list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// `true` to share the network with routers by EVPN, for a host with `[evpn]`. Hosts that are not in `peers` and are known
    /// by their routes alone get plain VXLAN, unencrypted whatever the encryption's mode is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub evpn: bool,
    /// The route targets of the network's routes, announced and imported: `65000:100`. Without any, those of this host's AS
    /// number and the network's number are announced, and those of any AS number and the network's number imported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub route_targets: Vec<String>,
}

fn yes() -> bool {
    true
}

const fn is_true(flag: &bool) -> bool {
    *flag
}

const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|cause| ConfigError::Unreadable { file: file.into(), cause })?;
        let malformed = |cause| malformed(file, &text, cause);
        let config: Self = match toml::from_str(&text) {
            Err(_) if has_old_seal(&text) => {
                return Err(ConfigError::OldSeal { file: file.into() });
            }
            config => config.map_err(malformed)?,
        };
        config.check().map_err(|cause| cause.in_file(file, &text))?;
        Ok(config)
    }

    /// Checks every value by itself and against the others.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.host.encryption.settings()?;
        self.host.transport()?;
        self.host.check_threads()?;
        self.check_fleet()?;
        self.flow_log.as_ref().map_or(Ok(()), FlowLogSettings::check)?;
        self.evpn.iter().try_for_each(|evpn| evpn.check(&self.host))?;
        self.policies.check()?;
        let mut numbers = BTreeSet::new();
        for (index, network) in self.networks.iter().enumerate() {
            self.check_network(network, &mut numbers).map_err(|error| error.in_table(index))?;
        }
        let mut claims = BTreeSet::new();
        for (index, port) in self.ports.iter().enumerate() {
            self.check_port(port, &mut claims).map_err(|error| error.in_table(index))?;
        }
        let mut known = BTreeSet::new();
        for (index, route) in self.routes.iter().enumerate() {
            check_route(route, &mut known).map_err(|error| error.in_table(index))?;
        }
        Ok(())
    }

    fn check_fleet(&self) -> Result<(), ConfigError> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        fleet.check()?;
        if fleet.identities && self.host.encryption.identity.is_none() {
            let expected = "`identity` in [host.encryption] with it, the file of a key that stays";
            return Err(value("fleet.identities", true, expected));
        }
        Ok(())
    }

    fn check_network(
        &self,
        network: &Network,
        numbers: &mut BTreeSet<u32>,
    ) -> Result<(), ConfigError> {
        network.vni()?;
        if !numbers.insert(network.vni) {
            return Err(value("network.vni", network.vni, "one table of a network at most"));
        }
        network.gateways()?;
        if network.peers.contains(&self.host.address) {
            return Err(value("network.peers", self.host.address, "other hosts only"));
        }
        if network.evpn && self.evpn.is_none() {
            return Err(value("network.evpn", true, "[evpn] with it, the host's BGP neighbours"));
        }
        network.route_targets()?;
        if !network.evpn && !network.route_targets.is_empty() {
            let targets = network.route_targets.join(", ");
            return Err(value("network.route-targets", targets, "`evpn = true` with it"));
        }
        Ok(())
    }

    fn check_port(&self, port: &Port, claims: &mut BTreeSet<Claim>) -> Result<(), ConfigError> {
        port.check()?;
        self.host.check_mirror(port)?;
        let own = port.claims();
        if let Some(taken) = own.intersection(claims).next() {
            return Err(taken.is_taken());
        }
        claims.extend(own);
        let named = |cause| {
            let cause = Box::new(cause);
            ConfigError::PortPolicies { name: port.name.clone(), cause }
        };
        self.policies.acl_of(&port.policies).map_err(named)?;
        self.policies.groups_of(&port.policies).map_err(named)?;
        port.policies.check().map_err(|error| named(error.into()))
    }
}

fn check_route(route: &Route, known: &mut BTreeSet<(u32, Destination)>) -> Result<(), ConfigError> {
    vni("route.vni", route.vni)?;
    if !known.insert((route.vni, route.destination())) {
        return Err(value("route", route.destination(), "one row of a network at most"));
    }
    Ok(())
}

/// Returns the error of a text that is no configuration. The reader of TOML knows neither the line nor the other keys of
/// a table whose keys belong to several structures, so that these are searched for here.
fn malformed(file: &Path, text: &str, cause: toml::de::Error) -> ConfigError {
    let unknown = cause.message().strip_prefix("unknown field `");
    let unknown = unknown.and_then(|rest| rest.trim_end().strip_suffix('`'));
    // Where the reader knows the other keys, its message goes on with them.
    let Some(key) = unknown.filter(|key| !key.contains('`')).map(str::to_owned) else {
        return ConfigError::Malformed { file: file.into(), cause };
    };
    let root: toml::Table = toml::from_str(text).unwrap_or_default();
    let schema = if root.contains_key(&key) { schema_for!(Config) } else { schema_for!(Port) };
    let properties = schema.get("properties").and_then(|it| it.as_object());
    let known = properties.into_iter().flat_map(|it| it.keys().cloned()).collect();
    ConfigError::UnknownKey { key, known }.in_file(file, text)
}

/// Returns `true` if a file has the table of encryption under its former name.
fn has_old_seal(text: &str) -> bool {
    let table: Result<toml::Table, _> = toml::from_str(text);
    table.is_ok_and(|table| table.get("host").is_some_and(|host| host.get("seal").is_some()))
}

fn vni(key: &str, number: u32) -> Result<Vni, ConfigError> {
    Vni::new(number).ok_or_else(|| value(key, number, "0 to 16777215"))
}

impl Network {
    /// Returns the network's number.
    ///
    /// # Errors
    /// The number has more than 24 bits.
    pub fn vni(&self) -> Result<Vni, ConfigError> {
        vni("network.vni", self.vni)
    }

    /// Returns the gateway's addresses with their prefix lengths.
    ///
    /// # Errors
    /// The first text that is no address with a prefix length.
    pub fn gateways(&self) -> Result<Vec<(IpAddr, u8)>, ConfigError> {
        self.gateways.iter().map(|text| address("network.gateways", text)).collect()
    }

    /// Returns the route targets of the network's routes.
    ///
    /// # Errors
    /// The first text that is no route target.
    pub fn route_targets(&self) -> Result<BTreeSet<RouteTarget>, ConfigError> {
        let parse = |text: &String| {
            let refused = |error: ParseRouteTargetError| {
                value("network.route-targets", text, error.to_string())
            };
            text.parse().map_err(refused)
        };
        self.route_targets.iter().map(parse).collect()
    }

    /// Returns the network's configuration in the switch.
    pub fn switch_config(&self) -> NetworkConfig {
        NetworkConfig { reliable: self.reliable, in_order: self.in_order, flood: self.flood }
    }
}

/// Parses an address and its prefix length.
fn address(key: &str, text: &str) -> Result<(IpAddr, u8), ConfigError> {
    let parse = || {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let max_length = if address.is_ipv4() { 32 } else { 128 };
        let length = length.parse().ok().filter(|&length: &u8| length <= max_length)?;
        Some((address, length))
    };
    parse().ok_or_else(|| value(key, text, "an address and its prefix: 192.168.0.1/24"))
}

#[cfg(test)]
mod tests;
