//! The routes of EVPN (RFC 7432, section 7): those of machines (type 2) and of hosts that have ports of a network (type 3).

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;

use weft_wire::MacAddr;

use crate::reader::Reader;

/// Types of routes.
mod kind {
    pub(super) const MAC_IP: u8 = 2;
    pub(super) const INCLUSIVE_MULTICAST: u8 = 3;
}

/// A route distinguisher: it makes routes of different routers differ (RFC 4364, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteDistinguisher(pub [u8; 8]);

impl RouteDistinguisher {
    /// Returns the distinguisher of a router's network (type 1: address and number).
    pub(crate) fn new(router_id: Ipv4Addr, number: u16) -> Self {
        let ([a, b, c, d], [high, low]) = (router_id.octets(), number.to_be_bytes());
        Self([0, 1, a, b, c, d, high, low])
    }
}

/// The part of a route that names it: a later route with the same key replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKey {
    /// A machine, perhaps with one of its IP addresses: MAC/IP Advertisement.
    MacIp {
        /// The distinguisher of its router's network.
        rd: RouteDistinguisher,
        /// The Ethernet tag, zero where a network is one broadcast domain.
        tag: u32,
        /// The machine's Ethernet address.
        mac: MacAddr,
        /// Its IP address.
        address: Option<IpAddr>,
    },
    /// A host that receives the broadcasts of a network: Inclusive Multicast Ethernet Tag.
    InclusiveMulticast {
        /// The distinguisher of its router's network.
        rd: RouteDistinguisher,
        /// The Ethernet tag.
        tag: u32,
        /// The host's address.
        originator: IpAddr,
    },
}

impl RouteKey {
    /// Returns the Ethernet tag.
    pub(crate) const fn tag(&self) -> u32 {
        match self {
            Self::MacIp { tag, .. } | Self::InclusiveMulticast { tag, .. } => *tag,
        }
    }
}

/// A route in a message: its key, and the label of a machine's route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nlri {
    /// The key.
    pub key: RouteKey,
    /// The network's number in a route of a machine; zero in others.
    pub label: u32,
}

impl Nlri {
    /// Appends the route.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0, 0]);
        match self.key {
            RouteKey::MacIp { rd, tag, mac, address } => {
                out[start] = kind::MAC_IP;
                out.extend(rd.0);
                // No segment: the machine has one host.
                out.extend([0; 10]);
                out.extend(tag.to_be_bytes());
                out.push(48);
                out.extend(mac.0);
                match address {
                    Some(address) => emit_address(address, out),
                    None => out.push(0),
                }
                out.extend(&self.label.to_be_bytes()[1..]);
            }
            RouteKey::InclusiveMulticast { rd, tag, originator } => {
                out[start] = kind::INCLUSIVE_MULTICAST;
                out.extend(rd.0);
                out.extend(tag.to_be_bytes());
                emit_address(originator, out);
            }
        }
        out[start + 1] = u8::try_from(out.len() - start - 2).expect("at most 49 bytes");
    }

    /// Reads the routes of a field; those of other types are skipped (RFC 7606, section 5.4). `None` if a length is wrong:
    /// then no route of the field can be trusted.
    pub(crate) fn parse_all(field: &[u8]) -> Option<Vec<Self>> {
        let mut reader = Reader(field);
        let mut routes = Vec::new();
        while let Some(kind) = reader.u8() {
            let value = Reader(reader.field()?);
            match kind {
                kind::MAC_IP => routes.push(Self::parse_mac_ip(value)?),
                kind::INCLUSIVE_MULTICAST => routes.push(Self::parse_inclusive_multicast(value)?),
                _ => {}
            }
        }
        Some(routes)
    }

    fn parse_mac_ip(mut value: Reader<'_>) -> Option<Self> {
        let rd = RouteDistinguisher(value.array()?);
        value.take(10)?;
        let tag = value.u32()?;
        let mac = (value.u8()? == 48).then(|| value.array().map(MacAddr))??;
        let address = match value.u8()? {
            0 => None,
            bits => Some(parse_address(bits, &mut value)?),
        };
        let label = value.u24()?;
        // A second label is that of a tenant's router, which is not used.
        let fits = value.is_empty() || value.len() == 3;
        fits.then_some(Self { key: RouteKey::MacIp { rd, tag, mac, address }, label })
    }

    fn parse_inclusive_multicast(mut value: Reader<'_>) -> Option<Self> {
        let rd = RouteDistinguisher(value.array()?);
        let tag = value.u32()?;
        let bits = value.u8()?;
        let originator = parse_address(bits, &mut value)?;
        let key = RouteKey::InclusiveMulticast { rd, tag, originator };
        value.is_empty().then_some(Self { key, label: 0 })
    }
}

fn emit_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            out.push(32);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(128);
            out.extend(v6.octets());
        }
    }
}

fn parse_address(bits: u8, value: &mut Reader<'_>) -> Option<IpAddr> {
    match bits {
        32 => value.array::<4>().map(IpAddr::from),
        128 => value.array::<16>().map(IpAddr::from),
        _ => None,
    }
}

/// A route target: it names the networks that import a route (RFC 4360, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTarget(pub [u8; 8]);

impl RouteTarget {
    /// The subtype of extended communities that are route targets.
    pub(crate) const SUBTYPE: u8 = 2;

