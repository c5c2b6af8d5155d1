//! The result of ADD, in the forms of all versions of the specification.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cidr::Cidr;
use crate::version::Version;

/// A container's interfaces, addresses and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its interfaces; those of plugins for addresses have none.
    #[serde(default, deserialize_with = "list")]
    pub interfaces: Vec<Interface>,
    /// Its addresses.
    #[serde(default, deserialize_with = "list")]
    pub ips: Vec<Ip>,
    /// Its routes.
    #[serde(default, deserialize_with = "list")]
    pub routes: Vec<Route>,
    /// Its name servers.
    #[serde(default)]
    pub dns: Dns,
}

/// An interface of a container, or of the host for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Its MTU, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The container's namespace; empty for an interface of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// The socket of an interface in user space.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// The address of a device on the PCI bus.
    #[serde(default, rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

/// An address of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// The address with the prefix length of its subnet.
    pub address: Cidr,
    /// The router of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The index of its interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<i64>,
}

/// A route of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination.
    pub dst: Cidr,
    /// The next hop; the gateway of an address of the same family if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The MTU on the route, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The largest TCP segment to announce, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// The priority, the lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// Name servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Their addresses.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The domain of short names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// The domains to search.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The addresses of one family in a result before version 0.3.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Family {
    ip: Cidr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

/// Reads a list, which programs in Go write as `null` where it is empty.
fn list<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Attachment {
    /// Parses a result of any version.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let why = |error: serde_json::Error| error.to_string();
        let mut result: Self = serde_json::from_value(value.clone()).map_err(why)?;
        for key in ["ip4", "ip6"] {
            let Some(family) = value.get(key).filter(|value| !value.is_null()) else { continue };
            let family: Family = serde_json::from_value(family.clone()).map_err(why)?;
            let Family { ip: address, gateway, routes } = family;
            result.ips.push(Ip { address, gateway, interface: None });
            result.routes.extend(routes);
        }
        Ok(result)
    }

    /// Returns the result in the form of a version.
    pub fn to_json(&self, version: Version) -> Value {
        let mut object = match version {
            Version::V0_1_0 | Version::V0_2_0 => self.families(),
            _ => self.lists(version),
        };
        object.insert("cniVersion".into(), version.number().into());
        object.insert("dns".into(), json!(self.dns));
        Value::Object(object)
    }

    /// Returns the form before version 0.3.0: the first address of each family with its routes.
    fn families(&self) -> Map<String, Value> {
        let family = |is_v4: bool| {
            let ip = self.ips.iter().find(|ip| ip.address.address.is_ipv4() == is_v4)?;
            let routes = self.routes.iter().filter(|it| it.dst.address.is_ipv4() == is_v4);
            let routes = routes.map(|it| Route { dst: it.dst, gw: it.gw, ..Route::to(it.dst) });
            Some(Family { ip: ip.address, gateway: ip.gateway, routes: routes.collect() })
        };
        let rows = [("ip4", family(true)), ("ip6", family(false))];
        rows.into_iter().filter_map(|(key, it)| Some((key.to_owned(), json!(it?)))).collect()
    }

    /// Returns the form since version 0.3.0.
    fn lists(&self, version: Version) -> Map<String, Value> {
        let is_new = version >= Version::V1_1_0;
        let interface = |it: &Interface| match is_new {
            true => json!(it),
            false => json!(Interface {
                name: it.name.clone(),
                mac: it.mac.clone(),
                sandbox: it.sandbox.clone(),
                ..Interface::default()
            }),
        };
        let ip = |it: &Ip| {
            let mut object = json!(it);
            if version < Version::V1_0_0 {
                object["version"] = if it.address.address.is_ipv4() { "4" } else { "6" }.into();
            }
            object
        };
        let route = |it: &Route| match is_new {
            true => json!(it),
            false => json!(Route { gw: it.gw, ..Route::to(it.dst) }),
        };
        let rows: [(&str, Vec<Value>); 3] = [
            ("interfaces", self.interfaces.iter().map(interface).collect()),
            ("ips", self.ips.iter().map(ip).collect()),
            ("routes", self.routes.iter().map(route).collect()),
        ];
        let filled = rows.into_iter().filter(|(_, list)| !list.is_empty());
        filled.map(|(key, list)| (key.to_owned(), Value::Array(list))).collect()
    }

    /// Returns the index of an interface of a namespace.
    pub fn interface_in(&self, sandbox: &str, name: &str) -> Option<usize> {
        self.interfaces.iter().position(|it| it.name == name && it.sandbox == sandbox)
    }

    /// Returns the addresses of the interface with an index.
    pub fn ips_of(&self, index: usize) -> impl Iterator<Item = &Ip> {
        let has_index =
            move |ip: &&Ip| ip.interface.is_some_and(|it| usize::try_from(it) == Ok(index));
        self.ips.iter().filter(has_index)
    }

    /// Returns the next hop of a route: its own, or the gateway of the first address of its family.
    pub fn gateway_of(&self, route: &Route) -> Option<IpAddr> {
        let is_v4 = route.dst.address.is_ipv4();
        let of_family = |ip: &&Ip| ip.address.address.is_ipv4() == is_v4;
        route.gw.or_else(|| self.ips.iter().filter(of_family).find_map(|ip| ip.gateway))
    }
}

