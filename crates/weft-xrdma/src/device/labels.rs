//! The labels of a device's packets, by which switches choose their queues and paths: traffic class, service level, flow
//! label and source ports.

use std::num::ParseIntError;
use std::ops::RangeInclusive;

use weft_msg::ConfigError;

use crate::library::VerbsLibraryError;

/// The environment variable with labels as words `NAME=VALUE`, for options that the program does not set.
pub(crate) const VARIABLE: &str = "WEFT_ROCE";

/// The traffic class by default: DSCP 26 and ECT(0). It is the class with which NVIDIA configures its NICs for RoCE
/// v2, and which UCX takes there by default; switches that trust the DSCP map it to priority 3, the usual one without
/// loss (PFC).
const TRAFFIC_CLASS: u8 = 106;

/// The service level by default, which is the priority of frames on VLANs: that to which switches map DSCP 26.
const SERVICE_LEVEL: u8 = 3;

/// The largest service level: four bits (IBTA volume 1, chapter 7).
const MAX_SERVICE_LEVEL: u32 = 15;

/// The largest flow label: 20 bits (RFC 8200).
const MAX_FLOW_LABEL: u32 = 0xf_ffff;

/// The labels of a device's packets; those that are `None` have the defaults for the port's link layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketLabels {
    /// The traffic class of the IP header, DSCP and ECN bits; by default 106 on Ethernet: DSCP 26, ECN-capable. Zero takes
    /// part in neither PFC nor ECN in most fabrics.
    pub traffic_class: Option<u8>,
    /// The service level, 0 to 15: on Ethernet with VLANs the priority, by default 3. A host's own port counts packets for
    /// PFC by it, unless the port trusts the DSCP.
    pub service_level: Option<u8>,
    /// The flow label of all channels, 20 bits, from which drivers derive one source port; by default zero: each queue
    /// pair then has a port that its driver derives from the numbers of both ends.
    pub flow_label: Option<u32>,
    /// The UDP source ports of channels, in turn, where the NIC's library can set them (`mlx5dv_modify_qp_udp_sport`,
    /// `bnxt_re_dv_modify_qp_udp_sport`); by default those that the driver derives.
    pub source_ports: Option<RangeInclusive<u16>>,
}

/// The labels that a device sends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    pub(super) traffic_class: u8,
    pub(super) service_level: u8,
    pub(super) flow_label: u32,
}

impl PacketLabels {
    /// The names of the options.
    pub(crate) const NAMES: [&str; 4] = ["traffic_class", "sl", "flow_label", "source_ports"];

    /// Sets an option of [`NAMES`](Self::NAMES); returns `false` for another name.
    ///
    /// # Errors
    /// The value is malformed or out of range.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, ConfigError> {
        let [traffic_class, sl, flow_label, source_ports] = Self::NAMES;
        match name {
            _ if name == traffic_class => {
                let class = number(traffic_class, value, u8::MAX.into())?;
                self.traffic_class = u8::try_from(class).ok();
            }
            _ if name == sl => {
                self.service_level = u8::try_from(number(sl, value, MAX_SERVICE_LEVEL)?).ok();
            }
            _ if name == flow_label => {
                self.flow_label = Some(number(flow_label, value, MAX_FLOW_LABEL)?);
            }
            _ if name == source_ports => self.source_ports = Some(ports(source_ports, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns these labels, and those of `WEFT_ROCE` that they leave open.
    ///
    /// # Errors
    /// The variable is malformed.
    pub(super) fn or_environment(self) -> Result<Self, VerbsLibraryError> {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let found = Self::parse(&text)
            .map_err(|error| VerbsLibraryError::Variable { name: VARIABLE, error })?;
        Ok(Self {
            traffic_class: self.traffic_class.or(found.traffic_class),
            service_level: self.service_level.or(found.service_level),
            flow_label: self.flow_label.or(found.flow_label),
            source_ports: self.source_ports.or(found.source_ports),
        })
    }

    /// Parses words `NAME=VALUE`.
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut labels = Self::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| ConfigError::Malformed {
                name: VARIABLE,
                got: word.into(),
                expected: "NAME=VALUE",
            })?;
            if !labels.set(name, value)? {
                let message = weft_units::unknown_name("option", name, &Self::NAMES);
                return Err(ConfigError::Unknown(message));
            }
        }
        Ok(labels)
    }

