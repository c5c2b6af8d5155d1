//! The search for the first of many rules that matches a packet: tuple space search (Srinivasan, Suri and Varghese,
//! SIGCOMM 1999), as in Open vSwitch.
//!
//! Rules whose prefixes have the same lengths form one tuple: one lookup in a hash table, under the packet's
//! addresses cut to these lengths, finds those of them that the packet can match. The search visits tuples in the
//! order of their first rules and stops when no later tuple can have an earlier rule than the one found. Rules
//! under the same addresses are distinguished by their ports, by bisection where there are many.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use hashbrown::HashTable;

use crate::{Action, Ip, Ports, Prefix, Rule, Transport};

/// The header fields that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) upper: Upper,
}

/// The fields above IP that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upper {
    Ports {
        source: u16,
        destination: u16,
    },
    Icmp {
        kind: u8,
        code: u8,
    },
    /// The header is in another fragment.
    Elsewhere,
    /// The protocol has no fields that rules match.
    Nothing,
}

impl Headers {
    pub(crate) const fn of(ip: &Ip) -> Self {
        let upper = match ip.transport {
            Transport::Tcp(tcp) => {
                Upper::Ports { source: tcp.source, destination: tcp.destination }
            }
            Transport::Udp(udp) => {
                Upper::Ports { source: udp.source, destination: udp.destination }
            }
            Transport::Icmp(icmp) => Upper::Icmp { kind: icmp.kind, code: icmp.code },
            Transport::LaterFragment => Upper::Elsewhere,
            Transport::Other => Upper::Nothing,
        };
        let Ip { source, destination, protocol, .. } = *ip;
        Self { source, destination, protocol, upper }
    }
}

/// A rule with one prefix on each side.
#[derive(Clone, Debug)]
struct Entry {
    /// The rule's index.
    rule: u32,
    shape: Shape,
    key: Key,
    from_ports: Ports,
    to_ports: Ports,
    icmp: Option<(u8, Option<u8>)>,
    allows: bool,
}

impl Entry {
    /// Returns `true` if the entry matches every packet with its key.
    fn matches_all_of_its_key(&self) -> bool {
        self.icmp.is_none() && self.from_ports == Ports::ALL && self.to_ports == Ports::ALL
    }

    /// Returns `true` if the entry matches a packet with its key.
    fn matches(&self, headers: &Headers) -> bool {
        if self.matches_all_of_its_key() {
            return true;
        }
        match headers.upper {
            Upper::Ports { source, destination } => {
                let ports = self.from_ports.contains(source) && self.to_ports.contains(destination);
                ports && self.icmp.is_none()
            }
            Upper::Icmp { kind, code } => self.icmp.is_some_and(|(wanted, wanted_code)| {
                wanted == kind && wanted_code.is_none_or(|wanted| wanted == code)
            }),
            Upper::Elsewhere => self.allows,
            Upper::Nothing => false,
        }
    }
}

/// The properties that all rules of a tuple share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// `None` if neither prefix sets the version.
    version: Option<Version>,
    has_protocol: bool,
    from_bits: u8,
    to_bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    V4,
    V6,
}

impl Version {
    const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The values that packets of a tuple's rules share: addresses cut to the tuple's lengths, aligned to the word's
/// high bits, and zero in fields that do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    protocol: u8,
    from: u128,
    to: u128,
}

