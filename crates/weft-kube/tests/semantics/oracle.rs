//! Network policies as the API defines them: each packet is compared with each policy anew.

use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use weft_kube::{Pod, Protocol, World, selects};
use weft_vpc::Direction;

use crate::{NODE, Packet};

/// Returns `true` if the policies of the pod at one end of a packet let it pass.
pub(crate) fn allows(world: &World, direction: Direction, packet: &Packet) -> bool {
    let (own, other) = match direction {
        Direction::Ingress => (packet.destination, packet.source),
        Direction::Egress => (packet.source, packet.destination),
    };
    let Some(pod) = pod_at(world, own) else { return true };
    // Traffic of a pod with its node is always allowed.
    if other.to_string() == NODE {
        return true;
    }
    let isolating: Vec<_> =
        world.policies.iter().filter(|it| isolates(it, pod, direction)).collect();
    isolating.is_empty() || isolating.iter().any(|it| lets_pass(it, world, direction, packet))
}

fn pod_at(world: &World, address: IpAddr) -> Option<&Pod> {
    world.pods.iter().find(|pod| pod.addresses.contains(&address))
}

fn isolates(policy: &NetworkPolicy, pod: &Pod, direction: Direction) -> bool {
    let spec = policy.spec.as_ref().unwrap();
    let selector = spec.pod_selector.clone().unwrap_or_default();
    if policy.metadata.namespace.as_deref() != Some(&pod.namespace)
        || !selects(&selector, &pod.labels)
    {
        return false;
    }
    let types = spec.policy_types.clone().unwrap_or_default();
    let has = |name: &str| types.iter().any(|it| it == name);
    match direction {
        Direction::Ingress => types.is_empty() || has("Ingress"),
        Direction::Egress if types.is_empty() => {
            !spec.egress.clone().unwrap_or_default().is_empty()
        }
        Direction::Egress => has("Egress"),
    }
}

fn lets_pass(policy: &NetworkPolicy, world: &World, direction: Direction, packet: &Packet) -> bool {
    let (spec, namespace) =
        (policy.spec.clone().unwrap(), policy.metadata.namespace.clone().unwrap());
    let rules: Vec<_> = match direction {
        Direction::Ingress => {
            spec.ingress.into_iter().flatten().map(|rule| (rule.from, rule.ports)).collect()
        }
        Direction::Egress => {
            spec.egress.into_iter().flatten().map(|rule| (rule.to, rule.ports)).collect()
        }
    };
    let other = if direction == Direction::Ingress { packet.source } else { packet.destination };
    rules.into_iter().any(|(peers, ports)| {
        let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
        let of_peer =
            peers.is_empty() || peers.iter().any(|it| is_peer(it, &namespace, world, other));
        of_peer && (ports.is_empty() || ports.iter().any(|port| has_port(port, world, packet)))
    })
}

fn is_peer(peer: &NetworkPolicyPeer, namespace: &str, world: &World, address: IpAddr) -> bool {
    if let Some(block) = &peer.ip_block {
        return is_in_block(block, address);
    }
    let Some(pod) = pod_at(world, address) else { return false };
    let in_namespace = match &peer.namespace_selector {
        Some(selector) => selects(selector, &world.namespaces[&pod.namespace]),
        None => pod.namespace == namespace,
    };
    in_namespace && peer.pod_selector.as_ref().is_none_or(|it| selects(it, &pod.labels))
}

fn is_in_block(block: &IPBlock, address: IpAddr) -> bool {
    let holds = |text: &String| {
        let (network, bits) = text.split_once('/').unwrap();
        let bits: u32 = bits.parse().unwrap();
        match (network.parse().unwrap(), address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= bits
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= bits
            }
            _ => false,
        }
    };
    holds(&block.cidr) && !block.except.iter().flatten().any(holds)
}

/// A named port is one of the pod that receives the packet.
fn has_port(port: &NetworkPolicyPort, world: &World, packet: &Packet) -> bool {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        _ => Protocol::Sctp,
    };
    if protocol.number() != packet.protocol {
        return false;
    }
    match &port.port {
        None => true,
        Some(IntOrString::Int(first)) => {
            let last = port.end_port.unwrap_or(*first);
            (*first..=last).contains(&i32::from(packet.port))
        }
        Some(IntOrString::String(name)) => pod_at(world, packet.destination).is_some_and(|pod| {
            let numbers = pod.ports.get(&(protocol, name.clone()));
            numbers.is_some_and(|numbers| numbers.contains(&packet.port))
        }),
    }
}
