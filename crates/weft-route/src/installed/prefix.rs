//! IPv4 prefixes as routing tables write them.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An IPv4 network: an address whose bits beyond `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: u32,
    len: u8,
}

/// Why a text is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IPv4 prefix such as 10.1.0.0/16 or 10.1.0.2: {reason}")]
pub struct PrefixError {
    text: String,
    reason: &'static str,
}

impl Prefix {
    /// Everything: the default route.
    pub const ALL: Self = Self { address: 0, len: 0 };

    /// The prefix of `len` bits in which `address` is; further bits of the address are dropped.
    /// None beyond 32 bits.
    pub const fn new(address: u32, len: u8) -> Option<Self> {
        if len > 32 {
            return None;
        }
        Some(Self { address: address & mask(len), len })
    }

    /// One address: a /32.
    pub const fn host(address: u32) -> Self {
        Self { address, len: 32 }
    }

    /// Its lowest address, 10.0.0.1 being `0x0a00_0001`.
    pub const fn first(self) -> u32 {
        self.address
    }

    /// Its highest address.
    pub const fn last(self) -> u32 {
        self.address | !mask(self.len)
    }

    /// How many bits are fixed.
    #[expect(clippy::len_without_is_empty, reason = "the length of a prefix is a number of bits")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Whether `address` is in it.
    pub const fn contains(self, address: u32) -> bool {
        address & mask(self.len) == self.address
    }
}

const fn mask(len: u8) -> u32 {
    match len {
        0 => 0,
        1..=32 => u32::MAX << (32 - len),
        _ => u32::MAX,
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", Ipv4Addr::from_bits(self.address), self.len)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Reads `10.1.0.0/16`; an address alone is a /32, as `ip route` prints it, and `default` is
    /// everything.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let error = |reason| {
            let text = text.chars().take(40).collect();
            PrefixError { text, reason }
        };
        if text == "default" {
            return Ok(Self::ALL);
        }
        let (address, len) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| error("the address is none"))?;
        let digits = len.bytes().all(|byte| byte.is_ascii_digit());
        let len = len.parse().ok().filter(|&len: &u8| digits && len <= 32);
        let len = len.ok_or_else(|| error("the length is not 0 to 32"))?;
        let address = address.to_bits();
        if address & !mask(len) != 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_read_back_as_they_are_written() {
        for text in ["0.0.0.0/0", "10.1.0.0/16", "10.1.0.2/32", "128.0.0.0/1"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("default".parse(), Ok(Prefix::ALL));
        assert_eq!("10.1.0.2".parse(), Ok(Prefix::host(0x0a01_0002)));
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_the_reason() {
        for (text, reason) in [
            ("10.1.0.0/33", "the length is not 0 to 32"),
            ("10.1.0.0/+8", "the length is not 0 to 32"),
            ("10.1.0.1/16", "bits beyond the length are set"),
            ("10.1/16", "the address is none"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.ends_with(reason), "{error}");
        }
    }

    #[test]
    fn a_prefix_spans_its_addresses() {
        let net: Prefix = "10.1.0.0/16".parse().unwrap();
        assert_eq!((net.first(), net.last()), (0x0a01_0000, 0x0a01_ffff));
        assert!(net.contains(0x0a01_1234) && !net.contains(0x0a02_0000));
        assert_eq!(Prefix::ALL.last(), u32::MAX);
    }
}
