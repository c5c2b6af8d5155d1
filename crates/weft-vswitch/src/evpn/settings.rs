//! The table `[evpn]` of a host's file.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_evpn::{MIN_HOLD_TIME, NeighbourConfig, SpeakerConfig};
use weft_units::Duration;
use weft_wire::VxlanHeader;

use crate::config::{ConfigError, Host, value};

/// The TCP port of BGP (RFC 4271).
const BGP_PORT: u16 = 179;
/// The longest hold time that an OPEN has room for.
const MAX_HOLD_TIME: Duration = Duration::from_secs(65_535);
/// The largest number of routes of a neighbour: some 50 MB.
const MAX_ROUTES: u32 = 1_000_000;

/// This host as a BGP speaker, which shares the networks with `evpn = true` with routers and other hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EvpnSettings {
    /// The AS number of this host.
    #[serde(rename = "as")]
    pub asn: u32,
    /// The BGP identifier of this host, which no other speaker has. By default the host's address, if that is IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<Ipv4Addr>,
    /// The route reflectors or routers that this host connects to.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<EvpnNeighbour>,
}

/// A route reflector or a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EvpnNeighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    #[serde(rename = "as")]
    pub asn: u32,
    /// Its TCP port.
    #[serde(default = "bgp_port")]
    pub port: u16,
    /// The time without a message after which it counts as dead, whole seconds. The shorter one of both ends is in force.
    #[serde(default = "hold_time")]
    pub hold_time: Duration,
    /// The largest number of routes that it may announce. It is left for a minute when it announces more.
    #[serde(default = "max_routes")]
    pub max_routes: u32,
}

const fn bgp_port() -> u16 {
    BGP_PORT
}

const fn hold_time() -> Duration {
    Duration::from_secs(90)
}

const fn max_routes() -> u32 {
    100_000
}

impl EvpnSettings {
    /// Checks every value, also against the host's.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self, host: &Host) -> Result<(), ConfigError> {
        if self.asn == 0 {
            return Err(value("evpn.as", self.asn, "1 to 4294967295"));
        }
        let Some(router_id) = self.router_id(host) else {
            return Err(value("evpn.router-id", "none", "one, since the host's address is IPv6"));
        };
        if router_id.is_unspecified() {
            return Err(value("evpn.router-id", router_id, "an address of this host"));
        }
        if host.port != VxlanHeader::PORT {
            let expected = format!("{} with [evpn]: routes name no port", VxlanHeader::PORT);
            return Err(value("host.port", host.port, expected));
        }
        if self.neighbours.is_empty() {
            return Err(value("evpn.neighbour", "none", "at least one [[evpn.neighbour]]"));
        }
        let mut addresses = BTreeSet::new();
        for neighbour in &self.neighbours {
            neighbour.check(host)?;
            if !addresses.insert(neighbour.address) {
                let expected = "one table of a neighbour at most";
                return Err(value("evpn.neighbour.address", neighbour.address, expected));
            }
        }
        Ok(())
    }

    /// Returns the BGP identifier; `None` if an IPv6 host has none.
    pub fn router_id(&self, host: &Host) -> Option<Ipv4Addr> {
        let own = match host.address {
            IpAddr::V4(own) => Some(own),
            IpAddr::V6(_) => None,
        };
        self.router_id.or(own)
    }

    /// Returns this host's identity in the engine. The settings have been checked.
    pub(super) fn speaker(&self, host: &Host) -> SpeakerConfig {
        let router_id = self.router_id(host).unwrap_or(Ipv4Addr::UNSPECIFIED);
        SpeakerConfig { asn: self.asn, router_id, vtep: host.address }
    }

    /// Returns the neighbours in the engine.
    pub(super) fn neighbours(&self) -> Vec<NeighbourConfig> {
        let config = |neighbour: &EvpnNeighbour| NeighbourConfig {
            address: neighbour.address,
            asn: neighbour.asn,
            hold_time: neighbour.hold_time,
            max_routes: usize::try_from(neighbour.max_routes).unwrap_or(usize::MAX),
        };
        self.neighbours.iter().map(config).collect()
    }

    /// Returns the address and TCP port of a neighbour.
    pub(super) fn socket_of(&self, neighbour: IpAddr) -> Option<SocketAddr> {
        let found = self.neighbours.iter().find(|it| it.address == neighbour)?;
        Some(SocketAddr::new(neighbour, found.port))
    }
}

impl EvpnNeighbour {
    fn check(&self, host: &Host) -> Result<(), ConfigError> {
        let Self { address, asn, port, hold_time, max_routes } = self;
        if *asn == 0 {
            return Err(value("evpn.neighbour.as", asn, "1 to 4294967295"));
        }
        if *address == host.address || address.is_ipv4() != host.address.is_ipv4() {
            let expected = "another address than the host's, of the same family";
            return Err(value("evpn.neighbour.address", address, expected));
        }
        if *port == 0 {
            return Err(value("evpn.neighbour.port", port, "1 to 65535"));
        }
        let is_whole = hold_time.as_nanos().is_multiple_of(1_000_000_000);
        if !is_whole || !(MIN_HOLD_TIME..=MAX_HOLD_TIME).contains(hold_time) {
            let expected = "3s to 65535s, whole seconds";
            return Err(value("evpn.neighbour.hold-time", hold_time, expected));
        }
        if !(1..=MAX_ROUTES).contains(max_routes) {
            let expected = format!("1 to {MAX_ROUTES}");
            return Err(value("evpn.neighbour.max-routes", max_routes, expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn refused(evpn: &str, network: &str) -> Option<String> {
        let text =
            format!("[host]\naddress = '10.1.0.2'\n{evpn}\n[[network]]\nvni = 100\n{network}\n");
        let config: Config = toml::from_str(&text).unwrap();
        config.check().err().map(|error| error.to_string())
    }

    #[test]
    fn wrong_settings_are_refused_with_what_is_expected() {
        let neighbour = |rest: &str| {
            format!(
                "[evpn]\nas = 65001\n[[evpn.neighbour]]\naddress = '10.9.0.1'\nas = 65000\n{rest}"
            )
        };
        assert_eq!(refused(&neighbour(""), "evpn = true"), None);
        let targets = "evpn = true\nroute-targets = ['65000:100', '10.0.0.1:7']";
        assert_eq!(refused(&neighbour("hold-time = '9s'"), targets), None);
        for (evpn, network, expected) in [
            (neighbour("hold-time = '2s'"), "", "evpn.neighbour.hold-time = 2s: expected 3s to"),
            (neighbour("hold-time = '3500ms'"), "", "whole seconds"),
            (neighbour("max-routes = 0"), "", "evpn.neighbour.max-routes = 0: expected 1 to"),
            (neighbour("[[evpn.neighbour]]\naddress = '10.9.0.1'\nas = 1"), "", "one table"),
            (neighbour("[[evpn.neighbour]]\naddress = '10.1.0.2'\nas = 1"), "", "another address"),
            (neighbour("[[evpn.neighbour]]\naddress = 'fd00::1'\nas = 1"), "", "same family"),
            ("[evpn]\nas = 0\nneighbour = []".into(), "", "evpn.as = 0"),
            ("[evpn]\nas = 1\nneighbour = []".into(), "", "at least one [[evpn.neighbour]]"),
            (String::new(), "evpn = true", "network.evpn = true: expected [evpn]"),
            (neighbour(""), "evpn = true\nroute-targets = ['65000']", "65000:100"),
            (neighbour(""), "route-targets = ['65000:100']", "`evpn = true` with it"),
        ] {
            let error = refused(&evpn, network).unwrap_or_default();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
