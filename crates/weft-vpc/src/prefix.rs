//! IP prefixes, and a map that finds the longest one that holds an address.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use thiserror::Error;

/// A range of addresses with the same first bits (RFC 4632; RFC 4291, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// The reason that a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParsePrefixError {
    /// The text has another form.
    #[error("{0:?} is not a prefix such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.1")]
    NotAPrefix(String),
    /// Bits are set past the prefix: either the address or the length is a mistake.
    #[error("{0} has bits past its length; the prefix is {1}")]
    BitsPastLength(String, Prefix),
}

impl Prefix {
    /// All IPv4 addresses.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All IPv6 addresses.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED), len: 0 };

    /// Returns the prefix of the first `len` bits of `address`; `None` if the address has fewer.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if len <= 32 => IpAddr::V4((v4.to_bits() & mask_v4(len)).into()),
            IpAddr::V6(v6) if len <= 128 => IpAddr::V6((v6.to_bits() & mask_v6(len)).into()),
            _ => return None,
        };
        Some(Self { address, len })
    }

    /// Returns the prefix that holds only `address`.
    pub fn of(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Returns `true` if the prefix holds `address`. Addresses of another version are not in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.len).is_some_and(|prefix| prefix == *self)
    }

    /// Returns the first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length, bits.
    pub const fn bits(&self) -> u8 {
        self.len
    }
}

const fn mask_v4(len: u8) -> u32 {
    match len {
        0 => 0,
        len => u32::MAX << (32 - len),
    }
}

const fn mask_v6(len: u8) -> u128 {
    match len {
        0 => 0,
        len => u128::MAX << (128 - len),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::of(self.address) {
            return write!(out, "{}", self.address);
        }
        write!(out, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let wrong = || ParsePrefixError::NotAPrefix(text.into());
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let Some(len) = len else { return Ok(Self::of(address)) };
        let len = len.parse().map_err(|_| wrong())?;
        let prefix = Self::new(address, len).ok_or_else(wrong)?;
        if prefix.address == address {
            Ok(prefix)
        } else {
            Err(ParsePrefixError::BitsPastLength(text.into(), prefix))
        }
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use alloc::string::{String, ToString};

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Prefix;

    impl Serialize for Prefix {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_str(&self.to_string())
        }
    }

    impl<'de> Deserialize<'de> for Prefix {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            String::deserialize(from)?.parse().map_err(D::Error::custom)
        }
    }
}

#[cfg(feature = "schema")]
weft_units::text_schema! {
    Prefix: "Prefix", "An address and its prefix length such as 10.9.0.0/16 or 2001:db8::/32", r"^[0-9a-fA-F.:]+(/[0-9]{1,3})?$";
}

/// A map from prefixes to values.
#[derive(Clone, Debug)]
pub struct PrefixMap<T> {
    values: BTreeMap<Prefix, T>,
    /// The number of prefixes of each length, by version, the longest length first: a lookup does one search
    /// for each length that occurs, and networks have few.
    lengths: [Vec<(u8, usize)>; 2],
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), lengths: [Vec::new(), Vec::new()] }
    }
}

impl<T> PrefixMap<T> {
    /// Sets the value of a prefix. Returns its old value.
    pub fn insert(&mut self, prefix: Prefix, value: T) -> Option<T> {
        let old = self.values.insert(prefix, value);
        if old.is_none() {
            let lengths = &mut self.lengths[usize::from(prefix.address.is_ipv6())];
            match lengths.binary_search_by(|(len, _)| prefix.len.cmp(len)) {
                Ok(index) => lengths[index].1 += 1,
                Err(index) => lengths.insert(index, (prefix.len, 1)),
            }
        }
        old
    }

    /// Removes a prefix. Returns its value.
    pub fn remove(&mut self, prefix: &Prefix) -> Option<T> {
        let old = self.values.remove(prefix)?;
        let lengths = &mut self.lengths[usize::from(prefix.address.is_ipv6())];
        let index = lengths.iter().position(|(len, _)| *len == prefix.len);
        let index = index.expect("a prefix's length is counted");
        lengths[index].1 -= 1;
        if lengths[index].1 == 0 {
            lengths.remove(index);
        }
        Some(old)
    }

    /// Returns the longest prefix that holds `address`, and its value.
    pub fn longest(&self, address: IpAddr) -> Option<(Prefix, &T)> {
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        lengths.iter().find_map(|&(len, _)| {
            let prefix = Prefix::new(address, len)?;
            Some((prefix, self.values.get(&prefix)?))
        })
    }

    /// Returns every prefix and its value.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &T)> {
        self.values.iter().map(|(&prefix, value)| (prefix, value))
    }

    /// Removes the prefixes for whose values `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let removed: Vec<_> =
            self.iter().filter_map(|(prefix, value)| (!keep(value)).then_some(prefix)).collect();
        for prefix in removed {
            self.remove(&prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_parse_and_display_in_cidr_notation() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1", "::/0", "2001:db8::/32", "2001:db8::1"]
        {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("192.0.2.1/32"), prefix("192.0.2.1"));
        for text in ["", "10.0.0.0/33", "10/8", "10.0.0.0/", "10.0.0.0/-1", "::/129", "web"] {
            let error = text.parse::<Prefix>().unwrap_err();
            assert_eq!(error, ParsePrefixError::NotAPrefix(text.into()));
        }
        let error = "10.0.0.1/8".parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(error, "10.0.0.1/8 has bits past its length; the prefix is 10.0.0.0/8");
    }

    #[test]
    fn versions_do_not_mix() {
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert!(!prefix("10.0.0.0/8").contains(mapped));
        assert!(!prefix("::/0").contains("10.0.0.1".parse().unwrap()));
        assert!(prefix("::/0").contains(mapped));
    }

    /// Compares the map with a linear search over all prefixes.
    #[test]
    fn the_longest_prefix_is_found_after_any_insertions_and_removals() {
        let mut rng = Seed(1).child("prefix", 0).rng();
        let mut map = PrefixMap::default();
        let mut list: Vec<(Prefix, u64)> = Vec::new();
        for step in 0..20_000 {
            let bits = rng.next_u32() & 0x0103_0307;
            let address = match rng.chance(1, 2) {
                true => IpAddr::V4(bits.into()),
                false => IpAddr::V6((u128::from(bits) << 96).into()),
            };
            match rng.below(4) {
                0 => {
                    let len = u8::try_from(rng.below(33)).unwrap();
                    let prefix = Prefix::new(address, len).unwrap();
                    let old = list.iter().position(|(known, _)| *known == prefix);
                    let old = old.map(|index| list.remove(index).1);
                    assert_eq!(map.insert(prefix, step), old);
                    list.push((prefix, step));
                }
                1 if !list.is_empty() => {
                    let (prefix, value) = list.remove(rng.index(list.len()));
                    assert_eq!(map.remove(&prefix), Some(value));
                    assert_eq!(map.remove(&prefix), None);
                }
                _ => {
                    let holds = list.iter().filter(|(prefix, _)| prefix.contains(address));
                    let longest = holds.max_by_key(|(prefix, _)| prefix.bits());
                    let found = map.longest(address).map(|(prefix, value)| (prefix, *value));
                    assert_eq!(found, longest.copied());
                }
            }
            if step % 1000 == 999 {
                map.retain(|value| value % 3 == 0);
                list.retain(|(_, value)| value % 3 == 0);
            }
        }
    }
}
