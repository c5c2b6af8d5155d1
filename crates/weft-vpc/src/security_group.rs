//! Security groups: rules on the connections that a port may have. A connection that a rule allows to begin passes
//! in both directions until it ends; so do ICMP errors about it.
//!
//! A port has the rules of all its groups; packets to and from it that no rule allows are denied. ARP and
//! neighbour discovery always pass, because without them no address can be reached. Later fragments pass if the
//! first fragment of their packet did.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_units::Instant;

use crate::acl::Headers;
use crate::connections::{Connections, Side, Tuple, quoted};
use crate::{
    Acl, AclConfig, AclError, Action, ConnectionsConfig, Decision, Direction, Explanation,
    Fragment, Frame, Ip, Network, Prefix, Rule, Sets, Tcp, Transport, neighbour,
};

/// A group as written in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct SecurityGroupConfig {
    /// The group's name. Rules refer to its members by `@` and this name.
    pub name: String,
    /// The addresses of its members, for rules that refer to them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub members: Vec<Prefix>,
    /// The rules on connections that may begin.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rules: Vec<Rule>,
}

/// The reason that a frame passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A rule allows its connection to begin, given by its index in [`SecurityGroups::rules`].
    Rule(u32),
    /// It belongs to a tracked connection.
    Connection,
    /// It is an ICMP error about a tracked connection.
    Related,
    /// It is a later fragment of a packet whose first fragment passed.
    Fragment,
    /// It is ARP or neighbour discovery.
    Neighbours,
}

/// The reason that a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The rule with this index denies it; no rule allows it if `None`.
    Denied(Option<u32>),
    /// The table has no room for its connection.
    TableFull,
    /// The first fragment of its packet has not passed, or passed too long ago.
    NoFirstFragment,
}

impl Refusal {
    /// Returns a short name for counters.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::TableFull => "connection_table_full",
            Self::NoFirstFragment => "no_first_part",
        }
    }
}

/// Numbers of frames passed and dropped. All of them only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SecurityGroupCounters {
    /// Number of frames that passed.
    pub passed: u64,
    /// Number of frames that no rule allows.
    pub denied: u64,
    /// Number of frames dropped because the table had no room for their connections.
    pub table_full: u64,
    /// Number of later fragments whose first fragment had not passed.
    pub no_first_part: u64,
}

/// The security groups of one port.
#[derive(Debug)]
pub struct SecurityGroups {
    rules: Acl,
    connections: Connections,
    /// Incremented when the rules change.
    generation: u32,
    first_fragments: VecDeque<FirstFragment>,
    counters: SecurityGroupCounters,
}

/// A first fragment that passed.
#[derive(Clone, Copy, Debug)]
struct FirstFragment {
    packet: (IpAddr, IpAddr, u32),
    at: Instant,
}

/// Maximum number of first fragments kept. A sender has few fragmented packets at a time.
const MAX_FIRST_FRAGMENTS: usize = 256;
/// The time that a receiver waits for the other fragments of a packet (RFC 8200, section 4.5: 60 s).
const REASSEMBLY_TIMEOUT: weft_units::Duration = weft_units::Duration::from_secs(60);

impl SecurityGroups {
    /// Creates the groups of a port, which track connections with the limits of `connections`. `secret` keys the
    /// hash, so that a sender without it cannot make lookups slow.
    ///
    /// # Errors
    /// The errors of [`Acl::new`].
    pub fn new(
        groups: &[SecurityGroupConfig],
        sets: &Sets,
        connections: ConnectionsConfig,
        secret: (u64, u64),
    ) -> Result<Self, AclError> {
        Ok(Self {
            rules: rules_of(groups, sets)?,
            connections: Connections::new(connections, secret),
            generation: 0,
            first_fragments: VecDeque::new(),
            counters: SecurityGroupCounters::default(),
        })
    }

    /// Replaces the groups, their rules or their members, and the limits of connections. A connection that the new rules
    /// would not allow to begin ends with its next packet; all others stay, and have the new time-out from their next
    /// packet on.
    ///
    /// # Errors
    /// The errors of [`Acl::new`]; the old rules then stay.
    pub fn set(
        &mut self,
        groups: &[SecurityGroupConfig],
        sets: &Sets,
        connections: ConnectionsConfig,
    ) -> Result<(), AclError> {
        self.rules = rules_of(groups, sets)?;
        self.connections.set_config(connections);
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// Decides on a frame and counts it. `bytes` are the frame's, at least
    /// [`MIN_PARSE_BYTES`](Frame::MIN_PARSE_BYTES) of them. Returns the reason that it passes.
    ///
    /// # Errors
    /// The reason that it is denied; the caller drops the frame.
    pub fn evaluate(
        &mut self,
        direction: Direction,
        frame: &Frame,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Pass, Refusal> {
        let verdict = self.decide(direction, frame, bytes, now);
        let Self { rules, counters, .. } = self;
        match verdict {
            Ok(_) => counters.passed += 1,
            Err(Refusal::Denied(_)) => counters.denied += 1,
            Err(Refusal::TableFull) => counters.table_full += 1,
            Err(Refusal::NoFirstFragment) => counters.no_first_part += 1,
        }
        if let Ok(Pass::Rule(rule)) | Err(Refusal::Denied(Some(rule))) = verdict {
            rules.hit(rule);
        }
        if let (Ok(_), Some(ip)) = (verdict, frame.ip()) {
            self.record_first_fragment(ip, now);
        }
        verdict
    }

    /// Returns the rules' decision on a frame as if it began a connection.
    pub fn explain(&self, direction: Direction, frame: &Frame) -> Explanation<'_> {
        self.rules.explain(direction, frame)
    }

    /// Returns the rules of all groups in the order in which they apply, each with the number of frames it
    /// decided on.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.rules.rules()
    }