impl Route {
    /// Returns a route without a next hop of its own.
    pub fn to(dst: Cidr) -> Self {
        Self { dst, gw: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Attachment {
        let route = Route {
            gw: Some("10.1.0.1".parse().unwrap()),
            mtu: Some(1300),
            ..Route::to("0.0.0.0/0".parse().unwrap())
        };
        Attachment {
            interfaces: vec![Interface {
                name: "eth0".into(),
                mac: "02:00:00:00:00:01".into(),
                mtu: Some(1378),
                sandbox: "/run/netns/a".into(),
                ..Interface::default()
            }],
            ips: vec![Ip {
                address: "10.1.0.2/16".parse().unwrap(),
                gateway: Some("10.1.0.1".parse().unwrap()),
                interface: Some(0),
            }],
            routes: vec![route],
            dns: Dns { nameservers: vec!["10.1.0.1".into()], ..Dns::default() },
        }
    }

    #[test]
    fn each_version_has_the_form_of_its_specification() {
        let old = example().to_json(Version::V0_2_0);
        let expected = json!({
            "cniVersion": "0.2.0",
            "ip4": { "ip": "10.1.0.2/16", "gateway": "10.1.0.1", "routes": [{ "dst": "0.0.0.0/0", "gw": "10.1.0.1" }] },
            "dns": { "nameservers": ["10.1.0.1"] },
        });
        assert_eq!(old, expected);
        let middle = example().to_json(Version::V0_4_0);
        assert_eq!(middle["ips"][0]["version"], "4");
        assert_eq!(middle["interfaces"][0].get("mtu"), None);
        let newer = example().to_json(Version::V1_0_0);
        assert_eq!((newer["ips"][0].get("version"), newer["routes"][0].get("mtu")), (None, None));
        let newest = example().to_json(Version::V1_1_0);
        assert_eq!(newest["interfaces"][0]["mtu"], 1378);
        assert_eq!(newest["routes"][0]["mtu"], 1300);
    }

    #[test]
    fn a_result_is_read_back_from_the_forms_of_all_versions() {
        for version in Version::ALL {
            let read = Attachment::parse(&example().to_json(version)).unwrap();
            assert_eq!(read.ips[0].address, example().ips[0].address, "{version}");
            assert_eq!(read.routes[0].gw, example().routes[0].gw, "{version}");
        }
        assert_eq!(Attachment::parse(&example().to_json(Version::V1_1_0)).unwrap(), example());
        // As programs in Go write empty lists.
        let go = json!({ "interfaces": null, "ips": [{ "address": "10.1.0.2/16" }], "routes": null, "dns": {} });
        assert_eq!(Attachment::parse(&go).unwrap().ips.len(), 1);
    }
}
