//! Access lists: ordered rules that allow or deny each packet on its own, without connection state.
//!
//! A list matches IP packets. ARP and neighbour discovery always pass, because without them no address can be
//! reached; other protocols on Ethernet get the list's default. A later fragment has no ports: a rule that allows
//! some ports lets it pass by its addresses and protocol, a rule that denies some ports does not match it. Without
//! the first fragment, which the rules do match, the receiver cannot use a later one (RFC 1858, section 3).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use crate::{Action, Direction, Frame, Net, Network, Prefix, Rule, RuleError, neighbour};

mod classifier;

use classifier::Classifier;
pub(crate) use classifier::{Headers, Upper};

/// Prefixes by the name that rules use for them.
pub type Sets = BTreeMap<String, Vec<Prefix>>;

/// An access list as written in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct AclConfig {
    /// The list's name.
    pub name: String,
    /// The action for packets that no rule matches; deny by default.
    #[cfg_attr(feature = "serde", serde(default = "deny"))]
    pub default: Action,
    /// The rules.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rules: Vec<Rule>,
}

#[cfg(feature = "serde")]
const fn deny() -> Action {
    Action::Deny
}

/// The reason that a list is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AclError {
    /// A rule that contradicts itself.
    #[error("{list}: rule {rule:?}: {problem}")]
    Rule {
        /// The list's name.
        list: String,
        /// The rule.
        rule: String,
        /// The contradiction.
        problem: RuleError,
    },
    /// A rule that names an unknown set.
    #[error("{list}: rule {rule:?}: {problem}")]
    UnknownSet {
        /// The list's name.
        list: String,
        /// The rule.
        rule: String,
        /// The unknown name and the known names.
        problem: String,
    },
    /// The list, with its sets, has more than [`Acl::MAX_ENTRIES`] entries in one direction.
    #[error("{list}: with its sets it has more than {} entries", Acl::MAX_ENTRIES)]
    TooMany {
        /// The list's name.
        list: String,
    },
}

/// An access list that decides on packets.
#[derive(Clone, Debug)]
pub struct Acl {
    name: String,
    default: Action,
    /// The rules in the order in which they apply.
    rules: Vec<Rule>,
    /// Number of packets that each rule decided on.
    hits: Vec<u64>,
    classifiers: [Classifier; 2],
}

/// The decision on a packet and the rule that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The action on the packet.
    pub action: Action,
    /// The rule's index in [`Acl::rules`]; `None` if the default applied.
    pub rule: Option<u32>,
}

/// A decision with names, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// The action on the packet.
    pub action: Action,
    /// The list's name.
    pub list: &'a str,
    /// The rule that decided; `None` if the default applied.
    pub rule: Option<&'a Rule>,
}

impl Acl {
    /// Maximum number of entries of each direction; a rule with sets has one for each pair of their prefixes.
    pub const MAX_ENTRIES: usize = 1 << 20;

    /// Creates a list from its rules and the addresses of the sets they name.
    ///
    /// # Errors
    /// The first rule that contradicts itself or names an unknown set, or the first beyond
    /// [`MAX_ENTRIES`](Self::MAX_ENTRIES).
    pub fn new(config: &AclConfig, sets: &Sets) -> Result<Self, AclError> {
        let mut rules = config.rules.clone();
        rules.sort_by_key(|rule| rule.priority);
        let mut classifiers = [Classifier::default(), Classifier::default()];
        for (index, rule) in rules.iter().enumerate() {
            let list = || config.name.clone();
            let text = || alloc::format!("{rule}");
            rule.check().map_err(|problem| AclError::Rule {
                list: list(),
                rule: text(),
                problem,
            })?;
            let unknown = |problem| AclError::UnknownSet { list: list(), rule: text(), problem };
            let from = prefixes(&rule.from.net, sets).map_err(unknown)?;
            let to = prefixes(&rule.to.net, sets).map_err(unknown)?;
            let index = u32::try_from(index).map_err(|_| AclError::TooMany { list: list() })?;
            let classifier = &mut classifiers[rule.direction as usize];
            for &from in &from {
                for &to in &to {
                    if classifier.len() >= Self::MAX_ENTRIES {
                        return Err(AclError::TooMany { list: list() });
                    }
                    classifier.add(index, rule, from, to);
                }
            }
        }
        classifiers.iter_mut().for_each(Classifier::build);
        let hits = alloc::vec![0; rules.len()];
        Ok(Self { name: config.name.clone(), default: config.default, rules, hits, classifiers })
    }

    /// Returns the decision on a frame and counts it for the rule that made it.
    pub fn evaluate(&mut self, direction: Direction, frame: &Frame) -> Decision {
        let decision = self.decide(direction, frame);
        decision.rule.into_iter().for_each(|rule| self.hit(rule));
        decision
    }

    /// Counts a packet for the rule that decided on it.
    pub(crate) fn hit(&mut self, rule: u32) {
        self.hits[rule as usize] += 1;
    }

    /// Returns the decision on a frame and the rule that made it, without counting it.
    pub fn explain(&self, direction: Direction, frame: &Frame) -> Explanation<'_> {
        let Decision { action, rule } = self.decide(direction, frame);
        let rule = rule.map(|rule| &self.rules[rule as usize]);
        Explanation { action, list: &self.name, rule }
    }

    /// Returns the rules in the order in which they apply, each with the number of frames that it decided on.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.rules.iter().zip(self.hits.iter().copied())
    }

    /// Returns the list's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the decision on a frame without counting it.
    fn decide(&self, direction: Direction, frame: &Frame) -> Decision {
        match &frame.network {
            Network::Ip(ip) if !neighbour::is_discovery(ip) => {
                self.decide_headers(direction, &Headers::of(ip))
            }
            Network::Arp(_) | Network::Ip(_) => Decision { action: Action::Allow, rule: None },
            Network::Other => Decision { action: self.default, rule: None },
        }
    }

    /// Returns the decision on an IP packet with these header fields without counting it.
    pub(crate) fn decide_headers(&self, direction: Direction, headers: &Headers) -> Decision {
        let rule = self.classifiers[direction as usize].first(headers);
        let action = rule.map_or(self.default, |rule| self.rules[rule as usize].action);
        Decision { action, rule }
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some(rule) => write!(out, "{} by {}: {rule}", self.action, self.list),
            None => write!(out, "{} by {}: no rule matches", self.action, self.list),
        }
    }
}

/// Returns the prefixes that a rule names; `None` stands for all addresses of both versions.
fn prefixes(net: &Net, sets: &Sets) -> Result<Vec<Option<Prefix>>, String> {
    match net {
        Net::Any => Ok(alloc::vec![None]),
        Net::Prefix(prefix) => Ok(alloc::vec![Some(*prefix)]),
        Net::Set(name) => match sets.get(name) {
            Some(set) => Ok(set.iter().copied().map(Some).collect()),
            None => {
                let known: Vec<_> = sets.keys().map(String::as_str).collect();
                Err(weft_units::unknown_name("set", name, &known))
            }
        },
    }
}

#[cfg(test)]
mod tests;
