//! A host's addresses: `"10.1.0.2"`, `"fd00:1::2"`, or both in a list.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The addresses of a host: one, or one of each family. A host with two cables has the same addresses at both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addresses {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// Returns the addresses of a host with both families.
    pub const fn both(v4: Ipv4Addr, v6: Ipv6Addr) -> Self {
        Self { v4: Some(v4), v6: Some(v6) }
    }

    /// Returns the IPv4 address, if there is one.
    pub const fn v4(&self) -> Option<Ipv4Addr> {
        self.v4
    }

    /// Returns the IPv6 address, if there is one.
    pub const fn v6(&self) -> Option<Ipv6Addr> {
        self.v6
    }

    /// Returns all addresses, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }
}

impl From<IpAddr> for Addresses {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(it) => Self { v4: Some(it), v6: None },
            IpAddr::V6(it) => Self { v4: None, v6: Some(it) },
        }
    }
}

impl From<Ipv4Addr> for Addresses {
    fn from(address: Ipv4Addr) -> Self {
        IpAddr::V4(address).into()
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, address) in self.iter().enumerate() {
            let between = if place == 0 { "" } else { ", " };
            write!(out, "{between}{address}")?;
        }
        Ok(())
    }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (self.v4, self.v6) {
            (Some(v4), Some(v6)) => (v4, v6).serialize(to),
            (Some(v4), None) => v4.serialize(to),
            (None, v6) => v6.serialize(to),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Addresses {
    fn schema_name() -> alloc::borrow::Cow<'static, str> {
        "Addresses".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

/// An address, or one of each family.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Written {
    One(String),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = match Written::deserialize(from)? {
            Written::One(address) => alloc::vec![address],
            Written::List(list) => list,
        };
        let wrong = |text: String| serde::de::Error::custom(text);
        let mut found = Self { v4: None, v6: None };
        for text in &list {
            let address = text
                .parse()
                .map_err(|_| wrong(alloc::format!("{text:?} is no IPv4 or IPv6 address")))?;
            let twice = match address {
                IpAddr::V4(it) => found.v4.replace(it).is_some(),
                IpAddr::V6(it) => found.v6.replace(it).is_some(),
            };
            if twice {
                let text = alloc::format!("{text:?} is the host's second address of its family");
                return Err(wrong(text));
            }
        }
        if list.is_empty() {
            return Err(wrong("a host has at least one address".into()));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Table {
        host: Addresses,
    }

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for text in [
            "host = \"10.1.0.2\"\n",
            "host = \"fd00:1::2\"\n",
            "host = [\"10.1.0.2\", \"fd00:1::2\"]\n",
        ] {
            let table: Table = toml::from_str(text).unwrap();
            assert_eq!(toml::to_string(&table).unwrap(), text);
        }
        let both: Table = toml::from_str("host = ['fd00::1', '1.2.3.4']").unwrap();
        assert_eq!(both.host.to_string(), "1.2.3.4, fd00::1");
    }

    #[test]
    fn invalid_host_addresses_are_refused() {
        for (text, words) in [
            ("host = []", "at least one"),
            ("host = ['1.2.3.4', '1.2.3.5']", "second address"),
            ("host = 'h0'", "\"h0\" is no IPv4 or IPv6 address"),
        ] {
            let error = toml::from_str::<Table>(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
