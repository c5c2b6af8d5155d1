//! Flows in words: `10.1.0.2:49152>10.2.0.2:4791/udp`.

use alloc::string::String;
use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_topo::hash::FiveTuple;

/// A five-tuple that people read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(pub FiveTuple);

/// Why a text is no flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no flow such as 10.1.0.2:49152>10.2.0.2:4791/udp (addresses alone are RoCE, from port 49152)"
)]
pub struct FlowError {
    text: String,
}

/// Source and destination port of RoCEv2 where none are given.
const ROCE: (u16, u16) = (0xc000, 4791);

impl fmt::Display for Flow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FiveTuple { src, dst, src_port, dst_port, protocol } = self.0;
        let (src, dst) = (Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst));
        write!(out, "{src}:{src_port}>{dst}:{dst_port}/")?;
        match protocol {
            17 => out.write_str("udp"),
            6 => out.write_str("tcp"),
            other => write!(out, "{other}"),
        }
    }
}

impl FromStr for Flow {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        parse(text).ok_or_else(|| FlowError { text: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<Flow> {
    let text = text.trim();
    let (ends, protocol) = text.split_once('/').unwrap_or((text, "udp"));
    let protocol = match protocol {
        "udp" => 17,
        "tcp" => 6,
        number => number.parse().ok()?,
    };
    let (from, to) = ends.split_once('>')?;
    let (src, src_port) = end(from, ROCE.0)?;
    let (dst, dst_port) = end(to, ROCE.1)?;
    Some(Flow(FiveTuple { src, dst, src_port, dst_port, protocol }))
}

fn end(text: &str, port: u16) -> Option<(u32, u16)> {
    let (address, port) = match text.trim().split_once(':') {
        Some((address, port)) => (address, port.parse().ok()?),
        None => (text.trim(), port),
    };
    Some((address.parse::<Ipv4Addr>().ok()?.to_bits(), port))
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
        ] {
            assert_eq!(text.parse::<Flow>().unwrap().to_string(), text);
        }
        let short: Flow = "10.1.0.2 > 10.2.0.2".parse().unwrap();
        assert_eq!(short.to_string(), "10.1.0.2:49152>10.2.0.2:4791/udp");
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        for text in
            ["", ">", "10.1.0.2", "10.1.0.2>x", "10.1.0.2:70000>10.2.0.2", "10.1.0.2>10.2.0.2/sctp"]
        {
            assert!(text.parse::<Flow>().is_err(), "{text}");
        }
    }
}
