//! Security groups: which connections a port may have. A connection that a rule lets begin passes both
//! ways until it ends; so do ICMP errors about it.
//!
//! A port has the rules of all its groups, and what none allows is denied, to it and from it. ARP and
//! neighbour discovery always pass: without them nobody is reached. Parts of packets pass if their
//! first part did.

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

/// A group as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct SecurityGroupConfig {
    /// What it is called. Rules speak of the machines that are in it by `@` and this name.
    pub name: String,
    /// The machines that are in it, for rules that speak of them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub members: Vec<Prefix>,
    /// What may begin.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rules: Vec<Rule>,
}

/// Why a frame passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A rule lets its connection begin, by the rule's place in [`SecurityGroups::rules`].
    Rule(u32),
    /// Its connection has begun.
    Connection,
    /// It is an error about a connection.
    Related,
    /// It is a later part of a packet whose first part passed.
    Fragment,
    /// It finds neighbours.
    Neighbours,
}

/// Why a frame does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A rule denies it, by its place, or none allows it.
    Denied(Option<u32>),
    /// There is no room to remember its connection.
    TableFull,
    /// The first part of its packet has not passed, or too long ago.
    NoFirstPart,
}

impl Refusal {
    /// A short name for counters.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::TableFull => "connection_table_full",
            Self::NoFirstPart => "no_first_part",
        }
    }
}

/// What passed and what did not. All of them only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SecurityGroupCounters {
    /// Frames that passed.
    pub passed: u64,
    /// Frames that no rule allows.
    pub denied: u64,
    /// Frames whose connections could not be remembered.
    pub table_full: u64,
    /// Later parts of packets whose first part had not passed.
    pub no_first_part: u64,
}

/// The security groups of one port.
#[derive(Debug)]
pub struct SecurityGroups {
    rules: Acl,
    connections: Connections,
    /// Grows when the rules change.
    generation: u32,
    first_parts: VecDeque<FirstPart>,
    counters: SecurityGroupCounters,
}

/// The first part of a packet that passed.
#[derive(Clone, Copy, Debug)]
struct FirstPart {
    packet: (IpAddr, IpAddr, u32),
    at: Instant,
}

/// First parts remembered. A sender has few packets in parts at a time.
const MOST_FIRST_PARTS: usize = 256;
/// How long a receiver waits for the other parts of a packet (RFC 8200, section 4.5: 60 s).
const PARTS_WITHIN: weft_units::Duration = weft_units::Duration::from_secs(60);

impl SecurityGroups {
    /// The groups of a port, that remember connections as `connections` says. The secret keeps who
    /// does not know it from making look-ups slow.
    ///
    /// # Errors
    /// Like [`Acl::new`].
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
            first_parts: VecDeque::new(),
            counters: SecurityGroupCounters::default(),
        })
    }

    /// Other groups, or the same with other rules or machines. A connection that could not begin any
    /// more ends with its next packet; all others go on.
    ///
    /// # Errors
    /// Like [`Acl::new`]; the old rules then stay.
    pub fn set(&mut self, groups: &[SecurityGroupConfig], sets: &Sets) -> Result<(), AclError> {
        self.rules = rules_of(groups, sets)?;
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// Whether a frame passes. `bytes` are the frame's, at least [`LOOK_AHEAD`](Frame::LOOK_AHEAD) of
    /// them.
    ///
    /// # Errors
    /// Why it does not: the frame is to be dropped.
    pub fn judge(
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
            Err(Refusal::NoFirstPart) => counters.no_first_part += 1,
        }
        if let Ok(Pass::Rule(rule)) | Err(Refusal::Denied(Some(rule))) = verdict {
            rules.hit(rule);
        }
        if let (Ok(_), Some(ip)) = (verdict, frame.ip()) {
            self.remember(ip, now);
        }
        verdict
    }

    /// What the rules alone say of a frame, as if it began a connection.
    pub fn explain(&self, direction: Direction, frame: &Frame) -> Explanation<'_> {
        self.rules.explain(direction, frame)
    }

    /// The rules of all groups in the order in which they apply, and how many frames each decided on.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.rules.rules()
    }

    /// Connections remembered.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// What passed and what did not.
    pub const fn counters(&self) -> SecurityGroupCounters {
        self.counters
    }

    /// Forgets connections that are over, of the next `count` that were remembered. Nothing outdated
    /// lets a frame pass without this; it only makes room.
    pub fn sweep(&mut self, count: usize, now: Instant) {
        self.connections.clear(count, now);
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
            return self.later_part(ip, fragment, now);
        }
        let tcp = match &ip.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        };
        let tuple = Tuple::of(ip);
        if let Some((tuple, from)) = tuple
            && self.goes_on(&tuple, from, direction, tcp, now)
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
                let room = self.connections.add(tuple, began, tcp, self.generation, now);
                if room { Ok(Pass::Rule(rule)) } else { Err(Refusal::TableFull) }
            }
            None => Ok(Pass::Rule(rule)),
        }
    }

    /// Whether a packet belongs to a connection that has begun and may go on.
    fn goes_on(
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

    /// Remembers the first part of a packet.
    fn remember(&mut self, ip: &Ip, now: Instant) {
        let Some(fragment) = ip.fragment.filter(|fragment| !fragment.is_later()) else { return };
        if self.first_parts.len() == MOST_FIRST_PARTS {
            self.first_parts.pop_front();
        }
        let packet = (ip.source, ip.destination, fragment.identification);
        self.first_parts.push_back(FirstPart { packet, at: now });
    }

    fn later_part(&self, ip: &Ip, fragment: Fragment, now: Instant) -> Result<Pass, Refusal> {
        let packet = (ip.source, ip.destination, fragment.identification);
        let first = |part: &FirstPart| part.packet == packet && now.since(part.at) < PARTS_WITHIN;
        match self.first_parts.iter().any(first) {
            true => Ok(Pass::Fragment),
            false => Err(Refusal::NoFirstPart),
        }
    }
}

/// One list of all groups' rules, named for their groups.
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