impl Key {
    /// Returns a hash by folded multiplication with 2^64 divided by the golden ratio. Only the operator chooses the
    /// table's keys, so no attacker can lengthen its chains.
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    fn hash(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |hash: u64, word: u64| {
            let product = u128::from(hash ^ word) * u128::from(ODD);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let halves = |word: u128| [word as u64, (word >> 64) as u64];
        let words = halves(self.from).into_iter().chain(halves(self.to));
        words.fold(u64::from(self.protocol).wrapping_add(ODD), fold)
    }
}

/// Returns an address as a word whose highest bit is the address's first.
fn word(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns the first `bits` bits of a word; the others are zero.
const fn cut(word: u128, bits: u8) -> u128 {
    if bits == 0 { 0 } else { word & (u128::MAX << (128 - bits)) }
}

#[derive(Clone, Debug)]
struct Tuple {
    shape: Shape,
    /// The index of its first entry.
    first: u32,
    buckets: HashTable<Bucket>,
}

/// The entries under one key, in order.
#[derive(Clone, Debug)]
struct Bucket {
    key: Key,
    entries: Vec<u32>,
    by_port: Option<ByPort>,
}

/// The entries of a bucket for each range of destination ports that has the same entries.
#[derive(Clone, Debug)]
struct ByPort {
    /// The first port of each range; the first range starts at port 0.
    starts: Vec<u16>,
    entries: Vec<Vec<u32>>,
}

/// Maximum number of entries of a bucket for which a linear search is faster than bisection.
const MAX_LINEAR_ENTRIES: usize = 8;

impl ByPort {
    /// Builds the ranges for the entries in `list`. Returns `None` if the ranges would take much more memory than the
    /// entries: only lists that match source ports under overlapping ranges of destination ports do.
    fn build(list: &[u32], entries: &[Entry]) -> Option<Self> {
        // The ports at which entries begin and end: between two of them the set of entries does not change.
        let mut changes: BTreeMap<u16, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        changes.entry(0).or_default();
        for &index in list {
            let ports = entries[index as usize].to_ports;
            changes.entry(ports.first()).or_default().0.push(index);
            if let Some(after) = ports.last().checked_add(1) {
                changes.entry(after).or_default().1.push(index);
            }
        }
        let mut budget = 16 * list.len() + 1024;
        let mut built = Self { starts: Vec::new(), entries: Vec::new() };
        let mut covering = BTreeSet::new();
        for (start, (begin, end)) in changes {
            covering.extend(begin);
            end.iter().for_each(|index| {
                covering.remove(index);
            });
            let mut range = Vec::new();
            for &index in &covering {
                range.push(index);
                // An entry after one that matches every remaining packet cannot be first.
                let entry = &entries[index as usize];
                if entry.from_ports == Ports::ALL && entry.icmp.is_none() {
                    break;
                }
                budget = budget.checked_sub(1)?;
            }
            built.starts.push(start);
            built.entries.push(range);
        }
        Some(built)
    }

    /// Returns the entries whose destination ports include `port`.
    fn entries(&self, port: u16) -> &[u32] {
        let after = self.starts.partition_point(|&start| start <= port);
        &self.entries[after - 1]
    }
}

/// The rules of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Classifier {
    /// The entries in the order in which they apply.
    entries: Vec<Entry>,
    /// The tuples in the order of their first entries.
    tuples: Vec<Tuple>,
}

impl Classifier {
    /// Adds a rule after all others, for one prefix on each side. Prefixes of different versions match nothing and
    /// are not added.
    pub(super) fn add(
        &mut self,
        rule: u32,
        source: &Rule,
        from: Option<Prefix>,
        to: Option<Prefix>,
    ) {
        let version = |prefix: Option<Prefix>| prefix.map(|prefix| Version::of(prefix.address()));
        if let (Some(from), Some(to)) = (version(from), version(to))
            && from != to
        {
            return;
        }
        let bits = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| prefix.bits());
        let address = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| word(prefix.address()));
        self.entries.push(Entry {
            rule,
            shape: Shape {
                version: version(from).or_else(|| version(to)),
                has_protocol: source.protocol.is_some(),
                from_bits: bits(from),
                to_bits: bits(to),
            },
            key: Key {
                protocol: source.protocol.unwrap_or(0),
                from: address(from),
                to: address(to),
            },
            from_ports: source.from.ports.unwrap_or(Ports::ALL),
            to_ports: source.to.ports.unwrap_or(Ports::ALL),
            icmp: source.icmp,
            allows: source.action == Action::Allow,
        });
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sorts the added entries into tuples.
    pub(super) fn build(&mut self) {
        for (index, entry) in (0..).zip(&self.entries) {
            let place = self.tuples.iter().position(|tuple| tuple.shape == entry.shape);
            let place = place.unwrap_or_else(|| {
                let buckets = HashTable::new();
                self.tuples.push(Tuple { shape: entry.shape, first: index, buckets });
                self.tuples.len() - 1
            });
            let buckets = &mut self.tuples[place].buckets;
            let same = |bucket: &Bucket| bucket.key == entry.key;
            let empty = || Bucket { key: entry.key, entries: Vec::new(), by_port: None };
            let slot = buckets.entry(entry.key.hash(), same, |bucket| bucket.key.hash());
            slot.or_insert_with(empty).into_mut().entries.push(index);
        }
        for bucket in self.tuples.iter_mut().flat_map(|tuple| tuple.buckets.iter_mut()) {
            if bucket.entries.len() > MAX_LINEAR_ENTRIES {
                bucket.by_port = ByPort::build(&bucket.entries, &self.entries);
            }
        }
    }

    /// Returns the index of the first rule that matches.
    pub(super) fn first(&self, headers: &Headers) -> Option<u32> {
        let version = Version::of(headers.source);
        let (from, to) = (word(headers.source), word(headers.destination));
        let mut found: Option<u32> = None;
        for tuple in &self.tuples {
            if found.is_some_and(|found| found < tuple.first) {
                break;
            }
            let Shape { version: wanted, has_protocol, from_bits, to_bits } = tuple.shape;
            if wanted.is_some_and(|wanted| wanted != version) {
                continue;
            }
            let key = Key {
                protocol: if has_protocol { headers.protocol } else { 0 },
                from: cut(from, from_bits),
                to: cut(to, to_bits),
            };
            let bucket = tuple.buckets.find(key.hash(), |bucket| bucket.key == key);
            let matching = bucket.and_then(|bucket| self.first_of(bucket, headers));
            found = found.into_iter().chain(matching).min();
        }
        found.map(|index| self.entries[index as usize].rule)
    }

    /// Returns the index of the first entry of a bucket that matches.
    fn first_of(&self, bucket: &Bucket, headers: &Headers) -> Option<u32> {
        let entries = match (&bucket.by_port, headers.upper) {
            (Some(by_port), Upper::Ports { destination, .. }) => by_port.entries(destination),
            _ => &bucket.entries,
        };
        entries.iter().copied().find(|&index| self.entries[index as usize].matches(headers))
    }
}
