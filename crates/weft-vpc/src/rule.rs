//! One rule of an access list or a security group, in its text form.
//!
//! ```text
//! [PRIORITY] allow|deny ingress|egress [PROTOCOL] [from NET [port PORTS]] [to NET [port PORTS]]
//!     [type TYPE [code CODE]] [name NAME]
//! ```
//!
//! PROTOCOL is `any`, `tcp`, `udp`, `icmp`, `icmpv6` or a number; NET is `any`, a prefix, or `@` and
//! the name of a set of prefixes; PORTS is a port, or two with `-` between them. In a file a rule may also
//! be a table with these words as keys.

use alloc::string::String;

use crate::{Direction, Prefix, protocol};

mod error;
mod text;
#[cfg(feature = "serde")]
mod with_serde;

pub use error::RuleError;
pub use text::ParseRuleError;

/// The action of a rule on packets that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Action {
    /// Lets the packet pass.
    Allow,
    /// Drops the packet.
    Deny,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name for display; may be empty.
    pub name: String,
    /// The priority: rules with lower numbers apply first, rules with the same number in the order they are
    /// written.
    pub priority: u32,
    /// The action on matching packets.
    pub action: Action,
    /// The direction of the packets that it matches.
    pub direction: Direction,
    /// The packet's protocol; `None` matches any.
    pub protocol: Option<u8>,
    /// The packet's source.
    pub from: Ends,
    /// The packet's destination.
    pub to: Ends,
    /// Type and optional code of an ICMP message.
    pub icmp: Option<(u8, Option<u8>)>,
}

/// The addresses and ports of one side of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ends {
    /// The addresses.
    pub net: Net,
    /// The ports of TCP or UDP; `None` matches any.
    pub ports: Option<Ports>,
}

/// The addresses that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Net {
    /// All addresses.
    #[default]
    Any,
    /// The addresses of a prefix.
    Prefix(Prefix),
    /// The addresses of the set of this name: a security group's members, or a list of prefixes.
    Set(String),
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Every port.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    /// Returns the range `first` to `last`; `None` if it is empty.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// Returns the first port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// Returns the last port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Returns `true` if `port` is in the range.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl Rule {
    /// The priority of a rule that has none written.
    pub const DEFAULT_PRIORITY: u32 = 1000;

    /// Returns a rule that matches every packet of one direction.
    pub fn new(action: Action, direction: Direction) -> Self {
        Self {
            name: String::new(),
            priority: Self::DEFAULT_PRIORITY,
            action,
            direction,
            protocol: None,
            from: Ends::default(),
            to: Ends::default(),
            icmp: None,
        }
    }

    /// Checks that the rule's parts are consistent.
    ///
    /// # Errors
    /// Returns the contradiction: ports or types without a protocol that has them, or addresses of two versions.
    pub fn check(&self) -> Result<(), RuleError> {
        let has_ports = self.from.ports.is_some() || self.to.ports.is_some();
        if has_ports && !matches!(self.protocol, Some(protocol::TCP | protocol::UDP)) {
            return Err(RuleError::PortsWithoutProtocol);
        }
        if self.icmp.is_some() && !matches!(self.protocol, Some(protocol::ICMP | protocol::ICMPV6))
        {
            return Err(RuleError::TypeWithoutProtocol);
        }
        let (from, to) = (&self.from.net, &self.to.net);
        if let (Net::Prefix(from), Net::Prefix(to)) = (from, to)
            && from.address().is_ipv4() != to.address().is_ipv4()
        {
            return Err(RuleError::TwoVersions { from: *from, to: *to });
        }
        let v4 = |net: &Net| matches!(net, Net::Prefix(prefix) if prefix.address().is_ipv4());
        let v6 = |net: &Net| matches!(net, Net::Prefix(prefix) if prefix.address().is_ipv6());
        let mixed = (self.protocol == Some(protocol::ICMPV6) && (v4(from) || v4(to)))
            || (self.protocol == Some(protocol::ICMP) && (v6(from) || v6(to)));
        if mixed {
            return Err(RuleError::IcmpOfOtherVersion);
        }
        Ok(())
    }
}
