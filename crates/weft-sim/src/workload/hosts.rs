//! The notation for sets of hosts: `all`, `0..60, 512..572`, `0..512/4`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_topo::NodeId;

use super::WorkloadError;

/// A list of hosts of a topology; rings follow its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSet(Vec<Span>);

/// The hosts from `first` to `end`, every `step`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    end: u32,
    step: u32,
}

/// The valid texts, for errors.
const EXPECTED: &str = "all, or numbers and ranges such as 0..16, 20, 64..128/4";

impl HostSet {
    /// Returns the set of all hosts.
    pub fn all() -> Self {
        Self(Vec::new())
    }

    /// Returns the hosts, in the order they were named.
    ///
    /// # Errors
    /// `NoSuchHost` for a host that the topology lacks, `DuplicateHost`, or `TooFewHosts` for fewer than `least`.
    pub fn resolve(&self, hosts: u32, min: u32) -> Result<Vec<NodeId>, WorkloadError> {
        let spans = match self.0.as_slice() {
            [] => &[Span { first: 0, end: hosts, step: 1 }][..],
            spans => spans,
        };
        let mut named = Vec::new();
        let mut seen = vec![false; hosts as usize];
        for span in spans {
            for host in (span.first..span.end).step_by(span.step as usize) {
                let seen = seen
                    .get_mut(host as usize)
                    .ok_or(WorkloadError::NoSuchHost { got: host, hosts })?;
                if std::mem::replace(seen, true) {
                    return Err(WorkloadError::DuplicateHost { host });
                }
                named.push(NodeId(host));
            }
        }
        if named.len() < min as usize {
            return Err(WorkloadError::TooFewHosts { got: named.len(), min });
        }
        Ok(named)
    }
}

impl fmt::Display for HostSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(out, "all");
        }
        for (index, Span { first, end, step }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(out, "{separator}{first}")?;
            if *end != first + 1 || *step != 1 {
                write!(out, "..{end}")?;
            }
            if *step != 1 {
                write!(out, "/{step}")?;
            }
        }
        Ok(())
    }
}

/// The error for a text that is not a set of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no hosts {text:?}, expected {}", EXPECTED)]
pub struct ParseHostsError {
    /// The text.
    pub text: String,
}

impl FromStr for HostSet {
    type Err = ParseHostsError;

    fn from_str(text: &str) -> Result<Self, ParseHostsError> {
        if text.trim() == "all" {
            return Ok(Self::all());
        }
        let spans: Option<Vec<Span>> = text.split(',').map(|part| span(part.trim())).collect();
        spans
            .filter(|spans| !spans.is_empty())
            .map(Self)
            .ok_or_else(|| ParseHostsError { text: text.to_owned() })
    }
}

/// Parses a number or a range; returns `None` if it is malformed or empty.
fn span(text: &str) -> Option<Span> {
    let Some((first, rest)) = text.split_once("..") else {
        let first: u32 = text.parse().ok()?;
        return Some(Span { first, end: first.checked_add(1)?, step: 1 });
    };
    let (end, step) = rest.split_once('/').unwrap_or((rest, "1"));
    let span =
        Span { first: first.parse().ok()?, end: end.parse().ok()?, step: step.parse().ok()? };
    (span.first < span.end && span.step > 0).then_some(span)
}

impl Serialize for HostSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

weft_units::text_schema! {
    HostSet: "HostSet", "Hosts: `all`, or numbers and ranges such as `0..8, 12, 16..32/2`",
        r"^ *(all|[0-9]+(\.\.[0-9]+(/[0-9]+)?)?( *, *[0-9]+(\.\.[0-9]+(/[0-9]+)?)?)*) *$";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str, hosts: u32) -> Result<Vec<u32>, WorkloadError> {
        let set: HostSet = text.parse().unwrap();
        assert_eq!(set.to_string().parse(), Ok(set.clone()), "{text}");
        Ok(set.resolve(hosts, 1)?.into_iter().map(|host| host.0).collect())
    }

    #[test]
    fn sets_parse_as_they_are_displayed_and_keep_their_order() {
        assert_eq!(numbers("all", 3), Ok(vec![0, 1, 2]));
        assert_eq!(numbers("7, 0..3", 8), Ok(vec![7, 0, 1, 2]));
        assert_eq!(numbers("1..8/3", 8), Ok(vec![1, 4, 7]));
        assert_eq!(numbers("0..1/4", 8), Ok(vec![0]));
    }

    #[test]
    fn hosts_that_do_not_exist_or_repeat_are_named() {
        assert_eq!(numbers("0..9", 8), Err(WorkloadError::NoSuchHost { got: 8, hosts: 8 }));
        assert_eq!(numbers("0..4, 3", 8), Err(WorkloadError::DuplicateHost { host: 3 }));
        let one = HostSet::from_str("0").unwrap().resolve(8, 2);
        assert_eq!(one, Err(WorkloadError::TooFewHosts { got: 1, min: 2 }));
        for bad in ["", "4..2", "0..8/0", "x", "0..4294967296"] {
            let error = bad.parse::<HostSet>().unwrap_err();
            assert!(error.to_string().contains("expected all"), "{bad}");
        }
    }
}
