//! The specification of a lab: name, size, seed.

use serde::{Deserialize, Serialize};

use crate::LabError;

/// The source of routes in a lab's routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// The lab writes them, and [`Lab::converge`](crate::Lab::converge) rewrites them.
    #[default]
    Static,
    /// FRR in each router computes them with BGP, which routes around failures.
    Frr,
}

/// The size and constants of a lab. Two labs with equal specifications forward equally.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabSpec {
    /// The name: 1 to 24 characters of `a-z`, `0-9` and `-`. Namespaces are called `weft-<name>.<node>`.
    pub name: String,
    /// Number of leaf switches, 1 to 99.
    pub leaves: usize,
    /// Number of spine switches, 1 to 250, equal to the number of disjoint paths between two leaves.
    pub spines: usize,
    /// Number of hosts behind each leaf, 1 to 250.
    pub hosts_per_leaf: usize,
    /// The seed from which each router's multipath hash seed is derived.
    pub seed: u64,
    /// The MTU of every link in bytes, 576 to 65535; with IPv6 at least 1280.
    pub mtu: u16,
    /// `true` if ports forward segments larger than the MTU that are split later (TSO, UDP GSO), as network cards do.
    /// `false` costs about 10 times the cycles per byte and puts single packets on every link; a port with loss always
    /// sends single packets.
    pub offloads: bool,
    /// The source of routes.
    #[serde(default)]
    pub routing: Routing,
    /// `true` if nodes also have IPv6 addresses and routes. Without IPv6, links carry only the packets of programs, and
    /// ARP.
    #[serde(default)]
    pub ipv6: bool,
}

impl LabSpec {
    /// Returns a specification of two leaves with one host each, four spines, MTU 1500, offloads, static routes, IPv4
    /// only.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            leaves: 2,
            spines: 4,
            hosts_per_leaf: 1,
            seed: 1,
            mtu: 1500,
            offloads: true,
            routing: Routing::Static,
            ipv6: false,
        }
    }

    /// Checks the ranges of all fields.
    ///
    /// # Errors
    /// Returns `InvalidSpec` with the field and its range.
    pub(crate) fn validate(&self) -> Result<(), LabError> {
        let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 24 || !self.name.chars().all(is_valid) {
            let message = format!("lab name {:?} is not 1 to 24 of a-z, 0-9 and '-'", self.name);
            return Err(LabError::InvalidSpec(message));
        }
        let ranges = [
            ("leaves", self.leaves, 1..=99),
            ("spines", self.spines, 1..=250),
            ("hosts per leaf", self.hosts_per_leaf, 1..=250),
            // IPv6 requires links of at least 1280 bytes (RFC 8200, section 5).
            ("mtu", usize::from(self.mtu), if self.ipv6 { 1280..=65_535 } else { 576..=65_535 }),
        ];
        for (field, value, range) in ranges {
            if !range.contains(&value) {
                let (low, high) = range.into_inner();
                let message = format!("{field} is {value}; a lab has {low} to {high}");
                return Err(LabError::InvalidSpec(message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_out_of_range_is_refused_with_its_range() {
        let error = LabSpec { spines: 0, ..LabSpec::named("a") }.validate().unwrap_err();
        assert_eq!(error.to_string(), "spines is 0; a lab has 1 to 250");
    }

    #[test]
    fn an_invalid_name_is_refused() {
        for name in ["", "a/b", "a.b", "A", "../x", "abcdefghijklmnopqrstuvwxyz"] {
            assert!(LabSpec::named(name).validate().is_err(), "{name:?} passed");
        }
        assert!(LabSpec::named("demo-2").validate().is_ok());
    }
}