    /// Returns the labels for a port: the defaults are those of RoCE, and InfiniBand's, whose subnet manager decides, are
    /// zero.
    pub(super) fn for_port(&self, is_ethernet: bool) -> Labels {
        let (class, level) = if is_ethernet { (TRAFFIC_CLASS, SERVICE_LEVEL) } else { (0, 0) };
        Labels {
            traffic_class: self.traffic_class.unwrap_or(class),
            service_level: self.service_level.unwrap_or(level),
            flow_label: self.flow_label.unwrap_or(0),
        }
    }
}

/// Parses a decimal number, or a hexadecimal one after `0x`, that is at most `max`.
fn number(name: &'static str, value: &str, max: u32) -> Result<u32, ConfigError> {
    let parsed: Result<u32, ParseIntError> = match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => value.parse(),
    };
    let number = parsed.map_err(|_| ConfigError::Malformed {
        name,
        got: value.into(),
        expected: "a number",
    })?;
    if number > max {
        return Err(ConfigError::OutOfRange {
            name,
            got: value.into(),
            min: "0".into(),
            max: max.to_string(),
        });
    }
    Ok(number)
}

/// Parses a port, or the first and the last of several.
fn ports(name: &'static str, value: &str) -> Result<RangeInclusive<u16>, ConfigError> {
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    let port = |text: &str| text.parse().ok().filter(|&port: &u16| port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(ConfigError::Malformed {
            name,
            got: value.into(),
            expected: "a port or a range of ports, as in 49152-49167",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_parsed_from_words() {
        let text = "traffic_class=0x68 sl=5\n flow_label=1048575 source_ports=50000-50003";
        let labels = PacketLabels::parse(text).unwrap();
        assert_eq!(labels.for_port(true), labels.for_port(false));
        let Labels { traffic_class, service_level, flow_label } = labels.for_port(true);
        assert_eq!((traffic_class, service_level, flow_label), (104, 5, MAX_FLOW_LABEL));
        assert_eq!(labels.source_ports, Some(50_000..=50_003));
        let one = PacketLabels::parse("source_ports=50000").unwrap();
        assert_eq!(one.source_ports, Some(50_000..=50_000));
    }

    #[test]
    fn the_defaults_are_those_of_roce_and_zero_on_infiniband() {
        let labels = |is_ethernet| {
            let labels = PacketLabels::default().for_port(is_ethernet);
            (labels.traffic_class, labels.service_level, labels.flow_label)
        };
        assert_eq!(labels(true), (26 << 2 | 0b10, 3, 0), "DSCP 26 and ECT(0)");
        assert_eq!(labels(false), (0, 0, 0));
    }

    #[test]
    fn invalid_labels_are_named() {
        for (text, want) in [
            ("sl", "WEFT_ROCE: \"sl\" is not NAME=VALUE"),
            ("sl=high", "sl: \"high\" is not a number"),
            ("sl=16", "sl is 16, expected 0 to 15"),
            ("traffic_class=256", "traffic_class is 256, expected 0 to 255"),
            ("flow_label=0x100000", "flow_label is 0x100000, expected 0 to 1048575"),
            (
                "source_ports=9-8",
                "source_ports: \"9-8\" is not a port or a range of ports, as in 49152-49167",
            ),
        ] {
            assert_eq!(PacketLabels::parse(text).unwrap_err().to_string(), want);
        }
        let unknown = PacketLabels::parse("flowlabel=1").unwrap_err().to_string();
        assert!(unknown.contains("flow_label"), "{unknown}");
    }
}