    /// Returns the target that routers derive from an AS number, of which two octets fit, and a network's number.
    pub fn of_network(asn: u32, vni: u32) -> Self {
        let ([_, _, a, b], [c, d, e, f]) = (asn.to_be_bytes(), vni.to_be_bytes());
        Self([0, Self::SUBTYPE, a, b, c, d, e, f])
    }

    /// Returns `true` if this is the target that some AS derives from the network's number.
    pub fn is_of_network(&self, vni: u32) -> bool {
        self.0[..2] == [0, Self::SUBTYPE] && self.0[4..] == vni.to_be_bytes()
    }
}

/// The error of a text that is no route target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an AS number or an IPv4 address, a colon and a number: 65000:100")]
pub struct ParseRouteTargetError;

impl FromStr for RouteTarget {
    type Err = ParseRouteTargetError;

    fn from_str(text: &str) -> Result<Self, ParseRouteTargetError> {
        let (left, right) = text.split_once(':').ok_or(ParseRouteTargetError)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| ParseRouteTargetError);
        let small = || right.parse::<u16>().map_err(|_| ParseRouteTargetError);
        if let Ok(address) = left.parse::<Ipv4Addr>() {
            let ([a, b, c, d], [e, f]) = (address.octets(), small()?.to_be_bytes());
            return Ok(Self([1, Self::SUBTYPE, a, b, c, d, e, f]));
        }
        let asn = number(left)?;
        if asn <= u16::MAX.into() {
            return Ok(Self::of_network(asn, number(right)?));
        }
        let ([a, b, c, d], [e, f]) = (asn.to_be_bytes(), small()?.to_be_bytes());
        Ok(Self([2, Self::SUBTYPE, a, b, c, d, e, f]))
    }
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, _, a, b, c, d, e, f] = self.0;
        match kind {
            0 => write!(out, "{}:{}", u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])),
            1 => write!(out, "{}:{}", Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([e, f])),
            _ => write!(out, "{}:{}", u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rd() -> RouteDistinguisher {
        RouteDistinguisher::new(Ipv4Addr::new(10, 1, 0, 2), 100)
    }

    fn bytes(nlri: &Nlri) -> Vec<u8> {
        let mut out = Vec::new();
        nlri.emit(&mut out);
        out
    }

    #[test]
    fn routes_have_the_layout_of_the_rfc() {
        let mac = MacAddr([2, 0, 0, 0, 7, 1]);
        let address = Some(IpAddr::from([192, 168, 7, 1]));
        let machine = Nlri { key: RouteKey::MacIp { rd: rd(), tag: 0, mac, address }, label: 100 };
        // RFC 7432, section 7.2, with the label of RFC 8365, section 5.1.3.
        let expected = [
            2, 37, 0, 1, 10, 1, 0, 2, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 48, 2, 0,
            0, 0, 7, 1, 32, 192, 168, 7, 1, 0, 0, 100,
        ];
        assert_eq!(bytes(&machine), expected);
        let originator = IpAddr::from([10, 1, 0, 2]);
        let key = RouteKey::InclusiveMulticast { rd: rd(), tag: 0, originator };
        let host = Nlri { key, label: 0 };
        // RFC 7432, section 7.3.
        let expected = [3, 17, 0, 1, 10, 1, 0, 2, 0, 100, 0, 0, 0, 0, 32, 10, 1, 0, 2];
        assert_eq!(bytes(&host), expected);
        // A route of a tenant's prefix (type 5) between them.
        let other = [5, 2, 9, 9];
        let all = [bytes(&machine), other.to_vec(), bytes(&host)].concat();
        assert_eq!(Nlri::parse_all(&all), Some(Vec::from([machine, host])));
    }

    #[test]
    fn routes_of_wrong_lengths_are_refused() {
        let mac = MacAddr([2, 0, 0, 0, 7, 1]);
        let key = RouteKey::MacIp { rd: rd(), tag: 0, mac, address: Some(IpAddr::from([0; 16])) };
        let whole = bytes(&Nlri { key, label: 7 });
        assert!(Nlri::parse_all(&whole).is_some());
        for len in 1..whole.len() {
            assert_eq!(Nlri::parse_all(&whole[..len]), None, "{len} bytes");
        }
        for (at, value) in [(24, 47), (31, 33), (1, 50)] {
            let mut wrong = whole.clone();
            wrong[at] = value;
            assert_eq!(Nlri::parse_all(&wrong), None, "{value} at {at}");
        }
    }

    #[test]
    fn a_target_is_the_same_as_text() {
        for (text, kind) in [("65000:100", 0), ("10.0.0.1:7", 1), ("4200000000:7", 2)] {
            let target: RouteTarget = text.parse().unwrap();
            assert_eq!((target.to_string().as_str(), target.0[0]), (text, kind));
        }
        for text in ["65000", "65000:", ":1", "70000:70000", "10.0.0.1:70000", "65000:4294967296"] {
            assert_eq!(text.parse::<RouteTarget>(), Err(ParseRouteTargetError), "{text}");
        }
        assert_eq!(RouteTarget::of_network(4_200_000_001, 100).to_string(), "59905:100");
        assert!(RouteTarget::of_network(65_001, 100).is_of_network(100));
        assert!(!RouteTarget::of_network(65_001, 100).is_of_network(101));
    }
}
