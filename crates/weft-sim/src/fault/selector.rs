//! The text form of link selections: `128-136`, `128>136`, `uplinks`, `host-links`, `all`, `random-uplink`,
//! `busiest-uplink`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_topo::{LinkId, Topology};
use weft_units::Rng;

use super::{FaultError, Place};

/// Some links of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSelector {
    /// Every link.
    All,
    /// Links between hosts and switches.
    HostLinks,
    /// Links between switches.
    Uplinks,
    /// One cable between switches, drawn by the run's seed.
    RandomUplink,
    /// The cable between switches that has carried the most bytes when the first fault there begins.
    BusiestUplink,
    /// Every cable between two nodes, in both directions.
    Between(u32, u32),
    /// Every link from one node to another.
    FromTo(u32, u32),
}

/// The valid texts, for errors.
const EXPECTED: &str = "all, host-links, uplinks, random-uplink, busiest-uplink, two node numbers \
                        such as 128-136 (both directions) or 128>136 (one)";

impl LinkSelector {
    /// Returns the selected links, in the order of their numbers.
    ///
    /// # Errors
    /// `NoSuchLink` if the selection is empty.
    pub fn select(&self, topology: &Topology, rng: &mut Rng) -> Result<Vec<Place>, FaultError> {
        let at_host = |link: &LinkId| {
            let ends = topology.link(*link);
            topology.is_host(ends.from) || topology.is_host(ends.to)
        };
        let joins = |link: &LinkId, from: u32, to: u32| {
            let ends = topology.link(*link);
            (ends.from.0, ends.to.0) == (from, to)
        };
        let all = topology.link_ids();
        let mut links: Vec<_> = match *self {
            Self::All => all.collect(),
            Self::HostLinks => all.filter(at_host).collect(),
            Self::Uplinks | Self::RandomUplink | Self::BusiestUplink => {
                all.filter(|link| !at_host(link)).collect()
            }
            Self::Between(a, b) => {
                all.filter(|link| joins(link, a, b) || joins(link, b, a)).collect()
            }
            Self::FromTo(a, b) => all.filter(|link| joins(link, a, b)).collect(),
        };
        if links.is_empty() {
            return Err(FaultError::NoSuchLink { selector: self.to_string() });
        }
        if *self == Self::BusiestUplink {
            return Ok(vec![Place::Busiest { back: false }, Place::Busiest { back: true }]);
        }
        if *self == Self::RandomUplink {
            let link = links[rng.index(links.len())];
            links = vec![LinkId(link.0 & !1), LinkId(link.0 | 1)];
        }
        Ok(links.into_iter().map(Place::Link).collect())
    }
}

impl fmt::Display for LinkSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(out, "all"),
            Self::HostLinks => write!(out, "host-links"),
            Self::Uplinks => write!(out, "uplinks"),
            Self::RandomUplink => write!(out, "random-uplink"),
            Self::BusiestUplink => write!(out, "busiest-uplink"),
            Self::Between(a, b) => write!(out, "{a}-{b}"),
            Self::FromTo(a, b) => write!(out, "{a}>{b}"),
        }
    }
}

/// The error for a text that is not a selection of links.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no links {text:?}, expected {}", EXPECTED)]
pub struct ParseLinksError {
    /// The text.
    pub text: String,
}

impl FromStr for LinkSelector {
    type Err = ParseLinksError;

    fn from_str(text: &str) -> Result<Self, ParseLinksError> {
        let pair = |separator| {
            let (a, b) = text.split_once(separator)?;
            Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
        };
        match text {
            "all" => Ok(Self::All),
            "host-links" => Ok(Self::HostLinks),
            "uplinks" => Ok(Self::Uplinks),
            "random-uplink" => Ok(Self::RandomUplink),
            "busiest-uplink" => Ok(Self::BusiestUplink),
            _ => {
                let between = pair('-').map(|(a, b)| Self::Between(a, b));
                between
                    .or_else(|| pair('>').map(|(a, b)| Self::FromTo(a, b)))
                    .ok_or_else(|| ParseLinksError { text: text.to_owned() })
            }
        }
    }
}

impl Serialize for LinkSelector {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkSelector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

weft_units::text_schema! {
    LinkSelector: "LinkSelector", "Links: `all`, `host-links`, `uplinks`, `random-uplink`, `busiest-uplink`, `128-136` or `128>136`",
        r"^(all|host-links|uplinks|random-uplink|busiest-uplink| *[0-9]+ *[->] *[0-9]+ *)$";
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;
    use weft_units::Seed;

    use super::*;

    #[test]
    fn selectors_parse_as_they_are_displayed_and_select_their_links() {
        let topology = LeafSpine::default().build().unwrap();
        for (text, count) in [
            ("all", 384),
            ("host-links", 256),
            ("uplinks", 128),
            ("random-uplink", 2),
            ("busiest-uplink", 2),
            ("128-136", 2),
            ("136>128", 1),
        ] {
            let selector: LinkSelector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
            let links = selector.select(&topology, &mut Seed(1).rng()).unwrap();
            assert_eq!(links.len(), count, "{text}");
        }
    }

    #[test]
    fn a_selector_that_selects_nothing_is_an_error() {
        let topology = LeafSpine::default().build().unwrap();
        let error = LinkSelector::Between(0, 1).select(&topology, &mut Seed(1).rng()).unwrap_err();
        assert_eq!(error.to_string(), "links \"0-1\" match no link of this topology");
        let error = "sideways".parse::<LinkSelector>().unwrap_err();
        assert!(error.to_string().contains("expected all"));
    }
}
