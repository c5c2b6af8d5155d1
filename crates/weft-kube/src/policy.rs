//! One network policy as security groups and sets of the fleet.
//!
//! A policy is one group, or, if it has named ports of the pods that it selects, one for each way in which these pods number
//! them. A rule's peers are a set; equal peers of any policies share it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use weft_vpc::{Action, Direction, Ends, Net, Ports, Prefix, Rule, SecurityGroupConfig, Sets};

use crate::peers::Peers;
use crate::selector::selects;
use crate::{Owner, Pod, Protocol, World};

/// The numbers that pods give to the named ports of a policy.
type Numbers = BTreeMap<(Protocol, String), BTreeSet<u16>>;

/// A policy, read.
#[derive(Debug)]
pub(crate) struct Policy<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    object: &'a NetworkPolicy,
}

/// The objects of policies.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(crate) groups: BTreeMap<String, SecurityGroupConfig>,
    pub(crate) sets: Sets,
    /// The parts without equivalent, by policy.
    pub(crate) warnings: BTreeMap<(String, String), BTreeSet<String>>,
}

impl<'a> Policy<'a> {
    pub(crate) fn of(object: &'a NetworkPolicy) -> Option<Self> {
        let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
        Some(Self { namespace: namespace.as_ref()?, name: name.as_ref()?, object })
    }

    /// Returns `true` if the policy selects a pod.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        let Some(spec) = &self.object.spec else { return false };
        let of_labels = spec.pod_selector.as_ref().is_none_or(|it| selects(it, &pod.labels));
        pod.namespace == self.namespace && of_labels
    }

    /// Returns `true` if it isolates the pods that it selects in a direction.
    pub(crate) fn isolates(&self, direction: Direction) -> bool {
        let Some(spec) = &self.object.spec else { return false };
        match (spec.policy_types.as_deref().unwrap_or_default(), direction) {
            ([], Direction::Ingress) => true,
            ([], Direction::Egress) => spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
            (types, Direction::Ingress) => types.iter().any(|it| it == "Ingress"),
            (types, Direction::Egress) => types.iter().any(|it| it == "Egress"),
        }
    }

    /// Returns the name of the group of a pod that the policy selects.
    pub(crate) fn group_of(&self, pod: &Pod, owner: &Owner) -> String {
        self.group_name(&self.numbers(pod), owner)
    }

    fn group_name(&self, numbers: &Numbers, owner: &Owner) -> String {
        let identity = format!("policy\n{}\n{}\n{numbers:?}", self.namespace, self.name);
        owner.derived(&format!("{}.{}", self.namespace, self.name), &identity)
    }

    /// Returns the numbers that a pod gives to those of its ports that ingress rules name.
    fn numbers(&self, pod: &Pod) -> Numbers {
        let spec = self.object.spec.as_ref().filter(|_| self.isolates(Direction::Ingress));
        let rules = spec.and_then(|spec| spec.ingress.as_ref()).into_iter().flatten();
        let ports = rules.flat_map(|rule| rule.ports.iter().flatten());
        let named = ports.filter_map(named).filter_map(|key| {
            let numbers = pod.ports.get(&key)?.clone();
            Some((key, numbers))
        });
        named.collect()
    }

    /// Adds the groups of the pods that it selects, and the sets of their rules.
    pub(crate) fn compile(&self, world: &World, owner: &Owner, compiled: &mut Compiled) {
        let selected = world.pods.iter().filter(|pod| self.selects(pod));
        let ways: BTreeSet<_> = selected.map(|pod| self.numbers(pod)).collect();
        for numbers in ways {
            let name = self.group_name(&numbers, owner);
            let mut rules = self.ingress(&numbers, world, owner, compiled);
            rules.extend(self.egress(world, owner, compiled));
            let group = SecurityGroupConfig { name: name.clone(), members: vec![], rules };
            compiled.groups.insert(name, group);
        }
    }

    fn ingress(
        &self,
        numbers: &Numbers,
        world: &World,
        owner: &Owner,
        compiled: &mut Compiled,
    ) -> Vec<Rule> {
        let spec = self.object.spec.as_ref().filter(|_| self.isolates(Direction::Ingress));
        let rules = spec.and_then(|spec| spec.ingress.as_ref()).into_iter().flatten();
        let mut made = vec![];
        for (index, rule) in rules.enumerate() {
            let peers = Peers::of(self.namespace, rule.from.as_ref());
            let Some(net) = self.net(&peers, world, owner, compiled) else { continue };
            let mut matches = Matches::default();
            for port in rule.ports.iter().flatten() {
                match named(port) {
                    Some(key) => {
                        let own = numbers.get(&key).into_iter().flatten();
                        matches.0.extend(own.map(|&it| (key.0, Ports::new(it, it))));
                    }
                    None => self.add(port, &mut matches, compiled),
                }
            }
            let all = rule.ports.as_ref().is_none_or(Vec::is_empty);
            for (protocol, ports) in matches.or_all(all) {
                let mut rule = allow(Direction::Ingress, index, protocol);
                (rule.from.net, rule.to.ports) = (net.clone(), ports);
                made.push(rule);
            }
        }
        made
    }

    fn egress(&self, world: &World, owner: &Owner, compiled: &mut Compiled) -> Vec<Rule> {
        let spec = self.object.spec.as_ref().filter(|_| self.isolates(Direction::Egress));
        let rules = spec.and_then(|spec| spec.egress.as_ref()).into_iter().flatten();
        let mut made = vec![];
        for (index, rule) in rules.enumerate() {
            let peers = Peers::of(self.namespace, rule.to.as_ref());
            let Some(net) = self.net(&peers, world, owner, compiled) else { continue };
            if peers.have_pods() {
                self.warn(compiled, EGRESS_TO_PODS.into());
            }
            let (mut matches, all) =
                (Matches::default(), rule.ports.as_ref().is_none_or(Vec::is_empty));
            for port in rule.ports.iter().flatten() {
                let Some(key) = named(port) else {
                    self.add(port, &mut matches, compiled);
                    continue;
                };
                // Refused blocks have been reported with the peers.
                for (number, addresses) in peers.with_port(world, &key).unwrap_or_default() {
                    let identity = format!("port\n{key:?}\n{number}\n{}", peers.identity());
                    let name = owner.derived(&key.1, &identity);
                    let mut rule = allow(Direction::Egress, index, Some(key.0));
                    let ports = Ports::new(number, number);
                    rule.to = Ends { net: Net::Set(name.clone()), ports };
                    made.push(rule);
                    compiled.sets.insert(name, addresses.into_iter().map(Prefix::of).collect());
                }
            }
            for (protocol, ports) in matches.or_all(all) {
                let mut rule = allow(Direction::Egress, index, protocol);
                rule.to = Ends { net: net.clone(), ports };
                made.push(rule);
            }
        }
        made
    }

    /// Returns the addresses of peers as rules name them; `None` if a block is refused, which lets nothing pass.
    fn net(
        &self,
        peers: &Peers<'_>,
        world: &World,
        owner: &Owner,
        compiled: &mut Compiled,
    ) -> Option<Net> {
        if peers.are_all() {
            return Some(Net::Any);
        }
        let name = owner.derived("peers", &format!("peers\n{}", peers.identity()));
        if !compiled.sets.contains_key(&name) {
            match peers.prefixes(world) {
                Ok(prefixes) => compiled.sets.insert(name.clone(), prefixes),
                Err(error) => {
                    self.warn(compiled, format!("{error}: its rule lets nothing pass"));
                    return None;
                }
            };
        }
        Some(Net::Set(name))
    }

    /// Adds a port that has a number, or none.
    fn add(&self, port: &NetworkPolicyPort, matches: &mut Matches, compiled: &mut Compiled) {
        let Some(protocol) = Protocol::named(port.protocol.as_deref()) else {
            let protocol = port.protocol.clone().unwrap_or_default();
            return self
                .warn(compiled, format!("protocol {protocol} is unknown: it lets nothing pass"));
        };
        let first = match &port.port {
            None => {
                matches.0.insert((protocol, None));
                return;
            }
            Some(_) if protocol == Protocol::Sctp => return self.warn(compiled, SCTP_PORTS.into()),
            // Named ports are not numbers here.
            Some(IntOrString::String(_)) => return,
            Some(IntOrString::Int(first)) => *first,
        };
        let last = port.end_port.unwrap_or(first);
        match u16::try_from(first).ok().zip(u16::try_from(last).ok()) {
            Some((first, last)) if first <= last => {
                matches.0.insert((protocol, Ports::new(first, last)));
            }
            _ => self
                .warn(compiled, format!("ports {first} to {last} are none: they let nothing pass")),
        }
    }

    fn warn(&self, compiled: &mut Compiled, text: String) {
        let key = (self.namespace.to_owned(), self.name.to_owned());
        compiled.warnings.entry(key).or_default().insert(text);
    }
}