    /// Returns the number of tracked connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the counters.
    pub const fn counters(&self) -> SecurityGroupCounters {
        self.counters
    }

    /// Removes the expired connections among the next `count` slots of the table. An expired connection never lets a
    /// frame pass; this call only frees memory.
    pub fn sweep(&mut self, count: usize, now: Instant) {
        self.connections.sweep(count, now);
    }

    fn decide(
        &mut self,
        direction: Direction,
        frame: &Frame,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Pass, Refusal> {
        let ip = match &frame.network {
            Network::Arp(_) => return Ok(Pass::Neighbours),
            Network::Other => return Err(Refusal::Denied(None)),
            Network::Ip(ip) if neighbour::is_discovery(ip) => return Ok(Pass::Neighbours),
            Network::Ip(ip) => ip,
        };
        if let Some(fragment) = ip.fragment.filter(Fragment::is_later) {
            return self.decide_later_fragment(ip, fragment, now);
        }
        let tcp = match &ip.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        };
        let tuple = Tuple::of(ip);
        if let Some((tuple, from)) = tuple
            && self.belongs_to_tracked(&tuple, from, direction, tcp, now)
        {
            return Ok(Pass::Connection);
        }
        if quoted(ip, bytes).is_some_and(|about| self.connections.find(&about, now).is_some()) {
            return Ok(Pass::Related);
        }
        let decision = self.rules.decide_headers(direction, &Headers::of(ip));
        let Decision { action: Action::Allow, rule: Some(rule) } = decision else {
            return Err(Refusal::Denied(decision.rule));
        };
        match tuple {
            Some((tuple, from)) => {
                let began = (from, direction);
                let added = self.connections.add(tuple, began, tcp, self.generation, now);
                if added { Ok(Pass::Rule(rule)) } else { Err(Refusal::TableFull) }
            }
            None => Ok(Pass::Rule(rule)),
        }
    }

    /// Returns `true` if a packet belongs to a tracked connection that the rules still allow.
    fn belongs_to_tracked(
        &mut self,
        tuple: &Tuple,
        from: Side,
        direction: Direction,
        tcp: Option<&Tcp>,
        now: Instant,
    ) -> bool {
        let generation = self.generation;
        let Some(known) = self.connections.find_mut(tuple, now) else { return false };
        if known.may_reopen(tcp) || known.direction_of(from) != direction {
            return false;
        }
        if known.generation != generation {
            let began = known.direction_of(known.originator);
            let headers = tuple.headers(known.originator);
            if self.rules.decide_headers(began, &headers).action != Action::Allow {
                self.connections.remove(tuple);
                return false;
            }
            known.generation = generation;
        }
        self.connections.advance(tuple, from, tcp, now);
        true
    }

    /// Records a first fragment that passed.
    fn record_first_fragment(&mut self, ip: &Ip, now: Instant) {
        let Some(fragment) = ip.fragment.filter(|fragment| !fragment.is_later()) else { return };
        if self.first_fragments.len() == MAX_FIRST_FRAGMENTS {
            self.first_fragments.pop_front();
        }
        let packet = (ip.source, ip.destination, fragment.identification);
        self.first_fragments.push_back(FirstFragment { packet, at: now });
    }

    fn decide_later_fragment(
        &self,
        ip: &Ip,
        fragment: Fragment,
        now: Instant,
    ) -> Result<Pass, Refusal> {
        let packet = (ip.source, ip.destination, fragment.identification);
        let first = |known: &FirstFragment| {
            known.packet == packet && now.since(known.at) < REASSEMBLY_TIMEOUT
        };
        match self.first_fragments.iter().any(first) {
            true => Ok(Pass::Fragment),
            false => Err(Refusal::NoFirstFragment),
        }
    }
}

/// Returns one list of all groups' rules, each named for its group.
fn rules_of(groups: &[SecurityGroupConfig], sets: &Sets) -> Result<Acl, AclError> {
    let named = |group: &SecurityGroupConfig| {
        let name = group.name.clone();
        group.rules.clone().into_iter().map(move |mut rule| {
            rule.name = match rule.name.is_empty() {
                true => name.clone(),
                false => format!("{name}/{}", rule.name),
            };
            rule
        })
    };
    let names: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
    let rules = groups.iter().flat_map(named).collect();
    Acl::new(&AclConfig { name: names.join(", "), default: Action::Deny, rules }, sets)
}

#[cfg(test)]
mod tests;
