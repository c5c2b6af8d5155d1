//! An attacker on chosen links of a network whose hosts encrypt. It observes each datagram, stores some, and attacks
//! some of them: it replays stored datagrams, later and to other hosts; reflects a datagram to its sender; changes
//! bits or the length, with a matching checksum; and forges packets, sealed and in the clear, with ids that it
//! observed. It has no keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{Duration, Rng, Seed};
use weft_wire::{
    AckHeader, Cipher, DataHeader, MessageHeader, Packet, SealedContent, SealedHeader, SetupHeader,
    SetupKind, SetupParameters, U4,
};

use super::{Action, Change, FaultError, LinkSelector, Plan, Scheduler, Window, probability};
use crate::nic::RECEIVE_PORT;
use crate::time::SimSpan;

/// An attack for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The attacked links.
    pub links: LinkSelector,
    /// Share of packets that are attacked, 0 to 1.
    pub probability: f64,
    /// Start of the fault.
    #[serde(default)]
    pub at: Duration,
    /// Duration of the fault; by default, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        if !plan.is_sealed {
            return Err(FaultError::NothingSealed);
        }
        let change = Change::Attack(probability(self.probability)?);
        for link in plan.directions(&self.links, self.at)? {
            plan.during(
                Window { at: self.at, duration: self.duration },
                Action::Impair { link, change },
            );
        }
        Ok(())
    }
}

/// Maximum number of datagrams that are stored.
const MAX_STORED: usize = 128;

/// Maximum delay of a forgery after the datagram that triggered it: connections end and hosts restart meanwhile.
const MAX_DELAY: SimSpan = SimSpan::from_picos(3_000_000_000);

/// Offset of the receiver's connection id in every packet, in the clear or sealed.
const RECEIVER_CID: usize = 8;

/// Returns the big-endian word at an offset; zero beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_be_bytes)
}

/// The source and destination of a datagram, by its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The host that is named as its source.
    pub source: NodeId,
    /// The UDP port there.
    pub source_port: u16,
    /// The destination host.
    pub destination: NodeId,
}

impl Addresses {
    /// Returns the opposite direction.
    fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, ..self }
    }
}

/// A datagram that no host sent in this form at this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgery {
    /// Its source and destination.
    pub from_to: Addresses,
    /// The bytes after its UDP header.
    pub bytes: Vec<u8>,
}

/// The effect of one attack.
#[derive(Debug, Default)]
pub struct AttackEffect {
    /// `true` if the datagram was changed.
    pub changed: bool,
    /// The datagrams that are sent in addition, with their delays.
    pub made: Vec<(SimSpan, Forgery)>,
}

/// The attacker: one for all attacked links.
#[derive(Debug)]
pub struct Attacker {
    rng: Rng,
    hosts: u32,
    stored: Vec<Forgery>,
}

impl Attacker {
    /// Returns an attacker that has observed nothing.
    pub fn new(seed: Seed, hosts: u32) -> Self {
        Self { rng: seed.rng(), hosts, stored: Vec::new() }
    }

    /// Observes a datagram. Returns `true` if it must be attacked: packets of set-up are few, and others depend on
    /// them.
    pub fn observe(&mut self, from_to: Addresses, bytes: &[u8]) -> bool {
        if self.stored.len() < MAX_STORED {
            self.stored.push(Forgery { from_to, bytes: bytes.into() });
        } else if self.rng.chance(1, 4) {
            let place = self.rng.index(MAX_STORED);
            self.stored[place] = Forgery { from_to, bytes: bytes.into() };
        }
        let kind = bytes.first().copied().and_then(SetupKind::from_packet_type);
        kind.is_some_and(SetupKind::carries_terms) && self.rng.chance(1, 4)
    }

    /// Attacks a datagram that was just observed, and returns the effect. It may change `datagram`.
    pub fn attack(&mut self, from_to: Addresses, datagram: &mut Vec<u8>) -> AttackEffect {
        let mut effect = AttackEffect::default();
        match self.rng.below(10) {
            0 | 1 => {
                let stored = self.stored_datagram();
                self.send(&mut effect, stored);
            }
            2 => {
                let misdirected = self.misdirected();
                self.send(&mut effect, misdirected);
            }
            3 => {
                let reversed = from_to.reversed();
                let source = if self.rng.chance(1, 2) { reversed.source } else { from_to.source };
                let bytes = datagram.clone();
                self.send(
                    &mut effect,
                    Forgery { from_to: Addresses { source, ..reversed }, bytes },
                );
            }
            4 | 5 => {
                let mut bytes = datagram.clone();
                self.alter(&mut bytes);
                if self.rng.chance(1, 2) {
                    effect.changed = bytes != *datagram;
                    *datagram = bytes;
                } else {
                    self.send(&mut effect, Forgery { from_to, bytes });
                }
            }
            6 => {
                let made = self.forge_sealed();
                self.send(&mut effect, made);
            }
            _ => {
                let made = self.forge_clear();
                self.send(&mut effect, made);
            }
        }
        effect
    }

