//! The forwarding behaviour of a network: routes, hashes and weights. They determine the path of a flow from
//! its source port.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_topo::hash::{FabricHash, FiveTuple, HashAlgorithm, SwitchHash, SwitchSalt, linux};
use weft_topo::{Failures, LinkId, NodeId, Routes, Topology};

use super::hops::{Hops, Next};
use super::{Entropy, Flow, PlanError};
use crate::cluster::Network;

/// Maximum number of links of a path after the host's own: up and down eight tiers.
pub(super) const MAX_PATH_LINKS: usize = 16;

/// A network prepared for repeated path computations.
#[derive(Debug)]
pub struct Fabric<'a> {
    topology: &'a Topology,
    routes: Routes,
    failures: Failures,
    addresses: &'a [u32],
    weights: &'a BTreeMap<LinkId, u32>,
    entropy: Entropy,
    functions: Vec<Function>,
    switches: Vec<Switch>,
    hops: Hops,
}

/// A hash function, shared by the switches that use it.
#[derive(Debug)]
struct Function {
    hash: FabricHash,
    /// The change of an affine hash by each source port of the range; empty for other hashes.
    changes: Vec<u32>,
}

/// The hash parameters of one switch.
#[derive(Clone, Copy, Debug)]
struct Switch {
    function: usize,
    salt: SwitchSalt,
    /// `true` if a link of the switch has a weight; then [`Self::direct`] applies.
    weighted: bool,
    direct: SwitchHash,
    /// Linux's hash with the switch's seed, for the planned protocol.
    linux: Option<linux::Keyed>,
}

/// A switch's candidate links and its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'f> {
    /// The switch.
    pub switch: NodeId,
    /// The equal-cost links for the packet's destination.
    pub links: &'f [LinkId],
    /// The index of the chosen link.
    pub index: usize,
}

/// A flow's packet without its source port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    tuple: FiveTuple,
    /// The part of each function's hash that all switches share, for the first port of the range.
    bases: [u32; HashAlgorithm::ALL.len()],
}

/// A choice that is affine in the source port, by the hash function that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Affine {
    function: usize,
    rotate: u32,
    /// The base-2 logarithm of the number of links.
    pub(super) bits: u32,
}

impl<'a> Fabric<'a> {
    /// Prepares a network with failed links or switches, for the ports and protocol of `entropy`.
    ///
    /// # Errors
    /// Returns `Entropy` for an invalid range of ports, or `Routes` for a network that is too large.
    ///
    /// # Panics
    /// If the network's parts do not belong to one topology.
    pub fn new(
        network: &'a Network,
        failures: &Failures,
        entropy: Entropy,
    ) -> Result<Self, PlanError> {
        let Network { topology, hashes, addresses, weights, .. } = network;
        entropy.check()?;
        assert_eq!(hashes.len(), topology.switches() as usize, "one hash for each switch");
        assert_eq!(addresses.len(), topology.hosts() as usize, "one address for each host");
        let routes = Routes::compute(topology, failures)?;
        let mut functions: Vec<Function> = Vec::new();
        let mut switches = Vec::new();
        for (switch, &direct) in topology.switch_ids().zip(hashes) {
            let known = functions.iter().position(|f| f.hash.algorithm() == direct.algorithm);
            let function = known.unwrap_or_else(|| {
                functions.push(Function::new(direct.algorithm, entropy));
                functions.len() - 1
            });
            let salt = functions[function].hash.salt(direct.seed, direct.rotate);
            let weighted = topology.ports(switch).iter().any(|port| weights.contains_key(port));
            let policy = direct.algorithm.linux_policy();
            let linux = policy.map(|it| linux::Keyed::new(it, direct.seed, entropy.protocol));
            switches.push(Switch { function, salt, weighted, direct, linux });
        }
        let failures = failures.clone();
        let hops = Hops::new(topology, &routes);
        Ok(Self {
            topology,
            routes,
            failures,
            addresses,
            weights,
            entropy,
            functions,
            switches,
            hops,
        })
    }

