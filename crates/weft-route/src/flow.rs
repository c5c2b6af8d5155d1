//! Flows as text: `10.1.0.2:49152>10.2.0.2:4791/udp`, `[fd00:1::2]:49152>[fd00:2::2]:4791/udp`.

use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_topo::hash::{FiveTuple, FiveTuple6};

/// A flow of either address family, with a text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// An IPv4 flow.
    V4(FiveTuple),
    /// An IPv6 flow.
    V6(FiveTuple6),
}

/// A borrowed flow. Path lookups take it, so that five-tuples are not copied.
#[derive(Clone, Copy, Debug)]
pub enum FlowRef<'a> {
    /// An IPv4 flow.
    V4(&'a FiveTuple),
    /// An IPv6 flow.
    V6(&'a FiveTuple6),
}

/// The error for a text that is not a flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no flow such as 10.1.0.2:49152>10.2.0.2:4791/udp or [fd00:1::2]:49152>[fd00:2::2]:4791/udp \
     (addresses alone are RoCE, from port 49152; a flow label follows as /udp/0x1234)"
)]
pub struct FlowError {
    text: String,
}

/// The default source and destination ports, those of RoCEv2.
const ROCE: (u16, u16) = (0xc000, 4791);

/// The maximum flow label, which has 20 bits.
const MAX_FLOW_LABEL: u32 = 0xf_ffff;

impl Flow {
    /// Returns the flow between two addresses, without a flow label; `None` if they are of different families.
    pub fn new(from: SocketAddr, to: SocketAddr, protocol: u8) -> Option<Self> {
        let (src_port, dst_port) = (from.port(), to.port());
        match (from.ip(), to.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                Some(Self::V4(FiveTuple { src, dst, src_port, dst_port, protocol }))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Some(Self::V6(FiveTuple6 { src, dst, flow_label: 0, src_port, dst_port, protocol }))
            }
            _ => None,
        }
    }

    /// Returns the source address.
    pub const fn src(&self) -> IpAddr {
        match *self {
            Self::V4(FiveTuple { src, .. }) => IpAddr::V4(Ipv4Addr::from_bits(src)),
            Self::V6(FiveTuple6 { src, .. }) => IpAddr::V6(src),
        }
    }

    /// Returns the destination address.
    pub const fn dst(&self) -> IpAddr {
        match *self {
            Self::V4(FiveTuple { dst, .. }) => IpAddr::V4(Ipv4Addr::from_bits(dst)),
            Self::V6(FiveTuple6 { dst, .. }) => IpAddr::V6(dst),
        }
    }

    /// Returns the source and destination ports.
    pub const fn ports(&self) -> (u16, u16) {
        match *self {
            Self::V4(FiveTuple { src_port, dst_port, .. })
            | Self::V6(FiveTuple6 { src_port, dst_port, .. }) => (src_port, dst_port),
        }
    }

    /// Returns the IP protocol: 17 for UDP, 6 for TCP.
    pub const fn protocol(&self) -> u8 {
        match *self {
            Self::V4(FiveTuple { protocol, .. }) | Self::V6(FiveTuple6 { protocol, .. }) => {
                protocol
            }
        }
    }

    /// Returns the flow label; 0 for IPv4.
    const fn label(&self) -> u32 {
        match *self {
            Self::V4(_) => 0,
            Self::V6(FiveTuple6 { flow_label, .. }) => flow_label,
        }
    }
}

impl<'a> From<&'a FiveTuple> for FlowRef<'a> {
    #[inline]
    fn from(tuple: &'a FiveTuple) -> Self {
        Self::V4(tuple)
    }
}

impl<'a> From<&'a FiveTuple6> for FlowRef<'a> {
    #[inline]
    fn from(tuple: &'a FiveTuple6) -> Self {
        Self::V6(tuple)
    }
}

impl<'a> From<&'a Flow> for FlowRef<'a> {
    #[inline]
    fn from(flow: &'a Flow) -> Self {
        match flow {
            Flow::V4(tuple) => Self::V4(tuple),
            Flow::V6(tuple) => Self::V6(tuple),
        }
    }
}