    /// Sends a forgery at once, or later.
    fn send(&mut self, effect: &mut AttackEffect, forgery: Forgery) {
        let now = self.rng.chance(1, 2);
        let late = if now { 0 } else { self.rng.below(MAX_DELAY.as_picos()) };
        effect.made.push((SimSpan::from_picos(late), forgery));
    }

    /// Returns a random stored datagram.
    fn stored_datagram(&mut self) -> Forgery {
        self.stored[self.rng.index(self.stored.len())].clone()
    }

    /// Returns a stored datagram with another destination or source.
    fn misdirected(&mut self) -> Forgery {
        let mut stored = self.stored_datagram();
        let host = NodeId(self.rng.next_u32() % self.hosts);
        match self.rng.chance(1, 2) {
            true => stored.from_to.destination = host,
            false => stored.from_to.source = host,
        }
        stored
    }

    /// Changes bits, or the length.
    fn alter(&mut self, bytes: &mut Vec<u8>) {
        match self.rng.below(4) {
            0 => bytes.truncate(1 + self.rng.index(bytes.len())),
            1 => {
                let more = 1 + self.rng.index(64);
                bytes.extend((0..more).map(|_| self.rng.next_u32().to_le_bytes()[0]));
            }
            _ => {
                for _ in 0..=self.rng.index(3) {
                    // Half of the changes hit bytes in the clear, or the terms of set-up.
                    let among =
                        if self.rng.chance(1, 2) { bytes.len().min(44) } else { bytes.len() };
                    bytes[self.rng.index(among)] ^= 1 << self.rng.index(8);
                }
            }
        }
    }

    /// Returns a forged sealed packet of an observed connection.
    fn forge_sealed(&mut self) -> Forgery {
        let Forgery { from_to, bytes: seen } = self.stored_datagram();
        let known = SealedHeader::parse(&seen).map(|(header, _)| header).unwrap_or_default();
        let cipher = if self.rng.chance(1, 2) { Cipher::Aes128Gcm } else { Cipher::Aes256Gcm };
        let content =
            if self.rng.chance(1, 8) { SealedContent::Frame } else { SealedContent::Packet };
        let header = SealedHeader {
            cipher,
            content,
            key: known.key.wrapping_add(self.rng.next_u32().to_le_bytes()[0] % 10),
            iv: self.near(known.iv),
            ..known
        };
        let len = SealedHeader::LEN + self.rng.index(seen.len());
        let mut bytes = self.random_bytes(len);
        header.emit(&mut bytes);
        Forgery { from_to, bytes }
    }

    /// Returns a forged packet in the clear to or from an observed connection.
    fn forge_clear(&mut self) -> Forgery {
        let Forgery { mut from_to, bytes: seen } = self.stored_datagram();
        let psn = self.near(word(&seen, 4));
        let is_request = seen.first() == Some(&SetupKind::Request.packet_type());
        // A request has no peer's id yet, and gets a reply.
        let (cid, kind) = if is_request {
            from_to = from_to.reversed();
            (word(&seen, 4), 4 + self.rng.below(3))
        } else {
            (word(&seen, RECEIVER_CID), self.rng.below(8))
        };
        let (version, cc_type) = (U4::truncate(1), U4::truncate(self.rng.next_u32()));
        let (destination_cid, other) = (cid, self.id_of_sender(from_to));
        let packet = match kind {
            0 | 1 => {
                let (id, offset) = (self.rng.next_u32() % 20, self.rng.next_u32() % 3_000);
                let length = offset + self.rng.next_u32() % 3_000;
                let message = MessageHeader { opcode: 0, tag: 0, id, offset, length };
                let special = self.rng.chance(1, 4);
                let header = DataHeader {
                    version,
                    cc_type,
                    special,
                    psn,
                    destination_cid,
                    ..DataHeader::default()
                };
                Packet::data(header, Some(message).filter(|_| !special))
            }
            2 => Packet::Ack(AckHeader {
                version,
                cc_type,
                psn,
                psn_base: psn,
                destination_cid,
                ..AckHeader::default()
            }),
            3 => self.setup(SetupKind::Close, other, cid),
            4 => self.setup(SetupKind::Reject, 0, cid),
            5 => self.setup(SetupKind::Accept, other, cid),
            6 => self.setup(SetupKind::Challenge, 0, cid),
            // The message claims that the datagram's receiver does not know the connection.
            _ => {
                from_to = from_to.reversed();
                self.setup(SetupKind::Reset, cid, psn)
            }
        };
        let payload = if kind < 2 { self.rng.index(1_000) } else { 0 };
        let mut bytes = self.random_bytes(packet.len() + payload);
        packet.emit(&mut bytes);
        Forgery { from_to, bytes }
    }