    /// Returns the topology.
    pub const fn topology(&self) -> &'a Topology {
        self.topology
    }

    /// Returns the routes.
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns `true` if packets can pass a link.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.failures.is_up(self.topology, link)
    }

    /// Returns the range of source ports.
    pub const fn entropy(&self) -> Entropy {
        self.entropy
    }

    /// Returns the links that a flow takes with this source port, the host's link first; empty if there is no route.
    ///
    /// # Panics
    /// If the flow is not of this network, or the port is not in the range.
    pub fn path(&self, flow: Flow, port: u16) -> Vec<LinkId> {
        let mut path = alloc::vec![flow.first];
        let arrives = self.walk(flow, &self.packet(flow), port, |choice| {
            path.push(choice.links[choice.index]);
            true
        });
        if !arrives {
            path.clear();
        }
        path
    }

    /// Returns the number of links that a flow takes after its host's, which is the same for every port; `None`
    /// if there is no route.
    pub(super) fn hops(&self, flow: Flow) -> Option<usize> {
        let mut at = self.topology.link(flow.first).to;
        let group = self.routes.group(flow.destination);
        let mut hops = 1;
        while let Next::Switches(_, ends) = self.hops.next(self.number(at), group) {
            at = *ends.first()?;
            hops += 1;
        }
        self.is_up(flow.first).then_some(hops)
    }

    /// Returns the flow's packet.
    pub(super) fn packet(&self, flow: Flow) -> Packet {
        let source = self.topology.link(flow.first).from;
        let tuple = FiveTuple {
            src: self.addresses[source.index()],
            dst: self.addresses[flow.destination.index()],
            src_port: self.entropy.first,
            dst_port: self.entropy.destination_port,
            protocol: self.entropy.protocol,
        };
        let mut bases = [0; HashAlgorithm::ALL.len()];
        for (base, function) in bases.iter_mut().zip(&self.functions) {
            *base = function.hash.base(&tuple);
        }
        Packet { tuple, bases }
    }

    /// Calls `each` with every switch's choice on the path until it returns `false`. Returns `true` if the
    /// packet arrives.
    pub(super) fn walk<'f>(
        &'f self,
        flow: Flow,
        packet: &Packet,
        port: u16,
        mut each: impl FnMut(Choice<'f>) -> bool,
    ) -> bool {
        let mut at = self.topology.link(flow.first).to;
        for _ in 0..MAX_PATH_LINKS {
            if at == flow.destination {
                return true;
            }
            let links = self.next_links(at, flow.destination);
            if links.is_empty() {
                return false;
            }
            let index = self.choose(at, links, packet, port);
            if !each(Choice { switch: at, links, index }) {
                return false;
            }
            at = self.topology.link(links[index]).to;
        }
        at == flow.destination
    }

    /// Calls `each` with every link between switches that the packet takes, until it returns `false`. Returns
    /// `true` if no call did.
    #[inline]
    pub(super) fn follow(
        &self,
        flow: Flow,
        packet: &Packet,
        port: u16,
        mut each: impl FnMut(LinkId) -> bool,
    ) -> bool {
        let mut at = self.topology.link(flow.first).to;
        let group = self.routes.group(flow.destination);
        for _ in 0..MAX_PATH_LINKS {
            let Next::Switches(links, ends) = self.hops.next(self.number(at), group) else { break };
            if links.is_empty() {
                break;
            }
            let index = self.choose(at, links, packet, port);
            if !each(links[index]) {
                return false;
            }
            at = ends[index];
        }
        true
    }

    /// Returns the next links of the routes.
    pub(super) fn next_links(&self, at: NodeId, destination: NodeId) -> &[LinkId] {
        match self.hops.next(self.number(at), self.routes.group(destination)) {
            Next::Switches(links, _) => links,
            Next::Host => self.routes.next_links(at, destination),
        }
    }

    /// Returns a switch's index among switches.
    fn number(&self, switch: NodeId) -> usize {
        switch.index() - self.topology.hosts() as usize
    }

    /// Returns the index of the link that the switch chooses.
    #[inline]
    pub(super) fn choose(&self, at: NodeId, links: &[LinkId], packet: &Packet, port: u16) -> usize {
        if links.len() == 1 {
            return 0;
        }
        let switch = &self.switches[self.number(at)];
        let tuple = || FiveTuple { src_port: port, ..packet.tuple };
        if switch.weighted {
            let weight = |link| self.weights.get(link).copied().unwrap_or(1);
            let weights: Vec<u32> = links.iter().map(weight).collect();
            // A group whose weights are all zero forwards nothing; the first link is returned for it.
            return switch.direct.select_weighted(&tuple(), &weights).unwrap_or(0);
        }
        if let Some(hash) = &switch.linux {
            return linux::select(hash.hash(&tuple()), links.len());
        }
        let function = &self.functions[switch.function];
        let change = function.changes.get(usize::from(port - self.entropy.first));
        let base = packet.bases[switch.function] ^ change.copied().unwrap_or(0);
        function.hash.select(base, tuple, switch.salt, links.len())
    }

    /// Returns the affine form of a switch's choice among `count` links, if it has one.
    pub(super) fn affine(&self, at: NodeId, count: usize) -> Option<Affine> {
        let switch = &self.switches[self.number(at)];
        let is_affine = switch.direct.algorithm.is_affine() && !switch.weighted;
        (is_affine && count.is_power_of_two()).then(|| Affine {
            function: switch.function,
            rotate: switch.direct.rotate,
            bits: count.trailing_zeros(),
        })
    }

    /// Returns the change of a choice by each bit of the source port, lowest first: the columns of its matrix
    /// over GF(2).
    pub(super) fn columns(&self, affine: Affine) -> impl Iterator<Item = usize> + '_ {
        let Function { hash, changes } = &self.functions[affine.function];
        let salt = hash.salt(0, affine.rotate);
        let nothing = FiveTuple { src: 0, dst: 0, src_port: 0, dst_port: 0, protocol: 0 };
        let index = move |base| hash.select(base, || nothing, salt, 1 << affine.bits);
        (0..self.entropy.bits).map(move |bit| index(changes[1 << bit]) ^ index(0))
    }
}

impl Function {
    fn new(algorithm: HashAlgorithm, entropy: Entropy) -> Self {
        let hash = FabricHash::new(algorithm);
        let tuple = |src_port| FiveTuple { src: 0, dst: 0, src_port, dst_port: 0, protocol: 0 };
        let first = hash.base(&tuple(entropy.first));
        let change = |port| hash.base(&tuple(port)) ^ first;
        let changes =
            if algorithm.is_affine() { entropy.ports().map(change).collect() } else { Vec::new() };
        Self { hash, changes }
    }
}