/// The warning of policies that a Service's address is not part of.
const EGRESS_TO_PODS: &str = "egress rules match the addresses of pods. Where kube-proxy translates a Service's address only on the node, \
     the pod's packets have that address: allow it by an ipBlock";

/// The warning of rules that let nothing pass.
const SCTP_PORTS: &str = "Weft knows no ports of SCTP: a rule with an SCTP port lets nothing pass. Leave the port out to allow all of SCTP";

/// The protocols and ports of a rule.
#[derive(Debug, Default)]
struct Matches(BTreeSet<(Protocol, Option<Ports>)>);

impl Matches {
    /// Returns them in the form of rules, or a match of all packets.
    fn or_all(self, all: bool) -> Vec<(Option<Protocol>, Option<Ports>)> {
        if all {
            return vec![(None, None)];
        }
        self.0.into_iter().map(|(protocol, ports)| (Some(protocol), ports)).collect()
    }
}

/// Returns the protocol and the name of a named port. SCTP's are left to the warning of its numbers.
fn named(port: &NetworkPolicyPort) -> Option<(Protocol, String)> {
    let protocol = Protocol::named(port.protocol.as_deref()).filter(|it| *it != Protocol::Sctp)?;
    match &port.port {
        Some(IntOrString::String(name)) => Some((protocol, name.clone())),
        _ => None,
    }
}

fn allow(direction: Direction, index: usize, protocol: Option<Protocol>) -> Rule {
    let name = format!("{direction}-{index}");
    Rule { name, protocol: protocol.map(Protocol::number), ..Rule::new(Action::Allow, direction) }
}