impl From<FiveTuple> for Flow {
    fn from(tuple: FiveTuple) -> Self {
        Self::V4(tuple)
    }
}

impl From<FiveTuple6> for Flow {
    fn from(tuple: FiveTuple6) -> Self {
        Self::V6(tuple)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (src_port, dst_port) = self.ports();
        match (self.src(), self.dst()) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                write!(out, "[{src}]:{src_port}>[{dst}]:{dst_port}/")?;
            }
            (src, dst) => write!(out, "{src}:{src_port}>{dst}:{dst_port}/")?,
        }
        match self.protocol() {
            17 => out.write_str("udp")?,
            6 => out.write_str("tcp")?,
            other => write!(out, "{other}")?,
        }
        if self.label() == 0 { Ok(()) } else { write!(out, "/{:#x}", self.label()) }
    }
}

impl FromStr for Flow {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        parse(text).ok_or_else(|| FlowError { text: text.chars().take(120).collect() })
    }
}

fn parse(text: &str) -> Option<Flow> {
    let text = text.trim();
    let (ends, rest) = text.split_once('/').unwrap_or((text, "udp"));
    let (protocol, label) = match rest.split_once('/') {
        Some((protocol, label)) => {
            (protocol, Some(u32::from_str_radix(label.strip_prefix("0x")?, 16).ok()?))
        }
        None => (rest, None),
    };
    let protocol = match protocol {
        "udp" => 17,
        "tcp" => 6,
        number => number.parse().ok()?,
    };
    let (from, to) = ends.split_once('>')?;
    let flow = Flow::new(end(from, ROCE.0)?, end(to, ROCE.1)?, protocol)?;
    match (flow, label) {
        (flow, None) => Some(flow),
        (Flow::V6(tuple), Some(flow_label)) if flow_label <= MAX_FLOW_LABEL => {
            Some(Flow::V6(FiveTuple6 { flow_label, ..tuple }))
        }
        _ => None,
    }
}

fn end(text: &str, port: u16) -> Option<SocketAddr> {
    let text = text.trim();
    // An IPv6 address without a port needs no brackets.
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some((address, port).into());
    }
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let port = if rest.is_empty() { port } else { rest.strip_prefix(':')?.parse().ok()? };
        return Some((address.parse::<Ipv6Addr>().ok()?, port).into());
    }
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, port.parse().ok()?),
        None => (text, port),
    };
    Some((address.parse::<Ipv4Addr>().ok()?, port).into())
}

impl Serialize for Flow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Flow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_reads_back_as_it_is_written() {
        for text in [
            "10.1.0.2:49152>10.2.0.2:4791/udp",
            "10.1.0.2:5>10.2.0.2:6/tcp",
            "1.2.3.4:0>5.6.7.8:0/47",
            "[fd00:1::2]:49152>[fd00:2::2]:4791/udp",
            "[fd00:1::2]:5>[::1]:6/tcp/0xfffff",
        ] {
            assert_eq!(text.parse::<Flow>().unwrap().to_string(), text);
        }
        for (short, long) in [
            ("10.1.0.2 > 10.2.0.2", "10.1.0.2:49152>10.2.0.2:4791/udp"),
            ("fd00::1>fd00::2", "[fd00::1]:49152>[fd00::2]:4791/udp"),
            ("[fd00::1]>[fd00::2]:7", "[fd00::1]:49152>[fd00::2]:7/udp"),
        ] {
            assert_eq!(short.parse::<Flow>().unwrap().to_string(), long);
        }
    }

    #[test]
    fn invalid_flows_are_refused() {
        for text in [
            "",
            ">",
            "10.1.0.2",
            "10.1.0.2>x",
            "10.1.0.2:70000>10.2.0.2",
            "10.1.0.2>10.2.0.2/sctp",
            "10.1.0.2>fd00::1",
            "10.1.0.2>10.2.0.2/udp/0x1",
            "[fd00::1>fd00::2",
            "[fd00::1]5>fd00::2",
            "fd00::1>fd00::2/udp/0x100000",
        ] {
            assert!(text.parse::<Flow>().is_err(), "{text}");
        }
    }
}
