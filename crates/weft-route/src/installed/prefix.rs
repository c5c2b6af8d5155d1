//! IPv4 and IPv6 prefixes in the notation of routing tables.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A network: an address whose bits beyond `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// The error for a text that is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a prefix such as 10.1.0.0/16, 10.1.0.2 or fd00:1::/32: {reason}")]
pub struct PrefixError {
    text: String,
    reason: &'static str,
}

impl Prefix {
    /// All IPv4 addresses: the default route.
    pub const ALL: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All IPv6 addresses.
    pub const ALL6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// Returns the prefix of `len` bits that contains `address`; further bits of the address are cleared. Returns
    /// `None` if `len` is above the 32 bits of IPv4 or the 128 of IPv6.
    pub fn new(address: impl Into<IpAddr>, len: u8) -> Option<Self> {
        let address = address.into();
        if len > bits(address) {
            return None;
        }
        Some(Self { address: masked(address, len), len })
    }

    /// Returns the prefix of one address: a /32 or a /128.
    pub fn host(address: impl Into<IpAddr>) -> Self {
        let address = address.into();
        Self { address, len: bits(address) }
    }

    /// Returns the lowest address.
    pub const fn first(self) -> IpAddr {
        self.address
    }

    /// Returns the highest address.
    pub const fn last(self) -> IpAddr {
        match self.address {
            IpAddr::V4(it) => IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() | !mask4(self.len))),
            IpAddr::V6(it) => IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() | !mask6(self.len))),
        }
    }

    /// Returns the prefix length in bits.
    #[expect(clippy::len_without_is_empty, reason = "the length of a prefix is a number of bits")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Returns `true` if the prefix contains one address.
    pub const fn is_host(self) -> bool {
        self.len == bits(self.address)
    }

    /// Returns `true` if the prefix contains `address`.
    pub fn contains(self, address: impl Into<IpAddr>) -> bool {
        let address = address.into();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.len) == self.address
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

const fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(it) => IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & mask4(len))),
        IpAddr::V6(it) => IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask6(len))),
    }
}

const fn mask4(len: u8) -> u32 {
    match len {
        0 => 0,
        1..=32 => u32::MAX << (32 - len),
        _ => u32::MAX,
    }
}

const fn mask6(len: u8) -> u128 {
    match len {
        0 => 0,
        1..=128 => u128::MAX << (128 - len),
        _ => u128::MAX,
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Reads `10.1.0.0/16` or `fd00:1::/32`. An address alone is one host, as `ip route` prints it, and `default` is
    /// all of IPv4 ([`Self::ALL6`] is written `::/0`).
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let error = |reason| {
            let text = text.chars().take(60).collect();
            PrefixError { text, reason }
        };
        if text == "default" {
            return Ok(Self::ALL);
        }
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error("the address is invalid"))?;
        let Some(len) = len else { return Ok(Self::host(address)) };
        let digits = len.bytes().all(|byte| byte.is_ascii_digit());
        let len = len.parse().ok().filter(|&len: &u8| digits && len <= bits(address));
        let len = len.ok_or_else(|| match address {
            IpAddr::V4(_) => error("the length is not 0 to 32"),
            IpAddr::V6(_) => error("the length is not 0 to 128"),
        })?;
        if address != masked(address, len) {
            return Err(error("bits beyond the length are set"));
        }
        Ok(Self { address, len })
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{self}"))
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
weft_units::text_schema! {
    Prefix: "Prefix", "An address with or without its prefix length such as 10.9.0.0/16, or `default`", r"^default$|^[0-9a-fA-F.:]+(/[0-9]{1,3})?$";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_read_back_as_they_are_written() {
        for text in [
            "0.0.0.0/0",
            "10.1.0.0/16",
            "10.1.0.2/32",
            "128.0.0.0/1",
            "::/0",
            "fd00:1::/32",
            "fd00:1::2/128",
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("default".parse(), Ok(Prefix::ALL));
        assert_eq!("::/0".parse(), Ok(Prefix::ALL6));
        for text in ["10.1.0.2", "fd00:1::2"] {
            assert_eq!(text.parse(), Ok(Prefix::host(address(text))));
        }
    }

    #[test]
    fn invalid_prefixes_are_refused_with_the_reason() {
        for (text, reason) in [
            ("10.1.0.0/33", "the length is not 0 to 32"),
            ("10.1.0.0/+8", "the length is not 0 to 32"),
            ("10.1.0.1/16", "bits beyond the length are set"),
            ("10.1/16", "the address is invalid"),
            ("fd00::/129", "the length is not 0 to 128"),
            ("fd00::1/64", "bits beyond the length are set"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.ends_with(reason), "{error}");
        }
    }

    #[test]
    fn a_prefix_spans_its_addresses() {
        let net: Prefix = "10.1.0.0/16".parse().unwrap();
        assert_eq!((net.first(), net.last()), (address("10.1.0.0"), address("10.1.255.255")));
        assert!(net.contains(address("10.1.18.52")) && !net.contains(address("10.2.0.0")));
        assert_eq!(Prefix::ALL.last(), address("255.255.255.255"));
        let net: Prefix = "fd00:1::/32".parse().unwrap();
        assert_eq!(net.last(), address("fd00:1:ffff:ffff:ffff:ffff:ffff:ffff"));
        assert!(net.contains(address("fd00:1:2::3")) && !net.contains(address("fd00:2::")));
    }

    #[test]
    fn families_are_apart() {
        assert!(
            !Prefix::ALL.contains(address("::1")) && !Prefix::ALL6.contains(address("1.2.3.4"))
        );
        assert_ne!(Prefix::ALL, Prefix::ALL6);
    }
}