    /// Returns a possible connection id of a datagram's sender, observed in packets sent to it.
    fn id_of_sender(&mut self, from_to: Addresses) -> u32 {
        let reversed = from_to.reversed();
        let is_reversed = |stored: &&Forgery| {
            (stored.from_to.source, stored.from_to.destination)
                == (reversed.source, reversed.destination)
        };
        let ids: Vec<_> = self
            .stored
            .iter()
            .filter(is_reversed)
            .map(|stored| word(&stored.bytes, RECEIVER_CID))
            .collect();
        if ids.is_empty() { self.rng.next_u32() } else { ids[self.rng.index(ids.len())] }
    }

    fn setup(&mut self, kind: SetupKind, local_cid: u32, destination_cid: u32) -> Packet {
        Packet::Setup(SetupHeader {
            kind,
            version: U4::truncate(1),
            cc_type: U4::truncate(self.rng.next_u32()),
            thread_id: 0,
            reason: self.rng.next_u32().to_le_bytes()[0] % 6,
            local_cid,
            destination_cid,
            terms: kind.carries_terms().then(|| self.terms()),
        })
    }

    /// Returns plausible terms of set-up.
    fn terms(&mut self) -> SetupParameters {
        SetupParameters {
            capabilities: self.rng.next_u32() % 16,
            first_psn: self.rng.next_u32(),
            mtu: 1_000,
            window: 64,
            paths: 4,
            receive_port: RECEIVE_PORT,
            service: u64::from(self.rng.next_u32() % 8),
            min_version: 1,
            token: self.rng.next_u64(),
        }
    }

    /// Returns a number, or one close to it.
    fn near(&mut self, number: u32) -> u32 {
        match self.rng.below(3) {
            0 => number,
            1 => number.wrapping_add(self.rng.next_u32() % 100),
            _ => number.wrapping_sub(self.rng.next_u32() % 100),
        }
    }

    fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.next_u32().to_le_bytes()[0]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_topo::build::LeafSpine;

    use super::*;

    #[test]
    fn only_hosts_that_encrypt_are_attacked() {
        let topology = LeafSpine::default().build().unwrap();
        let links = LinkSelector::All;
        let fault = Fault { links, probability: 0.1, at: Duration::ZERO, duration: None };
        let mut plan = Plan::new(&topology, Seed(1));
        assert_eq!(fault.schedule(&mut plan), Err(FaultError::NothingSealed));
        let mut plan = Plan::new(&topology, Seed(1)).of_sealed_hosts();
        fault.schedule(&mut plan).unwrap();
        assert_eq!(plan.into_actions().len(), topology.link_ids().count());
    }

    /// Over many attacks each kind occurs, and a datagram that is reported as unchanged is unchanged.
    #[test]
    fn every_kind_of_attack_occurs() {
        let mut attacker = Attacker::new(Seed(1), 4);
        let seen = |host: u32| Addresses {
            source: NodeId(host % 2),
            source_port: 0xc000,
            destination: NodeId(1 - host % 2),
        };
        let header =
            |host: u32| SealedHeader { spi: 70 + host % 2, iv: 1_000 + host, ..Default::default() };
        let mut types = BTreeSet::new();
        let (mut replayed, mut reflected, mut misdirected, mut changed, mut shorter) =
            (0, 0, 0, 0, 0);
        for number in 0..2_000 {
            let mut bytes = vec![0x5a; 200];
            header(number).emit(&mut bytes);
            let sent = bytes.clone();
            attacker.observe(seen(number), &bytes);
            let AttackEffect { changed: is_changed, made } =
                attacker.attack(seen(number), &mut bytes);
            assert_eq!(is_changed, bytes != sent);
            changed += usize::from(is_changed);
            shorter += usize::from(bytes.len() < sent.len());
            for (late, Forgery { from_to, bytes }) in made {
                assert!(late <= MAX_DELAY && !bytes.is_empty());
                types.insert(bytes[0]);
                reflected +=
                    usize::from(bytes == sent && from_to.destination == seen(number).source);
                replayed += usize::from(bytes.ends_with(&[0x5a; 100]) && bytes != sent);
                misdirected += usize::from(from_to.destination.0 > 1 || from_to.source.0 > 1);
            }
        }
        assert!([1, 2, 4, 5, 6, 7, 8, 9].iter().all(|kind| types.contains(kind)), "{types:?}");
        for count in [replayed, reflected, misdirected, changed, shorter] {
            assert!(count > 10, "{replayed} {reflected} {misdirected} {changed} {shorter}");
        }
    }
}
