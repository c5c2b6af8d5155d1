//! One rule of an access list or a security group, as people write it.
//!
//! ```text
//! [PRIORITY] allow|deny ingress|egress [PROTOCOL] [from NET [port PORTS]] [to NET [port PORTS]]
//!     [type TYPE [code CODE]] [name NAME]
//! ```
//!
//! PROTOCOL is `any`, `tcp`, `udp`, `icmp`, `icmpv6` or a number; NET is `any`, a prefix, or `@` and
//! the name of a set of prefixes; PORTS is a port or two with `-` between. In a file a rule may also
//! be a table with these words as keys.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use crate::{Direction, Prefix, protocol};

mod text;
#[cfg(feature = "serde")]
mod with_serde;

pub use text::ParseRuleError;

/// What a rule does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Action {
    /// Lets it pass.
    Allow,
    /// Drops it.
    Deny,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is called where it is shown. May be empty.
    pub name: String,
    /// Rules with lower numbers come first; with the same number, in the order they are written.
    pub priority: u32,
    /// What it does.
    pub action: Action,
    /// Which way it looks.
    pub direction: Direction,
    /// The packet's protocol; nothing is any.
    pub protocol: Option<u8>,
    /// Where the packet comes from.
    pub from: Ends,
    /// Where it goes.
    pub to: Ends,
    /// Type and code of an ICMP message.
    pub icmp: Option<(u8, Option<u8>)>,
}

/// One side of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ends {
    /// Addresses.
    pub net: Net,
    /// Ports, of TCP and UDP.
    pub ports: Option<Ports>,
}

/// Addresses a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Net {
    /// All.
    #[default]
    Any,
    /// Those that begin alike.
    Prefix(Prefix),
    /// Those of a set, by its name: the machines of a security group, or a list of prefixes.
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

    /// `first` to `last`; `None` if there is no such port.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// The first one.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The last one.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether `port` is one of them.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl Rule {
    /// Priority of a rule that names none.
    pub const DEFAULT_PRIORITY: u32 = 1000;

    /// A rule about everything that goes this way.
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

    /// Whether the rule's parts go together; what is wrong where they do not.
    ///
    /// # Errors
    /// Ports or types without the protocol that has them, and addresses of two versions.
    pub fn check(&self) -> Result<(), String> {
        let has_ports = self.from.ports.is_some() || self.to.ports.is_some();
        if has_ports && !matches!(self.protocol, Some(protocol::TCP | protocol::UDP)) {
            return Err("ports need protocol tcp or udp".to_owned());
        }
        if self.icmp.is_some() && !matches!(self.protocol, Some(protocol::ICMP | protocol::ICMPV6))
        {
            return Err("type needs protocol icmp or icmpv6".to_owned());
        }
        let (from, to) = (&self.from.net, &self.to.net);
        if let (Net::Prefix(from), Net::Prefix(to)) = (from, to)
            && from.address().is_ipv4() != to.address().is_ipv4()
        {
            return Err(format!("{from} and {to} are of two versions of IP"));
        }
        let v4 = |net: &Net| matches!(net, Net::Prefix(prefix) if prefix.address().is_ipv4());
        let v6 = |net: &Net| matches!(net, Net::Prefix(prefix) if prefix.address().is_ipv6());
        let mixed = (self.protocol == Some(protocol::ICMPV6) && (v4(from) || v4(to)))
            || (self.protocol == Some(protocol::ICMP) && (v6(from) || v6(to)));
        if mixed {
            return Err("icmp is of IPv4 and icmpv6 of IPv6; the prefix is of the other".to_owned());
        }
        Ok(())
    }
}
